"""Random parts of expressions, for every test that draws trees."""

from __future__ import annotations

import random
from collections.abc import Callable

from headgate.core.columns import expressions as e

PATTERNS = ["a", "^a+b", "[0-9]{2}$", r"\W", "(?i)A", "ab|1", "b$", "", "[^a]b", r"\s$", "a.b", "."]
SHORT = ["a", "b", "ab", "1", "-", "ä", "€", "aa"]


FORMS = ["%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%d", "%d.%m.%Y %H:%M", "%S%M%H%d%m%Y"]


def of_time(chance: random.Random, of: Callable[[], e.Node]) -> e.Node:
    """A whole number that is made of a time: a part of it, or the time that a text of it, often a damaged one, is."""
    one = e.Expression(of())
    part = chance.choice(["year", "month", "day", "hour", "minute", "second", "weekday", "strptime", "strptime"])
    if part != "strptime":
        return getattr(one, part)().node
    form = chance.choice(FORMS)
    text = (one % 10 ** chance.choice([11, 12, 13, 14])).strftime(form)
    for _ in range(chance.randrange(3)):
        text = text.replace(chance.choice("0123456789.+:"), chance.choice(["0", "2", "9", "", "-"]))
    return text.strptime(form).node


def of_number(chance: random.Random, of: Callable[[], e.Node]) -> e.Node:
    """A number that is made of numbers of the same type."""
    one = e.Expression(of())
    match chance.randrange(3):
        case 0:
            return one.abs().node
        case 1:
            return one.round(chance.choice([0, 1, 2, 15])).node
        case _:
            return extreme(chance, of)


def extreme(chance: random.Random, of: Callable[[], e.Node]) -> e.Node:
    """The least or the greatest of some."""
    function = chance.choice([e.least, e.greatest])
    return function(e.Expression(of()), *(e.Expression(of()) for _ in range(chance.randint(1, 2)))).node


def of_text(chance: random.Random, of: Callable[[], e.Node]) -> e.Node:
    """A text that is made of texts."""
    one = e.Expression(of())
    match chance.randrange(8):
        case 7:
            return extreme(chance, of)
        case 0:
            return one.strip(chance.choice([None, *SHORT])).node
        case 1:
            return one.slice(chance.randint(-4, 4), chance.choice([None, chance.randint(-4, 5), 2**63 - 1])).node
        case 2:
            return one.split(chance.choice(SHORT), chance.randint(-3, 3)).node
        case 3:
            return one.replace(chance.choice(SHORT), chance.choice(["", *SHORT])).node
        case 4:
            return e.concat(one, *(e.Expression(of()) for _ in range(chance.randint(1, 2)))).node
        case _:
            return chance.choice([one.lower, one.upper])().node
