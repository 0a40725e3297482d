"""The life of a request: it has a uuid, and gets exactly one final answer.

    (written) → accepted | running → done | refused | failed

Promises:

- No answer follows a final one, not even from a later leader: every leader checks first (`may_follow`).
- A request that no leader has read before its `not_after` is refused as expired. One that was accepted in time is carried out to its end.
- Verb and arguments are checked here, so a refusal names what is wrong in the user's terms (`problem`).
- A request that would put a secret into the stream is refused before it is written (`refuse_secrets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..errors import DataError, SettingError
from ..orders import HERE, LEAVE_OUT, RELEASE, SKIP, Goal, skips
from ..settings import SECRET_REMEDY, secret_problem
from .messages import MAX_COUNT, MAX_SETTING, AnswerState, SetAnswer, SetRequest
from .state import FINAL
from .wire import encode

START, STOP, PAUSE, RESUME, DRAIN = "start", "stop", "pause", "resume", "drain"
SEEK, MOVE, SET_CONFIG, UNSET_CONFIG, WITHDRAW = "seek", "move", "set-config", "unset-config", "withdraw"
RELEASE_PARKED, SKIP_PARKED, GROW = "release-parked", "skip-parked", "grow"
UNPARKING = {RELEASE_PARKED: RELEASE, SKIP_PARKED: LEAVE_OUT}
"""By verb, what tasks do with their parked records."""
VERBS = (
    START, STOP, PAUSE, RESUME, DRAIN, SEEK, MOVE, SET_CONFIG, UNSET_CONFIG, WITHDRAW, RELEASE_PARKED, SKIP_PARKED,
    GROW,
)  # fmt: skip

UNKNOWN = "unknown request"
"""So begins the refusal of a verb that the leader does not have."""
MAX_BYTES = 65_536
"""The largest request, in bytes: the messages that its effects need must fit, too."""
MAX_RUN_ID = 200
MAX_PICKS = 100
"""How many keys of one task a request about parked records may name: a task remembers the last requests that it has carried out."""

DEFAULT_MODE = "default"
DRAIN_MODES = (DEFAULT_MODE,)
"""How a job is drained: `default` reads no further, and finishes what was read. A drain without a mode has this one."""

_ARGUMENTS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    START: (frozenset(), frozenset()),
    STOP: (frozenset(), frozenset({"worker", "for_good"})),
    PAUSE: (frozenset(), frozenset({"stream"})),
    RESUME: (frozenset(), frozenset({"stream"})),
    DRAIN: (frozenset(), frozenset({"mode", "upto"})),
    SEEK: (frozenset({"stream", "to"}), frozenset({"partition", "positions", "reopens"})),
    WITHDRAW: (frozenset({"request"}), frozenset()),
    MOVE: (frozenset({"task", "to"}), frozenset()),
    GROW: (frozenset(), frozenset()),
    SET_CONFIG: (frozenset({"setting", "value"}), frozenset()),
    UNSET_CONFIG: (frozenset({"setting"}), frozenset()),
    RELEASE_PARKED: (frozenset({"tasks"}), frozenset()),
    SKIP_PARKED: (frozenset({"tasks"}), frozenset()),
}
"""Verb → its required arguments, and its optional ones."""


def may_follow(before: SetAnswer | None, after: SetAnswer) -> bool:
    """Whether the second answer may be written after the first.

    >>> may_follow(SetAnswer("u", "done"), SetAnswer("u", "failed"))
    False
    """
    if before is None:
        return True
    if before.state in FINAL:
        return False
    return before != after and not (before.state == AnswerState.RUNNING and after.state == AnswerState.ACCEPTED)


def expired(request: SetRequest, before: SetAnswer | None, wall: int) -> bool:
    """Whether the request expired before it was accepted."""
    return before is None and request.not_after is not None and wall > request.not_after


def seek_target(to: Any) -> Goal | None:
    """The target of a seek: `oldest`, `newest`, `here`, an offset, `("time", ms)`, `("skip", offset)` or `("skip", offset, row)`; None for
    anything else.

    >>> seek_target(["time", 5]), seek_target(["skip", 7, 3]), seek_target(-1)
    (('time', 5), ('skip', 7, 3), None)
    """
    if skips(to):
        numbers = cast("list[Any]", to)[1:]
        fine = len(numbers) in (1, 2) and all(_is_count(one) and one < MAX_COUNT for one in numbers)
        return cast("Any", (SKIP, *numbers)) if fine else None
    if to in ("oldest", "newest", HERE):
        return cast("str", to)
    if isinstance(to, int) and not isinstance(to, bool):
        return to if 0 <= to < MAX_COUNT else None
    if isinstance(to, list | tuple):
        pair = tuple(cast("tuple[Any, ...]", to))
        if len(pair) == 2 and pair[0] == "time" and isinstance(pair[1], int) and not isinstance(pair[1], bool):
            return ("time", pair[1]) if abs(pair[1]) < MAX_COUNT else None
    return None


def drain_ends(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The offsets up to which a drain still reads the streams of other jobs (`upto`), as a run stores them.

    >>> drain_ends({"upto": {"clean": [7, 9]}}), drain_ends({})
    ({'clean': (7, 9)}, {})
    """
    return {stream: tuple(ends) for stream, ends in arguments.get("upto", {}).items()}


def grown_line(one: Mapping[str, Any]) -> str:
    """What the answer to `grow` says of an input.

    >>> grown_line({"input": "orders", "was": 2, "now": 4, "read": True, "then": "each of 2 tasks reads one more"})
    'orders: 2 → 4 partitions; each of 2 tasks reads one more'
    """
    return f"{one['input']}: {one['was']} → {one['now']} partitions; {one['then']}"


def _are_ends(upto: Any) -> bool:
    if not isinstance(upto, Mapping):
        return False
    for stream, ends in cast("Mapping[Any, Any]", upto).items():
        if not isinstance(stream, str) or not isinstance(ends, list | tuple):
            return False
        if not all(_is_count(end) for end in cast("list[Any]", ends)):
            return False
    return True


def parked_picks(tasks: Any) -> dict[str, list[tuple[int | None, int | None]]] | None:
    """By task, which of its parked records a request is about: for each key the number of one of its records (None: every key), and the
    greatest number that may be left out (None: any). None for anything else.

    >>> parked_picks({"Partition 0": [[7, 9]]}), parked_picks({"Partition 0": [[None, None]]}), parked_picks({"Partition 0": []})
    ({'Partition 0': [(7, 9)]}, {'Partition 0': [(None, None)]}, None)
    """
    if not isinstance(tasks, Mapping) or not tasks:
        return None
    found: dict[str, list[tuple[int | None, int | None]]] = {}
    for task, picks in cast("Mapping[Any, Any]", tasks).items():
        if not isinstance(task, str) or not isinstance(picks, list | tuple):
            return None
        if not 0 < len(cast("list[Any]", picks)) <= MAX_PICKS:
            return None
        for pick in cast("list[Any]", picks):
            if not isinstance(pick, list | tuple) or len(cast("list[Any]", pick)) != 2:
                return None
            number, upto = cast("list[Any]", pick)
            if not all(one is None or _is_count(one) for one in (number, upto)):
                return None
            found.setdefault(task, []).append((number, upto))
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT


def _too_large(request: SetRequest) -> str:
    if len(request.run_id) > MAX_RUN_ID:  # a run of an earlier version may have one with spaces
        return f"a run id has at most {MAX_RUN_ID} characters; this one has {len(request.run_id)}"
    try:
        size = sum(map(len, encode(request)))
    except DataError as error:
        return error.what
    return f"a request has at most {MAX_BYTES} bytes; this one has {size}" if size > MAX_BYTES else ""


def refuse_secrets(request: SetRequest) -> None:
    """Raise `SettingError` for a request that sets a setting to a secret: whoever writes it must not, because all that is written stays
    readable in the stream, also if the leader refuses it.

    >>> refuse_secrets(SetRequest("u", "set-config", arguments={"setting": "commit.interval", "value": "1s"}))
    """
    given = request.arguments
    if request.verb == SET_CONFIG and (why := secret_problem(str(given.get("setting", "")), given.get("value"))):
        raise SettingError(why, remedy=SECRET_REMEDY)


def problem(request: SetRequest) -> str:
    """What is wrong with the verb and arguments of a request; empty if nothing is.

    >>> problem(SetRequest("u", "move", arguments={"task": "Partition 3"}))
    "move needs 'to'"
    """
    if request.verb not in VERBS:
        return f"{UNKNOWN} '{request.verb:.80}'; one of {', '.join(VERBS)}"
    if why := _too_large(request):
        return why
    needed, allowed = _ARGUMENTS[request.verb]
    given = set(request.arguments)
    if missing := sorted(needed - given):
        return f"{request.verb} needs '{missing[0]}'"
    if unknown := sorted(given - needed - allowed):
        return f"{request.verb} has no argument '{unknown[0]}'"
    for name in ("stream", "task", "worker", "setting", "request"):
        if name in given and not isinstance(request.arguments[name], str):
            return f"'{name}' of {request.verb} must be a name"
    if (mode := request.arguments.get("mode", DEFAULT_MODE)) not in DRAIN_MODES:
        return f"unknown drain mode {mode!r:.80}; one of {', '.join(DRAIN_MODES)}"
    if not _are_ends(request.arguments.get("upto", {})):
        return "'upto' of drain must hold the offsets of each stream"
    if request.verb == MOVE and not isinstance(request.arguments["to"], str):
        return "'to' of move must be the name of a processor"
    if request.verb == SEEK:
        partition = request.arguments.get("partition")
        if partition is not None and not _is_count(partition):
            return "'partition' of seek must be a number"
        if seek_target(request.arguments["to"]) is None:
            return "'to' of seek must be oldest, newest, an offset, a time or the record to skip"
        if skips(request.arguments["to"]) and partition is None:
            return "seek needs a 'partition' to skip one record"
        shown = request.arguments.get("positions", {})
        seen = cast("Mapping[Any, Any]", shown).values() if isinstance(shown, Mapping) else (shown,)
        if not isinstance(shown, Mapping) or not all(one is None or _is_count(one) for one in seen):
            return "'positions' of seek must hold the offset of each partition, or null where there is none yet"
        if not isinstance(request.arguments.get("reopens", False), bool):
            return "'reopens' of seek must be true or false"
    if request.verb in UNPARKING and parked_picks(request.arguments["tasks"]) is None:
        return f"'tasks' of {request.verb} must hold, for each task, 1 to {MAX_PICKS} pairs of numbers of its parked records"
    if request.verb == SET_CONFIG:
        value = request.arguments["value"]
        if not isinstance(value, str | int | float) or (isinstance(value, str) and len(value) > MAX_SETTING):
            return (
                f"'value' of set-config must be true, false, a number, or a string of at most {MAX_SETTING} characters"
            )
    return ""


def run_id_problem(run_id: str) -> str:
    """Why a run cannot have this id; empty if it can, or if none is given.

    >>> run_id_problem("2026-01-31/a"), run_id_problem("a b")
    ('', "the run id 'a b' contains a space or a control character, and would have to be quoted in commands")
    """
    if len(run_id) > MAX_RUN_ID:
        return f"a run id has at most {MAX_RUN_ID} characters; this one has {len(run_id)}"
    if not run_id.isprintable() or any(character.isspace() for character in run_id):
        return f"the run id {run_id!r} contains a space or a control character, and would have to be quoted in commands"
    return ""
