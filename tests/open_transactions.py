"""Who keeps a transaction open: a partition's producers, and what the transaction coordinator knows of them.

DescribeProducers and ListTransactions of Kafka's protocol, which the client libraries here lack. For the messages of failing tests: an
open transaction that the coordinator does not know hangs in the broker, and will never end; another one ends with its timeout.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")
DESCRIBE_PRODUCERS, LIST_TRANSACTIONS = 61, 66


class Answer:
    """Reads an answer of the flexible versions of the protocol."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, form: str) -> int:
        """The next number of a fixed width."""
        (found,) = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(">" + form)
        return int(found)

    def size(self) -> int:
        """The next varint; of what may be absent, one more than its size."""
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def text(self) -> str:
        """The next text, empty if there is none."""
        size = max(0, self.size() - 1)
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def end(self) -> None:
        """Tagged fields, which are at the end of each structure."""
        for _ in range(self.size()):
            self.size()
            self._at += self.size()

    def each(self, one: Callable[[], T]) -> Iterator[T]:
        """A list of structures."""
        for _ in range(self.size() - 1):
            yield one()
            self.end()


@dataclass(frozen=True)
class Held:
    """A producer whose transaction is open in a partition."""

    producer: int
    epoch: int
    first: int
    """The offset of its first record."""
    wrote_ms: int


def _asked(bootstrap: str, api: int, body: bytes) -> Answer:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as link, link.makefile("rb") as answers:
        request = struct.pack(">hhih", api, 0, 1, -1) + b"\0" + body
        link.sendall(struct.pack(">i", len(request)) + request)
        answer = Answer(answers.read(struct.unpack(">i", answers.read(4))[0]))
    answer.number("i")
    answer.end()
    answer.number("i")
    return answer


def held(bootstrap: str, topic: str, partition: int) -> list[Held]:
    """The producers whose transactions are open in a partition."""
    name = topic.encode()
    asked = bytes([2, len(name) + 1]) + name + bytes([2]) + struct.pack(">i", partition) + b"\0\0"
    answer, found = _asked(bootstrap, DESCRIBE_PRODUCERS, asked), list[Held]()

    def producer() -> None:
        number, epoch, _, wrote_ms, _, first = (answer.number(form) for form in "qiiqiq")
        if first >= 0:
            found.append(Held(number, epoch, first, wrote_ms))

    def of_partition() -> None:
        answer.number("i")
        answer.number("h")
        answer.text()
        list(answer.each(producer))

    def of_topic() -> None:
        answer.text()
        list(answer.each(of_partition))

    list(answer.each(of_topic))
    return found


def transactions(bootstrap: str) -> dict[int, str]:
    """The transactional id and its state, by the number of its producer."""
    answer = _asked(bootstrap, LIST_TRANSACTIONS, bytes([1, 1, 0]))
    answer.number("h")
    for _ in range(answer.size() - 1):
        answer.text()

    def one() -> tuple[int, str]:
        name, producer, state = answer.text(), answer.number("q"), answer.text()
        return producer, f"{name}: {state}"

    return dict(answer.each(one))


def explained(bootstrap: str, topic: str, partition: int) -> str:
    """Who keeps the end of a partition from readers."""
    known = transactions(bootstrap)
    return "; ".join(
        f"producer {one.producer} epoch {one.epoch} since offset {one.first}, last record at "
        f"{datetime.fromtimestamp(one.wrote_ms / 1000, UTC):%H:%M:%S}, {known.get(one.producer, 'unknown to the coordinator')}"
        for one in held(bootstrap, topic, partition)
    )
