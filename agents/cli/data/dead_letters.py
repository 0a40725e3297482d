"""`headgate dead-letters list|show|replay|purge JOB`: records that could not be processed, with their origin and the error.

`replay` writes them to their input again, as they were, byte for byte: without headgate's own headers, and with their original time, which
is in the header `hg-time` if the topic no longer accepts it as a timestamp. The record of a dead letter that was too large for the
dead- letter topic is read from its own topic. The dead letters stay until `purge` deletes them. A dead letter of Spark contains a row that
was made from a record: that record is read from its topic and written again. If it no longer exists, if its topic was deleted and
re-created, or if the row was made from several records, the replay is refused. A topic that was adopted (`headgate topics adopt`) is the
one before. A dead letter from between two stages can only be replayed to a topic given with `--to`, because only the job writes between its
stages. What goes to a given topic is the content of the dead letter.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any

import click

from ....core.batching.ranges import TOPIC_ID, taken_for
from ....core.errors import HeadgateError, NotFound
from ....core.names import StreamPartition
from ....core.progress.frames import FROM_HEADER, said_of
from ....core.targets import ClosedTopics
from ...coordinator.job_states import framed_streams, states_of_all
from ...kafka.connect import CONNECT_S
from ...kafka.offsets import KafkaOffsets
from ...kafka.plainwrite import Plain, put
from ...kafka.port import KafkaPort
from ...kafka.scan import scan_topic, width_of
from ...kafka.topics import TopicsAdmin
from ...process.reading import following, must_exist, shown
from ...records.kafka.target_rules import Rules
from ...records.kafka.timestamps import EVENT_TIME, TIME_HEADER, accepted
from ...records.limits import LIMIT
from ...state.scan import guess, guess_key
from ...status.documents import time_of
from ..group import Group
from ..options import Target, about_job, confirmed, run_async, yes_option
from ..output import as_typed, output_option, show_fields, show_table, show_text, shown_as_json
from ..steer.seek import checkpoint_of

OWN = "hg-"
NUMBERS = ("hg-timestamp", "hg-partition", "hg-offset", "hg-row")
ROW_ITSELF = "--to TOPIC writes the row itself, as JSON"


@click.group(name="dead-letters", cls=Group)
def dead_letters() -> None:
    """Show and replay records that could not be processed."""


async def _read(to: Target) -> list[Any]:
    await must_exist(to.client, to.topics)
    return [record async for record in scan_topic(to.client, to.topics.dead_letters)]


def dead_letter_document(record: Any, *, whole: bool = False) -> dict[str, Any]:
    """One dead letter as plain values. A record that someone else wrote into the topic is shown as far as it can be read."""
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    unread = [name for name in NUMBERS if not _is_number(headers.get(name, "0"))]
    said = {name: int(headers[name]) for name in NUMBERS if name in headers and name not in unread}
    found: dict[str, Any] = {
        "offset": record.offset,
        "time": time_of(said.get("hg-timestamp", record.timestamp)),
        "topic": headers.get("hg-topic", ""),
        "partition": said.get("hg-partition", -1),
        "origin_offset": said.get("hg-offset", -1),
        "task": headers.get("hg-task", ""),
        "step": headers.get("hg-step", ""),
        "exception": headers.get("hg-exception", "")
        if "hg-exception" in headers and not unread
        else f"not a dead letter of this version: {', '.join(unread) or 'hg-exception'} cannot be read",
    }
    if whole:
        found |= {
            "key": None if record.key is None else guess_key(record.key),
            "value": None if record.value is None else guess(record.value),
            "row": said.get("hg-row"),
            "from": said_of(dict(record.headers).get(FROM_HEADER)),
            "headers": {name: value for name, value in headers.items() if not name.startswith(OWN)},
            "cut": headers.get("hg-cut", ""),
            "raw": {
                "key": _base64(record.key),
                "value": _base64(record.value),
                "headers": [[name, _base64(one)] for name, one in record.headers if not name.startswith(OWN)],
            },
            "traceback": headers.get("hg-traceback", ""),
        }
    return found


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 20


@dead_letters.command(name="list")
@click.argument("job")
@about_job
@output_option
def list_(to: Target, output: str) -> None:
    """List all dead letters: where each came from, and what went wrong."""
    found = [dead_letter_document(record) for record in run_async(_read(to))]
    if shown_as_json(output, {"job": str(to.job), "topic": to.topics.dead_letters, "letters": found}):
        return
    show_table(
        ["OFFSET", "TIME", "FROM", "STEP", "EXCEPTION"],
        (
            [
                o["offset"],
                o["time"],
                came_from(o["topic"], o["partition"], o["origin_offset"]),
                o["step"],
                o["exception"][:80],
            ]
            for o in found
        ),
        none=f"{shown(to.job)} has no dead letters.",
    )


def came_from(topic: str, partition: int, offset: int) -> str:
    """The record that a dead letter was, for people. No record stands for the result of a window, only its stream.

    >>> came_from("orders", 1, 7), came_from("sales-1-by-user", -1, -1)
    ('orders[1]@7', 'sales-1-by-user')
    """
    return topic if partition < 0 or offset < 0 else f"{topic}[{partition}]@{offset}"


@dead_letters.command()
@click.argument("job")
@click.argument("offset", type=click.IntRange(0))
@about_job
@output_option
def show(to: Target, offset: int, output: str) -> None:
    """Show one dead letter with its record and the traceback."""
    (record,) = chosen(run_async(_read(to)), (offset,), False)
    found = dead_letter_document(record, whole=True)
    if shown_as_json(output, {"job": str(to.job), **found}):
        return
    found["key"] = None if found["key"] is None else as_typed(found["key"])
    left_out = ["traceback", "raw", *(("row", "from") if found["row"] is None else ())]
    show_fields((name, value) for name, value in found.items() if name not in left_out)
    show_text(found["traceback"])


def chosen(letters: Iterable[Any], offsets: tuple[int, ...], everything: bool) -> list[Any]:
    """The chosen dead letters. Raises `NotFound` if one does not exist."""
    found = {record.offset: record for record in letters}
    if everything:
        return list(found.values())
    if not offsets:
        raise click.UsageError("give the offsets of dead letters, or --all")
    missing = [offset for offset in offsets if offset not in found]
    if missing:
        raise NotFound(
            f"there is no dead letter at offset {missing[0]}", remedy="`headgate dead-letters list` shows them"
        )
    return [found[offset] for offset in offsets]


@dead_letters.command()
@click.argument("job")
@click.argument("offsets", type=click.IntRange(0), nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Replay all dead letters.")
@click.option(
    "--to",
    "topic",
    default="",
    metavar="TOPIC",
    help="Write them to this topic.  [default: the input that each came from]",
)
@yes_option
@about_job
@output_option
def replay(to: Target, offsets: tuple[int, ...], everything: bool, topic: str, yes: bool, output: str) -> None:
    """Write the records of dead letters to their inputs again. The letters are kept; `purge` deletes them.

    For a row that failed in Spark, the record that the row was made from is written again, if it still exists."""
    letters = chosen(run_async(_read(to)), offsets, everything)
    framed = run_async(_framed(to))
    if topic:
        open_target(to, topic, framed)
    records = run_async(_again(to, letters, topic, framed))
    places = sorted({record.topic for record in records})
    for place in places:
        run_async(width_of(to.client, place))
    if records:
        confirmed(f"This writes {len(records)} record{'s' * (len(records) != 1)} to {', '.join(places)}.", yes)
    run_async(put(to.client, records))
    if not shown_as_json(
        output, {"job": str(to.job), "replayed": [record.offset for record in letters], "topics": places}
    ):
        click.echo(f"{len(records)} replayed")


async def _framed(to: Target) -> dict[str, str]:
    """The streams of frames of all jobs on the cluster, each with a job that writes it."""
    admin = TopicsAdmin(to.client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        states = await states_of_all(KafkaPort(to.client), admin.names, to.topics.prefix, within_s=CONNECT_S)
    finally:
        await admin.stop()
    return framed_streams(states)


def open_target(to: Target, topic: str, framed: Mapping[str, str]) -> None:
    """Raise if records may not be written to this topic: only jobs write frames, and each stream of a job only its steps."""
    if why := ClosedTopics(to.topics, framed=framed).closed(topic):
        raise HeadgateError(f"nothing is written to '{topic}': {why}", remedy="name another topic with --to TOPIC")


async def _again(to: Target, letters: Iterable[Any], topic: str, framed: Mapping[str, str]) -> list[Plain]:
    """The records to write. Raises if one dead letter cannot be replayed; nothing is written then."""
    found = [again(to, letter, topic, framed) for letter in letters]
    wanted = [(letter, one) for letter, one in zip(letters, found, strict=True) if not isinstance(one, Plain)]
    before = await _ids(to, {one[1] for _, one in wanted})
    whole = [one if isinstance(one, Plain) else await _original(to, *one) for one in found]
    after = await _ids(to, set(before))
    adopted = await _adopted(to, {StreamPartition(*one[1:3]) for _, one in wanted})
    for letter, (_, origin, *_) in wanted:  # it may have been made again while it was read
        must_be_same(letter, origin, before[origin], adopted)
        must_be_same(letter, origin, after[origin], adopted)
    records = [replace(one, topic=topic, partition=None) if topic else one for one in whole]
    admin = TopicsAdmin(to.client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        rules = {name: one.rules for name, one in (await admin.find({one.topic for one in records})).items()}
    finally:
        await admin.stop()
    now_ms = int(time.time() * 1000)
    return [timed(one, rules.get(one.topic), now_ms) for one in records]


def timed(record: Plain, rules: Rules | None, now_ms: int) -> Plain:
    """The record with a timestamp that its topic accepts, and its event time.

    >>> timed(Plain("t", None, b"", timestamp_ms=100_000), Rules(before_ms=10), 300_000)
    Plain(topic='t', key=None, value=b'', partition=None, timestamp_ms=299995, headers=[('hg-time', b'100000')])
    """
    stamp = record.timestamp_ms
    if rules is None or stamp is None:
        return record
    nearest = accepted(rules, now_ms).nearest(stamp)
    said = any(name == TIME_HEADER for name, _ in record.headers)
    if nearest == stamp:
        return record
    extra = [] if said else [(TIME_HEADER, str(stamp).encode())]
    return replace(record, timestamp_ms=nearest, headers=[*record.headers, *extra])


async def _ids(to: Target, topics: Collection[str]) -> dict[str, str]:
    """The ids of these topics as of now."""
    if not topics:
        return {}
    offsets = KafkaOffsets(to.client)
    await offsets.start(deadline_s=CONNECT_S)
    try:
        return {topic: await offsets.topic_id(topic) for topic in topics}
    finally:
        await offsets.stop()


async def _adopted(to: Target, places: Set[StreamPartition]) -> dict[str, str]:
    """What the tasks that read these partitions have adopted: by the id of a topic, that of the one which holds the same records."""
    if not places:
        return {}
    async with following(to.client, to.topics) as following_:
        state = await following_.to_end()
    tasks = {} if state.model is None else state.model.tasks
    found: dict[str, str] = {}
    for task in [name for name, owned in tasks.items() if not places.isdisjoint(owned)]:
        checkpoint = await checkpoint_of(to, state, task)
        found.update({} if checkpoint is None else checkpoint.adopted)
    return found


def must_be_same(letter: Any, topic: str, found: str, adopted: Mapping[str, str]) -> None:
    """Raise if the record of a dead letter was in a topic that is gone: what stands at its offset now is another record, unless that topic
    was adopted. An unknown id equals any."""
    known = (dict(letter.headers).get(TOPIC_ID) or b"").decode(errors="replace")
    if found not in ("", known) and taken_for(known, adopted) not in ("", found):
        raise HeadgateError(
            f"the dead letter at {letter.offset} does not hold its record, and '{topic}' was deleted and re-created since: its id "
            f"was {known}, and is {found} now",
            remedy=f"if it holds the same records at the same offsets, `headgate topics adopt JOB {topic}`; if not, write that record "
            f"again from its source; {ROW_ITSELF}",
        )


def again(to: Target, letter: Any, topic: str, framed: Mapping[str, str]) -> Plain | tuple[int, str, int, int]:
    """The original record; for a Spark row, the offset of the dead letter and the position of the record that the row was made from."""
    said = dead_letter_document(letter)
    if not topic and not said["topic"]:
        raise HeadgateError(
            f"the record at {letter.offset} does not say where it came from: {said['exception']}",
            remedy="name a topic with --to TOPIC",
        )
    if not topic and framed.get(said["topic"]) == str(to.job):
        raise HeadgateError(
            f"the dead letter at {letter.offset} came from '{said['topic']}', between two stages of the job",
            remedy="only the job writes there; replay it to an input with --to TOPIC",
        )
    if not topic:
        open_target(to, said["topic"], framed)
    headers = {name: value for name, value in letter.headers if name.startswith(OWN)}
    if not topic and "hg-result" in headers:
        raise HeadgateError(
            f"the dead letter at {letter.offset} holds a result of {said['task']}, which was made from several records or none",
            remedy=f"look at it with `headgate dead-letters show`; {ROW_ITSELF}",
        )
    if not topic and "hg-batch" in headers:
        if said["partition"] < 0 or said["origin_offset"] < 0 or "hg-offset-last" in headers:
            last = headers.get("hg-offset-last", b"").decode(errors="replace")
            where = (
                f"the records {said['origin_offset']} to {last} of {said['topic']}[{said['partition']}]"
                if last
                else "no single record"
            )
            raise HeadgateError(
                f"the dead letter at {letter.offset} holds a Spark row that was made from {where}, which cannot be written again",
                remedy=f"look at it with `headgate dead-letters show`; {ROW_ITSELF}",
            )
        return letter.offset, said["topic"], said["partition"], said["origin_offset"]
    if not topic and "hg-offset-last" in headers:
        raise HeadgateError(
            f"the dead letter at {letter.offset} holds a whole batch of records, which was not decompressed",
            remedy=f"raise {LIMIT}, and `headgate seek {to.job} {said['topic']}:{said['partition']} --to {said['origin_offset']}`",
        )
    if "hg-cut" in headers:
        return _cut(letter, said, headers, framed)
    at = headers.get("hg-timestamp", b"").decode(errors="replace")
    return Plain(
        topic or said["topic"],
        letter.key,
        letter.value,
        None if topic or said["partition"] < 0 else said["partition"],
        max(0, int(at)) if _is_number(at) else letter.timestamp,
        [
            *((name, value) for name, value in letter.headers if not name.startswith(OWN)),
            *((TIME_HEADER, value) for name, value in headers.items() if name == EVENT_TIME),
        ],
    )


def _cut(
    letter: Any, said: dict[str, Any], headers: dict[str, Any], framed: Mapping[str, str]
) -> tuple[int, str, int, int]:
    """The position of the record of a dead letter that holds only a part of it. Raises if the record does not stand alone in its topic."""
    if said["topic"] in framed or said["partition"] < 0 or said["origin_offset"] < 0:
        size = headers.get("hg-size", b"").decode(errors="replace")
        raise HeadgateError(
            f"the dead letter at {letter.offset} holds only the first {len(letter.value or b'')} of {size} bytes of its record",
            remedy="write the record again from its source, and raise max.message.bytes of the dead-letter topic",
        )
    return letter.offset, said["topic"], said["partition"], said["origin_offset"]


async def _original(to: Target, letter: int, topic: str, partition: int, offset: int) -> Plain:
    """The record that a Spark row was made from, or that a dead letter holds a part of, read from its topic."""
    await width_of(to.client, topic)
    async for record in scan_topic(to.client, topic, partition=partition, first=offset):
        if record.offset == offset:
            return Plain(topic, record.key, record.value, partition, record.timestamp, list(record.headers))
        break
    raise HeadgateError(
        f"the dead letter at {letter} does not hold its record, and {topic}[{partition}] offset {offset} no longer exists",
        remedy=f"write that record again from its source; {ROW_ITSELF}",
    )


@dead_letters.command()
@click.argument("job")
@click.option(
    "--before",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="Delete only dead letters before this offset.  [default: all]",
)
@yes_option
@about_job
@output_option
def purge(to: Target, before: int | None, yes: bool, output: str) -> None:
    """Delete dead letters permanently."""
    letters = [record for record in run_async(_read(to)) if before is None or record.offset < before]
    if letters:
        confirmed(f"This deletes {len(letters)} dead letter{'s' * (len(letters) != 1)} of {to.job}.", yes)
        run_async(_purge(to, letters[-1].offset + 1))
    if not shown_as_json(output, {"job": str(to.job), "purged": len(letters)}):
        click.echo(f"{len(letters)} deleted")


async def _purge(to: Target, before: int) -> None:
    admin = TopicsAdmin(to.client)
    await admin.start()
    try:
        done = await admin.trim({StreamPartition(to.topics.dead_letters, 0): before})
    finally:
        await admin.stop()
    for one in done.values():
        if isinstance(one, HeadgateError):
            raise one
