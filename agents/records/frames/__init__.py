"""Frames of intermediate streams, as rows and as Arrow columns, and the chunks that are cut of what has been fetched."""
