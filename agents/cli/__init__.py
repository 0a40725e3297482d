"""The command line: its commands, their output and their exit codes."""
