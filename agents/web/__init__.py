"""The HTTP pages of a worker."""
