"""What a column of an export holds, as a worker says it of a table and the command reads it."""

from __future__ import annotations

NULL, BOOL, INT, FLOAT, TEXT, BYTES, JSON = "null", "bool", "int", "float", "text", "bytes", "json"
