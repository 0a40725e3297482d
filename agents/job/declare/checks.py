"""The checks that each verb makes of its arguments when it is called. Their messages use the user's terms.

Promises: an error names the verb, the argument and what to write instead; what passes can be run. A coroutine function is refused where
it would never be awaited. A function that cannot take the arguments that it will get is refused, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, get_origin

from ....core.errors import DeclarationError
from ....core.graph.graph import Graph
from ....core.names import Topics, topic_name
from ....core.settings import nearest
from ....core.targets import ClosedTopics
from ...records.values.serdes import Serde
from ..steps.step import AS_BEFORE, Policy, Step
from ..types.arguments import check_arguments, check_function, returned
from ..types.parking import PARK, Park

Selector = str | Callable[[Any], Any]
"""A field of the value, by name, or a function of the value."""
POLICIES = ("fail", "skip", "dead_letter", PARK)
LONGEST_NAME = 100
"""How many characters the name of a step may have: topics and tables are named by it."""


ENDS = ("oldest", "newest")
KAFKAS = {"earliest": "oldest", "beginning": "oldest", "latest": "newest", "end": "newest"}
"""What Kafka and others call the ends of a partition → what headgate calls them."""


def end_meant(given: Any, ends: Sequence[str] = ENDS) -> str:
    """A suggestion for a word that is not an end of a partition but resembles one; empty if it resembles none.

    >>> end_meant("latest"), end_meant("oldst"), end_meant("earliest", ("newest",)), end_meant(None)
    ("did you mean 'newest'? ", "did you mean 'oldest'? ", '', '')
    """
    if not isinstance(given, str):
        return ""
    word = KAFKAS.get(given.lower()) or nearest(given, ends)
    return f"did you mean '{word}'? " if word in ends else ""


def check_policy(policy: Policy, where: str) -> Policy:
    """Return a valid error policy; for anything else, raise a `DeclarationError` that lists the policies."""
    if callable(policy):
        check_arguments(policy, 2, f"{where}: the policy", "(record, exception)")
        return policy
    if policy is None or isinstance(policy, Park) or policy in POLICIES:
        return policy
    raise DeclarationError(
        f"{where}: {policy!r} is not an error policy",
        remedy=f"one of {', '.join(map(repr, POLICIES))}, hg.park(…), or a function (record, exception) that returns one of them",
    )


def check_partitions(partitions: Any, verb: str) -> None:
    """Refuse a number of partitions that no topic has. `verb`: with what stands before the argument."""
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise DeclarationError(f"{verb}partitions={partitions!r}): a stream has at least one partition")


def check_migrate(fn: Any, verb: str) -> Any:
    """Refuse anything but None or a plain function that makes new values of old ones."""
    if fn is not None:
        check_function(fn, f"{verb}(migrate=…)", number=2, signature="(names, value)")
    return fn


def check_serde(serde: Any, where: str) -> None:
    """Refuse anything that is not a serde, such as the function that makes one. One that asks a registry is refused where only the job
    itself reads."""
    if isinstance(serde, Serde):
        if serde.asks and not where.startswith(("input(", "to(")):
            closing = ")" * (where.count("(") - where.count(")"))
            raise DeclarationError(
                f"{where}={serde.name}{closing}: a serde that asks a schema registry reads inputs and writes outputs",
                remedy="give it to app.input(…, serde=…) and .to(…, serde=…); what the job keeps for itself takes others",
            )
        return
    name = getattr(serde, "__name__", "")
    call = f"hg.json({name})" if isinstance(serde, type) and not issubclass(serde, Serde) else f"{name}()"
    remedy = f"call it: {call}" if name else "for example hg.json(), hg.text(), hg.custom(loads, dumps, name=…)"
    closing = ")" * (where.count("(") - where.count(")"))
    raise DeclarationError(f"{where}={serde!r}{closing} is not a serde", remedy=remedy)


def check_output_key(step: Step, key: Any, topic: str) -> None:
    """Refuse output keys that are declared as booleans or tuples: only `key_serde=` can say how to write them."""
    kind = returned(key) if key is not None else _kind_of_rows(step)
    plain = get_origin(kind) or kind
    if plain in (bool, tuple):
        raise DeclarationError(
            f"to('{topic}'): the key is {plain.__name__}, and it is not known how an output topic holds that",
            remedy="say it with key_serde=: hg.json(), or hg.key() as headgate's own topics have it",
        )


def _kind_of_rows(step: Step) -> Any:
    """The type of the keys that this step passes on, if the declaration gives it."""
    while (kind := step.key_type) is AS_BEFORE:
        if len(step.parents) != 1:
            return None
        step = step.parents[0]
    return kind


def check_topic(topic: Any, verb: str) -> str:
    """Return a topic name that Kafka accepts; raise `DeclarationError` for any other value."""
    if not isinstance(topic, str) or not topic:
        argument = verb.removesuffix("…)")
        given = f"{argument}{topic!r})" if argument != verb else f"{verb}({topic!r})"
        remedy = f'{argument}"name-of-the-topic")' if argument != verb else f'{verb}("name-of-the-topic")'
        raise DeclarationError(f"{given} does not name a topic", remedy=remedy)
    return topic_name(topic, what=f"{verb}: topic")


def check_target(topic: Any, verb: str, topics: Topics, graph: Graph) -> str:
    """Return the name of a topic that user code may write records to while it runs; raise `DeclarationError` for any other value.

    Of streams, it knows those of this job, and those that it reads as another's.
    """
    check_topic(topic, verb)
    if why := ClosedTopics(topics, framed=framed_here(topics, graph)).closed(topic):
        raise DeclarationError(f"{verb}({topic!r}): {why}", remedy="write to another topic")
    return topic


def framed_here(topics: Topics, graph: Graph) -> dict[str, str]:
    """The streams of frames that a job writes or reads, each with a job that writes it."""
    read = {one.stream: one.producers for one in graph.inputs if one.producers}
    return {stream: next(iter(sorted(jobs))) for stream, jobs in read.items()} | dict.fromkeys(
        graph.framed, str(topics.job)
    )


def name_of(verb: str, selector: str | Callable[..., Any] | None, name: str | None) -> str:
    """The name of a step that needs one: the given name, or one made from the step's own arguments."""
    made = name
    if made is None and isinstance(selector, str):
        made = f"{verb}-{selector}"
    if made is None and selector is not None and not isinstance(selector, str):
        function = getattr(selector, "__name__", "<lambda>")
        made = None if function == "<lambda>" else f"{verb}-{function}"
    if made is None:
        raise DeclarationError(
            f"this {'repartition' if verb == 'by' else verb} has no name, which its stream and its state need",
            remedy='give it one: name="…" (a lambda has no name of its own)',
        )
    made = made.replace("_", "-")
    if len(made) > LONGEST_NAME:
        raise DeclarationError(
            f"'{made[:60]}…' cannot be the name of a step: it has {len(made)} characters, and {LONGEST_NAME} is the limit",
            remedy='give the step a shorter one: name="…"',
        )
    if not re.fullmatch(r"[A-Za-z0-9.-]+", made):
        raise DeclarationError(f"'{made}' cannot be the name of a step", remedy="use letters, digits, '.', '-' and '_'")
    return made


def table_name_of(name: Any) -> str:
    """Return the given name of a table; refuse one that is malformed or reserved."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise DeclarationError(
            f"{name!r} cannot be the name of a table", remedy="use letters, digits, '.', '-' and '_'"
        )
    if name.startswith(("__", "hg.")) or name.endswith(".timers"):
        raise DeclarationError(f"the table name '{name}' is reserved for headgate", remedy="take another")
    return name
