"""User code that may await, or keeps state of its own."""
