"""Records in columns: read from bytes, cut into chunks, decoded to typed values, and packed again. Nothing here does any I/O."""
