"""The command line: which verbs there are, what they print, and with which code they end."""
