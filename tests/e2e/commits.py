"""A commit of an outbox that nobody drives: its three commands, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.agents.runtime.writing.buffer import LogWrite
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.core.names import StreamPartition


async def committed(outbox: Outbox, writes: Iterable[LogWrite] = ()) -> dict[StreamPartition, int]:
    """Divide, flush and commit; the position behind the last record of each target."""
    outbox.divide(writes)
    positions = await outbox.flush()
    if outbox._id is not None:  # what the plain one has flushed is there
        await outbox.commit()
    return positions
