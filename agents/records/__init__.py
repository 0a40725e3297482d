"""Records in columns: read from bytes, cut into chunks, given types, packed again. Nothing here does any input or output."""
