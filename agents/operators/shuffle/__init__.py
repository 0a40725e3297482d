"""The sending side of a shuffle."""
