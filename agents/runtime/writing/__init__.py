"""What tasks write: whole letters, in transactions that one coroutine owns, through the producers of an incarnation."""
