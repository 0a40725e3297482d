"""Records that failed: their policies, and their dead letters."""
