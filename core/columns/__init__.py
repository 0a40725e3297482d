"""Columns: the schema of records, expressions over its columns, and what they evaluate to. Pure; knows no format and no library."""
