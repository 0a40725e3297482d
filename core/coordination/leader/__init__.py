"""Who leads, and what is decided while one does."""
