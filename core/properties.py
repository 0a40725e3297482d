"""`.properties` files as Java reads and writes them: names and values, one pair a line.

What counts: `#` and `!` begin a comment; `=`, `:` or a space ends a name; a backslash at the end of a line continues it, without the
spaces that the next one begins with; `\\t`, `\\n`, `\\r`, `\\f` and `\\u00e9` stand for characters, any other backslash for what follows.
Of two values of a name the last one counts.

Promises: any text is read, or refused with the number of its line, without its value, which may be a password. What `line` writes is read
back as it was, also by Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .errors import SettingError

ENCODING = "latin-1"
"""What Java takes the bytes for. Other characters are written with a backslash."""
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {"\\": "\\\\", **{char: f"\\{letter}" for letter, char in _ESCAPED.items()}}
_ENDS = re.compile(r"\r\n|\n|\r")
_NAME = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*")
_BACKSLASH = re.compile(r"\\(u([0-9A-Fa-f]{4})|.)", re.DOTALL)
_BLANKS = " \t\f"


def read(text: str) -> dict[str, str]:
    """The pairs of a file.

    >>> read("# for tests\\nuser = ann\\npath: /etc/\\\\\\n    kafka\\n")
    {'user': 'ann', 'path': '/etc/kafka'}
    """
    found: dict[str, str] = {}
    for number, line in _lines(text):
        split = _NAME.match(line)
        assert split is not None, "an empty name matches"
        found[_plain(split[1], number)] = _plain(line[split.end() :], number)
    return found


def line(name: str, value: str) -> str:
    r"""One pair, as a line of a file.

    >>> line("path", "C:\\keys\\é")
    'path=C:\\\\keys\\\\\\u00e9'
    """
    key = "".join(f"\\{char}" if char in "=: #!" else char for char in _written(name))
    text = _written(value)
    return f"{key}=\\{text}" if text.startswith(" ") else f"{key}={text}"


def _written(text: str) -> str:
    units = text.encode("utf-16-be")
    chars = (chr(int.from_bytes(units[at : at + 2])) for at in range(0, len(units), 2))
    return "".join(_ESCAPES.get(char) or (char if " " <= char <= "~" else f"\\u{ord(char):04x}") for char in chars)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """What belongs to one pair, with the number of its first line."""
    begun, at = "", 0
    for number, natural in enumerate(_ENDS.split(text), 1):
        part = natural.lstrip(_BLANKS)
        if not begun:
            at = number
            if not part or part[0] in "#!":
                continue
        begun += part
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
            if begun:
                continue
        if begun:
            yield at, begun
        begun = ""
    if begun:
        yield at, begun


def _plain(text: str, number: int) -> str:
    def char(found: re.Match[str]) -> str:
        if found[2]:
            return chr(int(found[2], 16))
        if found[1] == "u":
            raise SettingError(
                f"line {number}: \\u is not followed by four hexadecimal digits", remedy="write \\\\u for a backslash"
            )
        return _ESCAPED.get(found[1], found[1])

    whole = _BACKSLASH.sub(char, text)
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
