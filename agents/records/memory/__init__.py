"""Bytes, numbers and vectors in memory, and the places of records in them."""
