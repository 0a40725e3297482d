"""Docs tell the truth, or these tests fail."""
