"""Chunks in columns: records decoded into vectors, computed, grouped and encoded again, without an object per record."""
