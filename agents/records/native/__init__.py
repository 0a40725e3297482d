"""The compiled part, all of it in C, and whether it is used."""
