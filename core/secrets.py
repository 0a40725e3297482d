"""Secrets inside of texts: which parts of a text are passwords, tokens and keys.

What counts as one:

- the value behind a name that says so, as in `token=…`, `"password": "…"`, `-Dx.password='…'` and `--password …`; in quotes, all of it;
- a signature in an address or a connection string, as in `?sig=…`;
- what follows `Bearer`, or `Authorization: <scheme>`;
- the password of `scheme://user:password@host`, also with `/` or `@` inside of it; over HTTP, where the user may be a token, both.

Promises: where it is doubtful how far a secret goes, more is masked rather than less. The time that a search takes grows with the length of
the text and no faster, whatever the text: it is data of users.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MASK = "***"
NAMES = re.compile(
    r"passw|passphrase|pass(?![a-z])|pwd|secret|token|credential|jaas|key\.pem|keystore\.key|(?<![a-z])sas(?![a-z])"
    r"|(?:api|access|account|private|encryption|session)[._-]?key",
    re.IGNORECASE,
)
"""Names of settings and fields whose values are secrets."""
_SIGNED = re.compile(r"(?:^|[._-])sig$|signature$", re.IGNORECASE)
"""Names that are those of secrets only with an equals sign behind them."""
_NAMED = re.compile(r"(?<![\w.-])(?P<name>[\w.-]++)\\*+[\"']?\s*+(?P<sign>=>|:=|[:=])\s*+")
_OPTION = re.compile(r"(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*+)\s++(?!-)")
_QUOTE = re.compile(r"\\{0,7}[\"']")
_CLOSED = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*+", re.DOTALL) for quote in "\"'"}
_WORD = re.compile(r"(?:[^\s,;&\"']|[\"'](?![\s,;&}\])]|$))++")
_ARGUMENT = re.compile(r"(?:[^\s\"']|[\"'](?![\s,;&}\])]|$))++")
_SCHEME = re.compile(
    r"\b(?:bearer|authorization\\*+[\"']?\s*+[:=]\s*+\\*+[\"']?\w++)\s++(?P<secret>(?!tokens?\b|auth)[\w.~+/=-]++)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"://(?P<rest>(?:(?!://)[^\s\"'])++)")
_USER = re.compile(r"[^/:@?#;]*")
_PORT = re.compile(r"(?:[\w-]++\.[\w.-]*+|localhost):\d{1,5}[/?#]", re.IGNORECASE)
"""What looks like a user and a password, but is a host and its port in front of a path with `@` in it."""
_HOST_ENDS = re.compile(r"[/?#]")
SHORTEST_REPEATED = 4
"""A shorter secret is masked only where it was found, and not wherever the same letters stand."""
MOST_REPEATED = 20
"""So many of the longest secrets of a text are looked for everywhere in it."""

_Span = tuple[int, int]


def found_in(text: str) -> list[str]:
    """The secrets inside of a text, in its order.

    >>> found_in("run --password hunter2 -Dx.token='a b'"), found_in("https://me:pa/ss@host/?sig=abc")
    (['hunter2', 'a b'], ['me:pa/ss', 'pa/ss', 'abc'])
    """
    return list(dict.fromkeys(text[start:end] for start, end in sorted(_spans(text))))


def masked(text: str) -> str:
    """The text with a mask in place of each secret.

    >>> masked("sc://host/;token=hunter2;user_id=ann"), masked("s3://me:a@b@bucket")
    ('sc://host/;token=***;user_id=ann', 's3://me:***@bucket')
    """
    spans = sorted(_spans(text))
    if not spans:
        return text
    parts: list[str] = []
    done = 0
    for start, end in spans:
        if start >= done:
            parts += [text[done:start], MASK]
        done = max(done, end)
    found = "".join((*parts, text[done:]))
    for secret in sorted({text[start:end] for start, end in spans}, key=len, reverse=True)[:MOST_REPEATED]:
        if len(secret) >= SHORTEST_REPEATED:
            found = found.replace(secret, MASK)
    return found


def _spans(text: str) -> Iterator[_Span]:
    for span in (*_named(text), *_options(text), *_addresses(text)):
        if span[0] < span[1] and text[span[0] : span[1]] != MASK:
            yield span
    yield from (found.span("secret") for found in _SCHEME.finditer(text))


def _named(text: str) -> Iterator[_Span]:
    done = 0
    for found in _NAMED.finditer(text):
        name, start = found["name"], found.end()
        if start < done and _QUOTE.match(text, start) is None:
            continue  # `token=token=…`: inside of one that was found, and ends with it
        if NAMES.search(name) or (found["sign"] == "=" and _SIGNED.search(name)):
            span = _value(text, start, _WORD)
            done = max(done, span[1])
            yield span


def _options(text: str) -> Iterator[_Span]:
    for found in _OPTION.finditer(text):
        if NAMES.search(found["name"]):
            yield _value(text, found.end(), _ARGUMENT)


def _value(text: str, start: int, word: re.Pattern[str]) -> _Span:
    """Where the value goes that begins here: in quotes up to the same quote, otherwise as far as a word goes."""
    opened = _QUOTE.match(text, start)
    if opened is None:
        found = word.match(text, start)
        return start, start if found is None else found.end()
    quote, inner = opened[0], opened.end()
    if len(quote) == 1:
        closed = _CLOSED[quote].match(text, inner)
        assert closed is not None, "it matches nothing, too"
        return inner, closed.end()
    end = text.find(quote, inner)
    return inner, len(text) if end < 0 else end


def _addresses(text: str) -> Iterator[_Span]:
    for found in _ADDRESS.finditer(text):
        rest, start = found["rest"], found.start("rest")
        last = rest.rfind("@")
        if last < 0 or _PORT.match(rest) is not None:
            continue
        user = _USER.match(rest)
        assert user is not None, "it matches nothing, too"
        web = text[max(0, found.start() - 5) : found.start()].lower().endswith(("http", "https"))
        if rest[user.end()] == ":":
            yield start + user.end() + 1, start + last
            if web:
                yield start, start + last
        elif web:
            ends = _HOST_ENDS.search(rest)
            yield start, start + max(0, rest.rfind("@", 0, None if ends is None else ends.start()))
