"""The tables of a task, and the store that contains them."""
