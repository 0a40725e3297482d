"""The plain twin of the compiled part: the same functions in Python, with the same arguments and results, each file as one or more in C."""
