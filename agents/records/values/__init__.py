"""One value: what it is called in a record, the serdes that read and write it, and the columns that its type declares."""
