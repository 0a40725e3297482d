"""MetadataStore: one contract, two implementations."""

from __future__ import annotations

import pytest

from headgate.core.coordination import messages as c
from headgate.core.coordination.messages import Delete, Entry, Write, key_of
from headgate.core.coordination.metadata import MemoryStore, MetadataStore, StreamStore
from headgate.core.coordination.state import JobState
from headgate.core.errors import DataError


class Looped:
    """The stream store whose writes are read back at once, as `MetadataStore`."""

    def __init__(self) -> None:
        self.state = JobState()
        self.store = StreamStore(self.state, self.written)

    def written(self, write: Write) -> None:
        key = write.key if isinstance(write, Delete) else key_of(write)
        self.state.apply(Entry(self.state.position, key, None if isinstance(write, Delete) else write))


@pytest.mark.parametrize("make", [MemoryStore, lambda: Looped().store], ids=["memory", "stream"])
def test_the_contract(make):
    """What was put is found until it is removed; a snapshot stays as it was; namespaces do not see each other."""
    store: MetadataStore = make()
    wish = c.SetRequest("u1", "drain")
    assert store.get("set-request", "u1") is None
    store.put("set-request", "u1", wish)
    assert store.get("set-request", "u1") == wish
    before = store.all("set-request")
    assert store.get("set-answer", "u1") is None
    store.remove("set-request", "u1")
    store.remove("set-request", "never")
    assert store.get("set-request", "u1") is None
    assert dict(before) == {"u1": wish}
    assert dict(store.all("set-request")) == {}


def test_keys_of_several_parts_are_spelled_with_a_slash():
    looped = Looped()
    said = c.SetTaskState("Partition 3", 2, "running")
    looped.store.put("set-task-state", "Partition 3/2", said)
    assert looped.store.get("set-task-state", "Partition 3/2") == said
    looped.store.remove("set-task-state", "Partition 3/2")
    assert looped.state == JobState()


def test_the_stream_refuses_what_its_law_forbids():
    """A message under a foreign key, an unknown namespace, and the removal of what stands for ever."""
    store = Looped().store
    with pytest.raises(DataError, match="cannot hold"):
        store.put("set-request", "u2", c.SetRequest("u1", "drain"))
    with pytest.raises(DataError, match="no namespace"):
        store.get("set-colour", "x")
    with pytest.raises(DataError, match="for ever"):
        store.remove("set-grant", "Partition 0")


def test_removing_one_leaves_the_others():
    looped = Looped()
    for uuid in ("u1", "u2"):
        looped.store.put("set-request", uuid, c.SetRequest(uuid, "drain"))
    looped.store.remove("set-request", "u1")
    assert list(looped.store.all("set-request")) == ["u2"]
