"""Checks whether a graph can work: what is impossible is refused when the job is declared, in the user's own names.

These checks need no broker. They refuse duplicate and unknown names, cycles, joins of a stream with itself or of streams with different
keys, keyed state by a key that was changed without a shuffle, records of a broadcast stream that every task would send again, and updates
used as events (`updates`). What depends on partition counts is refused in `resolve`.

`validate` is cheap and may be called after each verb, so that the wrong line is the one that raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from ..errors import DeclarationError
from .graph import KEYED, SHARE, TIMER, Graph, Stage
from .updates import check_events

FUNCTION = "function "
"""How the text of a key begins that is made by a function."""
REKEYED = object()
"""The key of records that were rekeyed without a shuffle: records with equal keys may be in different tasks."""


def validate(graph: Graph) -> None:
    """Raise a `DeclarationError` for the first problem found."""
    _names(graph)
    _references(graph)
    _no_cycle(graph)
    _streams(graph)
    for stage in graph.stages:
        _flows(graph, stage)
        if stage.verb == "join":
            _join(graph, stage)
        if meets_by_key(graph, stage):
            _one_key(graph, stage)
            _one_serde(graph, stage)
        check_events(graph, stage)


def meets_by_key(graph: Graph, stage: Stage) -> bool:
    """Whether the stage is correct only if equal keys of all its inputs are in one task. A broadcast side is in every task anyway, and who
    keeps a copy of a table reads all partitions."""
    if stage.verb == "table" and graph.sources(stage.name) <= graph.copied:
        return False
    return (stage.verb in KEYED or stage.meets) and not (
        stage.verb == "join" and any(_physical(graph, read) <= graph.broadcast for read in stage.reads)
    )


def met(graph: Graph, stage: Stage) -> frozenset[str]:
    """The streams whose equal keys this stage needs in one task: none, one or several."""
    return graph.sources(stage.name) - graph.broadcast if meets_by_key(graph, stage) else frozenset()


def _names(graph: Graph) -> None:
    for what, remedy, names in (
        ("two inputs read '{}'", "declare the input once and use it twice", [one.stream for one in graph.inputs]),
        ("two stages are called '{}'", 'give one of them another name: name="…"', [one.name for one in graph.stages]),
        (
            "two stages write the intermediate stream '{}'",
            'give one of them another name: name="…"',
            [one.writes[0] for one in graph.stages if one.shuffles and one.writes],
        ),
    ):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise DeclarationError(what.format(twice[0]), remedy=remedy)
    if both := sorted(set(graph.input) & set(graph.stage)):
        raise DeclarationError(
            f"'{both[0]}' is the name of an input and of a stage", remedy="give the stage another name"
        )
    for stage in graph.stages:
        if not stage.name or not (stage.reads or stage.verb == TIMER):
            raise DeclarationError(
                f"stage '{stage.name}' ({stage.verb}) " + ("reads nothing" if stage.name else "has no name"),
                remedy="a stage has a name and reads at least one stream",
            )
        if stage.shuffles and len(stage.writes) != 1:
            raise DeclarationError(
                f"'{stage.name}' ({stage.verb}) writes {len(stage.writes)} streams",
                remedy="a shuffle writes exactly one",
            )
        if stage.width is not None and stage.width < 1:
            raise DeclarationError(
                f"'{stage.name}' is to have {stage.width} partitions", remedy="a stream needs at least one partition"
            )


def _references(graph: Graph) -> None:
    known = set(graph.input) | set(graph.stage)
    for stage in graph.stages:
        for read in stage.reads:
            if read not in known:
                raise DeclarationError(
                    f"'{stage.name}' ({stage.verb}) reads '{read}', which is neither an input nor a stage",
                    remedy=f"declare it: app.input({read!r}); known are {_listed(known)}",
                )


def _no_cycle(graph: Graph) -> None:
    """Refuse cycles through stages, and through topics that the job both writes and reads."""
    after: dict[str, list[str]] = {name: [] for name in (*graph.input, *graph.stage)}
    for stage in graph.stages:
        for read in stage.reads:
            after[read].append(stage.name)
        for topic in stage.writes:
            if topic in graph.input:
                after[stage.name].append(topic)
    done: set[str] = set()
    for start in after:
        stack = [(start, iter(after[start]))] if start not in done else []
        path: dict[str, None] = dict.fromkeys([start] if stack else [])
        while stack:
            name, rest = stack[-1]
            step = next(rest, None)
            if step is None:
                done.add(name)
                stack.pop()
                del path[name]
            elif step in path:
                walked = list(path)
                ring = [*walked[walked.index(step) :], step]
                raise DeclarationError(
                    f"the job has a cycle: {' → '.join(ring)}; no end of stream, drain or watermark could ever get through it",
                    remedy="write to a topic that the job does not read, and let another job read that",
                )
            elif step not in done:
                stack.append((step, iter(after[step])))
                path[step] = None


def _streams(graph: Graph) -> None:
    for stage in graph.stages:
        for topic in stage.writes:
            if topic in graph.writer and graph.writer[topic] is not stage:
                raise DeclarationError(
                    f"'{stage.name}' writes '{topic}', which is the job's own stream after '{graph.writer[topic].name}'",
                    remedy="write to another topic, or merge before the shuffle",
                )
    if both := sorted(set(graph.input) & set(graph.writer)):
        raise DeclarationError(
            f"the input '{both[0]}' is the job's own stream after '{graph.writer[both[0]].name}'",
            remedy=f"read from '{graph.writer[both[0]].name}' instead of the topic",
        )
    _shared(graph)
    for one in graph.inputs:
        if one.until == "producers" and not one.producers:
            raise DeclarationError(
                f"the input '{one.stream}' is to end with its producers, but names none",
                remedy='say which jobs write it: producers=["job"]',
            )
        if one.until == "producers" and one.start == "newest":
            raise DeclarationError(
                f"the input '{one.stream}' is to end with its producers, but starts at its newest record, after what they may have written",
                remedy="start='oldest', or a time",
            )


def _shared(graph: Graph) -> None:
    """A shared stream holds the frames of one step. Plain records, or control messages of another step, would corrupt it."""
    for stage in graph.stages:
        for topic in stage.writes:
            owner = graph.shared.get(topic)
            if owner is not None and owner is not stage:
                raise DeclarationError(
                    f"'{stage.name}' ({stage.verb}) writes '{topic}', which '{owner.name}' shares with other jobs",
                    remedy="merge the streams before share(…), or write to another topic",
                )
    if both := sorted(set(graph.input) & set(graph.shared)):
        raise DeclarationError(
            f"the job reads '{both[0]}', which it shares itself by '{graph.shared[both[0]].name}'",
            remedy="use the stream that share(…) was called on; another job may read the topic",
        )


def _flows(graph: Graph, stage: Stage) -> None:
    """Records must reach a stage that writes or closes; and not only from broadcast streams, or every task would emit the same."""
    if not (stage.shuffles or stage.verb in ("agg", "window", "batch", "to", SHARE)):
        return
    sources = graph.flow(stage.name)
    if not sources:
        raise DeclarationError(
            f"'{stage.name}' ({stage.verb}) reads only tables ({_listed(stage.reads)}), and a table has no output",
            remedy="read the stream that feeds the table, or join a stream with the table",
        )
    if sources <= graph.broadcast:
        raise DeclarationError(
            f"'{stage.name}' ({stage.verb}) reads only broadcast streams ({_listed(sources)}): every task would repeat the work",
            remedy="turn the broadcast stream into a table and join it, or read it without broadcast",
        )


def _join(graph: Graph, stage: Stage) -> None:
    if len(stage.reads) != 2:
        raise DeclarationError(
            f"the join '{stage.name}' has {len(stage.reads)} sides", remedy="join two at a time: a.join(b).join(c)"
        )
    left, right = (_physical(graph, read) for read in stage.reads)
    if len(left) > 1:  # what only tables took from a stream on the way is not among its records
        left &= graph.flow(stage.reads[0])
    same = sorted(left & right)
    if same and not _is_summed_up(graph, stage.reads[1], frozenset(same)):
        raise DeclarationError(
            f"the join '{stage.name}' joins '{same[0]}' with itself",
            remedy="a function with a table of the app reads what came before (docs/tables.md); or join the stream with a table of its "
            "aggregate, or send one side through repartition(…)",
        )
    if len(stage.on) not in (0, 2):
        raise DeclarationError(
            f"the join '{stage.name}' has {len(stage.on)} fields for its 2 sides", remedy="give one field for each side"
        )
    if not meets_by_key(graph, stage):
        return
    keys: list[str] = []
    for read, on in zip(stage.reads, stage.on or (None, None), strict=True):
        known = keys_of(graph, read)
        named = {key for key in known if isinstance(key, str)}
        if on is not None and any(key != on for key in known):
            said = f"is keyed by {_listed(named)}" if named else "is not known to be keyed by it"
            raise DeclarationError(
                f"the join '{stage.name}' is on '{on}', but '{read}' {said}",
                remedy=_keyed_by(on, table=stage.on[1] is None),
            )
        keys += sorted(named)
    if not any(stage.on) and len(keys) == 2 and keys[0] != keys[1]:
        raise DeclarationError(
            f"the join '{stage.name}' joins '{stage.reads[0]}', keyed by '{keys[0]}', with '{stage.reads[1]}', keyed by '{keys[1]}'",
            remedy=f'put .repartition("{keys[0]}") before the second, or declare the keys: on=("{keys[0]}", "{keys[1]}")'
            if stage.stateful
            else f'put .repartition("{keys[0]}") before the second, or declare the key with on=',
        )


def _one_key(graph: Graph, stage: Stage) -> None:
    """Keyed state needs equal keys in one task: merged streams must have the same key, and no key may be changed without a shuffle."""
    otherwise = ', or say order="any" if it does not matter which row of a key comes last' if stage.meets else ""
    for read in stage.reads:
        keys = keys_of(graph, read)
        if REKEYED in keys:
            keeps = "replaces rows" if stage.meets else "keeps state"
            raise DeclarationError(
                f"'{stage.name}' ({stage.verb}) {keeps} by a key that rekey changed without a shuffle",
                remedy="use .repartition(…) instead of .rekey(…); rekey alone is only for streams that go directly to an output"
                + otherwise,
            )
        if len(keys) > 1:
            raise DeclarationError(
                f"'{stage.name}' ({stage.verb}) reads a merge of streams with different keys: {_listed(map(_said, keys))}",
                remedy=f"repartition them by the same field before the merge{otherwise}",
            )


def _one_serde(graph: Graph, stage: Stage) -> None:
    """The bytes of a key decide its partition: streams that meet by key must encode equal keys to the same bytes."""
    serdes = {stream: _serde_of(graph, stream) for stream in sorted(met(graph, stage))}
    for one, other in pairwise(serdes):
        if _key_format(serdes[one]) == _key_format(serdes[other]):
            continue
        # an intermediate stream is ours: its key encoding can be changed to that of the other stream
        ours, others = (other, one) if other in graph.writer else (one, other)
        into = f"repartition '{graph.writer[ours].name}'" if ours in graph.writer else f".repartition(…) after '{ours}'"
        raise DeclarationError(
            f"'{stage.name}' ({stage.verb}) combines streams whose keys differ in their bytes: "
            f"'{one}' ({serdes[one]}) and '{other}' ({serdes[other]}); equal keys would not meet",
            remedy=f"give {into} the key_serde= of '{others}', or put .repartition(…) after '{others}'",
        )


def _serde_of(graph: Graph, stream: str) -> str:
    return graph.writer[stream].key_serde if stream in graph.writer else graph.input[stream].key_serde


def _key_format(serde: str) -> str:
    """The format of keys by their serde. `text` and `key` encode text alike, and no other key has the bytes of a text."""
    return "key" if serde == "text" else serde


def keys_of(graph: Graph, name: str) -> frozenset[object]:
    """By what the records of an input or stage are keyed: a field name, None for the record's original key, or `REKEYED`.

    Only a merge can yield more than one. A broadcast stream yields none.
    """
    return graph.derived(_all_keys)[name]


def _all_keys(graph: Graph) -> dict[str, frozenset[object]]:
    found: dict[str, frozenset[object]] = {
        one.stream: frozenset() if one.broadcast else frozenset({one.key}) for one in graph.inputs
    }
    for stage in graph.ordered:
        if stage.verb == "repartition":
            found[stage.name] = frozenset({stage.by})
        elif stage.verb == "rekey":
            found[stage.name] = frozenset({REKEYED})
        elif stage.shuffles:
            found[stage.name] = frozenset({None} if stage.verb == "gather" else ())
        else:
            reads = stage.reads[:1] if stage.verb == "join" else stage.reads
            found[stage.name] = frozenset(key for read in reads for key in found[read])
    return found


def _physical(graph: Graph, name: str) -> frozenset[str]:
    """The streams that feed one side of a join."""
    stage = graph.stage.get(name)
    return frozenset(stage.writes) if stage is not None and stage.shuffles else graph.sources(name)


def _keyed_by(on: str, *, table: bool) -> str:
    """How a stream is brought to the key of a join."""
    if on.startswith(FUNCTION):
        found = "put .repartition(fn) by that function before the join, which then needs no on="
    else:
        found = f'put .repartition("{on}") before the join, or say app.input(…, key="{on}") if the topic is partitioned by it'
    return f"{found}; or keep the whole table in every task: .table(…, broadcast=True)" if table else found


def _is_summed_up(graph: Graph, table: str, streams: frozenset[str]) -> bool:
    """Whether this is a table, and what comes to it from these streams is the result of an aggregate or a window: other records than
    theirs."""
    if table not in graph.stage or graph.stage[table].verb != "table":
        return False
    ahead, seen = list(graph.stage[table].reads), set[str]()
    while ahead:
        name = ahead.pop()
        if name in streams:
            return False
        one = graph.stage.get(name)
        if one is not None and name not in seen and one.verb not in ("agg", "window"):
            seen.add(name)
            ahead += one.reads
    return True


def _said(key: object) -> str:
    return key if isinstance(key, str) else "the record's own key"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(f"'{name}'" for name in names)) or "nothing"
