"""The steps of a declared job, as values."""
