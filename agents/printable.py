"""What a terminal may get of a text that may hold data: characters that would steer it are shown instead."""

from __future__ import annotations


def printable(text: str, *, but: str = "") -> str:
    """The text with its characters that cannot be printed as they are written in code. Those in `but` stay.

    >>> printable("a\\x1b[2Jb\\n"), printable("a\\x1b[2Jb\\n", but="\\n")
    ('a\\\\x1b[2Jb\\\\n', 'a\\\\x1b[2Jb\\n')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in but else c.encode("unicode_escape").decode() for c in text)
