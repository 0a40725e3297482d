"""Which section of the documentation explains an error: the line `More:` below `Error:` and `To do:`.

Decides by the message first, then by the class of the error. `docs/troubleshooting.md` has the same tables, for readers of the page;
a test compares them. Imported only when a command fails.
"""

from __future__ import annotations

import re

from ...core.errors import HeadgateError

GAP = "…"
"""Stands for a name, a number or a reason."""
LEAST = 12
"""A message with fewer letters besides its gaps could be part of any other, so that the class decides."""
MESSAGES: dict[str, str] = {
    "the copy of table … has stopped": "docs/troubleshooting.md#a-copy-of-a-table-has-stopped",
    "run … can go no further: …": "docs/troubleshooting.md#a-task-has-failed",
    "… raised …": "docs/troubleshooting.md#a-task-has-failed",
    "not …: … in …": "docs/troubleshooting.md#a-task-has-failed",
    "given up after … attempts: seek, or start with different code": "docs/troubleshooting.md#a-task-has-failed",
    "is null": "docs/troubleshooting.md#a-task-has-failed",
    "is missing": "docs/troubleshooting.md#a-task-has-failed",
    "to leave out this record alone: headgate seek": "docs/troubleshooting.md#a-record-between-two-stages",
    "not a frame: …": "docs/troubleshooting.md#a-record-between-two-stages",
    "… workers have ended in the middle of it": "docs/troubleshooting.md#a-worker-dies-again-and-again",
    "a letter was under way when its process ended": "docs/troubleshooting.md#a-worker-dies-again-and-again",
    "are gone; the log starts at …": "docs/troubleshooting.md#records-are-gone-before-they-were-read",
    "is above the log's end": "docs/troubleshooting.md#records-are-gone-before-they-were-read",
    "an open transaction blocks it": "docs/troubleshooting.md#a-topic-cannot-be-read-to-its-end",
    "the topic was deleted and re-created": "docs/troubleshooting.md#a-topic-was-re-created",
    "… cannot be written: …": "docs/troubleshooting.md#an-output-cannot-be-written",
    "the broker refused it with error": "docs/troubleshooting.md#an-output-cannot-be-written",
    "… bytes, but the topic accepts only …": "docs/troubleshooting.md#something-is-too-large",
    "… bytes, but the task log accepts only …": "docs/troubleshooting.md#something-is-too-large",
    "and gather.max-bytes is …": "docs/troubleshooting.md#something-is-too-large",
    "accepts no write": "docs/troubleshooting.md#the-disk-is-full",
    "has accepted more than its disk has written": "docs/troubleshooting.md#the-disk-is-full",
    "the changes of a commit wait for the disk": "docs/troubleshooting.md#the-disk-is-full",
    "the store in … cannot be used: …": "docs/troubleshooting.md#a-store-is-damaged",
    "local store is rebuilt": "docs/troubleshooting.md#a-store-is-damaged",
    "the task log is damaged or is not headgate's": "docs/troubleshooting.md#a-task-log-is-damaged",
    "its log holds checkpoints of job uuid": "docs/troubleshooting.md#a-task-log-is-damaged",
    "no broker … for … s": "docs/troubleshooting.md#no-broker-answers",
    "the broker does not answer": "docs/troubleshooting.md#no-broker-answers",
    "no permission to see the topic": "docs/troubleshooting.md#a-permission-is-missing",
    "a store that is not in PEM": "docs/security.md#a-file-of-a-java-client",
    "positions are not published to the group": "docs/troubleshooting.md#a-permission-is-missing",
    "grant WRITE on the transactional ids": "docs/troubleshooting.md#a-permission-is-missing",
    "the topic … cannot be created: …": "docs/troubleshooting.md#a-permission-is-missing",
    "topics are not as this job needs them": "docs/troubleshooting.md#a-topic-is-missing-or-different",
    "the input topic…not exist": "docs/troubleshooting.md#a-topic-is-missing-or-different",
    "the output topic…not exist": "docs/troubleshooting.md#a-topic-is-missing-or-different",
    "this worker's incarnation is fenced": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "another process is '…'": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "the outcome of a commit is unknown": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "waiting for a run to begin": "docs/troubleshooting.md#a-worker-is-not-ready",
    "this code differs from what run … runs": "docs/troubleshooting.md#a-worker-is-refused",
    "is not closed, and this code differs from what it runs": "docs/troubleshooting.md#a-worker-is-refused",
    "what is fixed for the life of a job differs from run": "docs/troubleshooting.md#a-worker-is-refused",
    "does not fit what is stored in it": "docs/troubleshooting.md#a-worker-is-refused",
    "run … is live; '…' may begin when it is closed": "docs/troubleshooting.md#a-worker-is-refused",
    "this code cannot go on with run …: …": "docs/troubleshooting.md#a-worker-is-refused",
    "it could not stop within stop.timeout": "docs/operations.md#stopping",
    "these did not stop and were abandoned": "docs/operations.md#stopping",
    "another process has become '…'": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "the main loop is blocked": "docs/troubleshooting.md#the-main-loop-is-blocked",
    "a letter takes long": "docs/troubleshooting.md#the-main-loop-is-blocked",
    "a letter waits for an answer": "docs/registry.md#what-happens-when-something-is-missing",
    "this machine's clock differs from the broker's": "docs/troubleshooting.md#clocks-differ",
    "Spark does not start": "docs/troubleshooting.md#spark-does-not-start",
    "Spark is unavailable, and batches wait for it": "docs/troubleshooting.md#spark-does-not-start",
    "a batch failed in Spark": "docs/troubleshooting.md#a-batch-fails-at-spark",
    "Spark took longer for its … rows than spark.batch-timeout": "docs/troubleshooting.md#a-batch-fails-at-spark",
    "cannot be published to": "docs/troubleshooting.md#files-are-not-published",
    "of '…' was refused: …": "docs/troubleshooting.md#a-command-is-refused",
    "is not done after … s": "docs/troubleshooting.md#a-command-is-refused",
}
CLASSES: dict[str, str] = {
    "DeclarationError": "docs/troubleshooting.md#a-declaration-is-refused",
    "SchemaRefused": "docs/troubleshooting.md#a-declaration-is-refused",
    "SettingError": "docs/reference/settings.md",
    "WorkerEnds": "docs/troubleshooting.md#a-worker-is-refused",
    "Mistyped": "docs/reference/cli.md",
    "NotFound": "docs/troubleshooting.md#a-command-is-refused",
    "NoSuchTable": "docs/troubleshooting.md#a-command-is-refused",
    "Elsewhere": "docs/troubleshooting.md#a-command-is-refused",
    "Refused": "docs/troubleshooting.md#a-command-is-refused",
    "AnsweredFailed": "docs/troubleshooting.md#a-command-is-refused",
    "DeadlinePassed": "docs/troubleshooting.md#a-command-is-refused",
    "UserCodeError": "docs/troubleshooting.md#a-task-has-failed",
    "Uncaught": "docs/troubleshooting.md#a-task-has-failed",
    "ChooserError": "docs/troubleshooting.md#a-task-has-failed",
    "DataError": "docs/troubleshooting.md#a-task-has-failed",
    "KeysApart": "docs/operations.md#keys-that-do-not-match",
    "FrameError": "docs/troubleshooting.md#a-record-between-two-stages",
    "CheckpointError": "docs/troubleshooting.md#a-task-log-is-damaged",
    "RowRefused": "docs/troubleshooting.md#something-is-too-large",
    "TooLarge": "docs/troubleshooting.md#something-is-too-large",
    "OversizedData": "docs/troubleshooting.md#something-is-too-large",
    "LimitReached": "docs/troubleshooting.md#something-is-too-large",
    "NotTaken": "docs/troubleshooting.md#an-output-cannot-be-written",
    "TookItsWorker": "docs/troubleshooting.md#a-worker-dies-again-and-again",
    "EnvironmentFault": "docs/troubleshooting.md#by-message",
    "BrokerAway": "docs/troubleshooting.md#by-message",
    "TopicsDiffer": "docs/troubleshooting.md#a-topic-is-missing-or-different",
    "UnknownTarget": "docs/troubleshooting.md#a-topic-is-missing-or-different",
    "LostPosition": "docs/troubleshooting.md#records-are-gone-before-they-were-read",
    "OutOfRange": "docs/troubleshooting.md#records-are-gone-before-they-were-read",
    "DamagedBatch": "docs/troubleshooting.md#a-task-has-failed",
    "NotWhole": "docs/troubleshooting.md#a-task-has-failed",
    "OutboxError": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "Fenced": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "OutcomeUnknown": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "ProducerBroken": "docs/troubleshooting.md#a-worker-is-fenced-again-and-again",
    "TargetFailed": "docs/troubleshooting.md#an-output-cannot-be-written",
    "RecordRefused": "docs/troubleshooting.md#an-output-cannot-be-written",
    "NotSent": "docs/troubleshooting.md#an-output-cannot-be-written",
    "StoreUnusable": "docs/troubleshooting.md#a-store-is-damaged",
    "StoreUnreadable": "docs/troubleshooting.md#a-store-is-damaged",
    "StoreHeld": "docs/troubleshooting.md#a-store-is-damaged",
    "WriteRefused": "docs/troubleshooting.md#the-disk-is-full",
    "StoreBusy": "docs/troubleshooting.md#the-disk-is-full",
    "SparkDown": "docs/troubleshooting.md#spark-does-not-start",
    "SparkAway": "docs/troubleshooting.md#spark-does-not-start",
    "SparkError": "docs/troubleshooting.md#a-batch-fails-at-spark",
    "TookTooLong": "docs/troubleshooting.md#a-batch-fails-at-spark",
    "RangeError": "docs/troubleshooting.md#records-are-gone-before-they-were-read",
    "RangeGone": "docs/troubleshooting.md#records-are-gone-before-they-were-read",
    "SparkRangeGone": "docs/troubleshooting.md#records-are-gone-before-they-were-read",
    "TargetDown": "docs/sinks.md#when-the-database-says-no",
    "SinkMisused": "docs/sinks.md#sinks-of-your-own",
    "TargetRefuses": "docs/sinks.md#when-the-database-says-no",
    "RowError": "docs/sinks.md#when-the-database-says-no",
    "FencedSink": "docs/sinks.md#when-the-database-says-no",
    "FilesDown": "docs/troubleshooting.md#files-are-not-published",
    "NotWritten": "docs/troubleshooting.md#files-are-not-published",
    "Unpublished": "docs/troubleshooting.md#files-are-not-published",
    "NotYet": "docs/registry.md#what-happens-when-something-is-missing",
    "ServiceAway": "docs/async.md#when-the-service-is-away",
    "WrongAnswer": "docs/async.md#asking-a-service-with-a-cache-and-a-rate",
    "NoSchema": "docs/registry.md#what-happens-when-something-is-missing",
    "NoGuids": "docs/registry.md#schemas-in-headers",
    "PortLost": "docs/kafka.md",
    "DriverError": "docs/testing.md",
}


def section_of(error: HeadgateError) -> str:
    """The page and the section. Empty where the message names a page itself, or where no section is about its class.

    >>> section_of(HeadgateError("drain of 'sales' was refused: no run is live"))
    'docs/troubleshooting.md#a-command-is-refused'
    """
    text = f"{error.what} {error.remedy}"
    if "docs/" in text:
        return ""
    said = [
        message for message in MESSAGES if len(message.replace(GAP, "")) >= LEAST and _pattern(message).search(text)
    ]
    if said:
        return MESSAGES[max(said, key=len)]
    return next((CLASSES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in CLASSES), "")


def section_of_failure(reason: str) -> str:
    """The page and the section for the reason of a failed task, which is a text.

    >>> section_of_failure("the store in /data accepts no write: IO error: No space left on device")
    'docs/troubleshooting.md#the-disk-is-full'
    """
    return section_of(HeadgateError(reason)) or "docs/troubleshooting.md#a-task-has-failed"


def as_command(place: str) -> str:
    """What is typed to read it.

    >>> as_command("docs/troubleshooting.md#the-disk-is-full")
    'headgate docs troubleshooting#the-disk-is-full'
    """
    return f"headgate docs {place.removeprefix('docs/').replace('.md', '', 1)}"


def _pattern(message: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in message.split(GAP)), re.DOTALL)
