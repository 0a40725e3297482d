"""Operators over rows and columns that know no time: columns, frames, tables, running aggregates, and what writes to topics."""
