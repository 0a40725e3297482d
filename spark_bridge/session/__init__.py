"""Runs batches."""
