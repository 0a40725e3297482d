"""Columns of logical types, such as times and lists, at the borders: where they are more than what they are stored as."""
