"""Lists the private names of aiokafka that headgate uses, and checks that they are as expected.

It decides whether private.py (reading, clients), connection.py and record_batch.py (writing) may take their fast paths. If a check
fails, all of them use public calls only: slower, with the same result. A contract test fails when aiokafka changes.
"""

from __future__ import annotations

import inspect
import linecache
from types import CodeType
from typing import Any

import aiokafka.admin.client as admin_module
import aiokafka.client as client_module
import aiokafka.cluster as cluster_module
import aiokafka.conn as conn_module
import aiokafka.consumer.fetcher as fetcher_module
import aiokafka.protocol.fetch as fetch_module
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator, MessageBatch
from aiokafka.producer.sender import BaseHandler, EndTxnHandler
from aiokafka.producer.transaction_manager import TransactionManager

UPDATE = cluster_module.ClusterMetadata.update_metadata
_PROTOCOL, _CONNECTION = conn_module.AIOKafkaProtocol, conn_module.AIOKafkaConnection
"""aiokafka's own, before others are put in their place."""


def shortcomings() -> list[str]:
    """What differs in aiokafka from what headgate's fast paths need; empty if they can be used."""
    missing: list[str] = []

    def need(owner: Any, name: str, *words: str) -> None:
        found = getattr(owner, name, None)
        if found is None:
            missing.append(f"{getattr(owner, '__name__', owner)}.{name} is gone")
            return
        if words:
            source = _source(found)
            missing.extend(f"{owner.__name__}.{name} no longer says `{word}`" for word in words if word not in source)

    need(fetcher_module, "FetchResult", "self._partition_records")
    need(fetcher_module, "PartitionRecords", "self._records", "self._aborted_transactions", "self.next_fetch_offset")
    need(fetcher_module, "FetchError", "def check_raise")
    need(
        fetcher_module.Fetcher,
        "__init__",
        "self._records =",
        "self._wait_consume_future",
        "self._fetch_max_wait_ms",
        "self._max_partition_fetch_bytes",
        "self._in_flight =",
    )
    need(fetcher_module.Fetcher, "_get_actions_per_node", "self._fetch_max_wait_ms", "self._max_partition_fetch_bytes")
    need(fetcher_module.Fetcher, "_notify")
    need(fetcher_module.Fetcher, "_proc_fetch_request", "self._client.send(node_id, request)", "tp_state.position")
    need(BatchBuilder, "__init__", "self._builder", "self._relative_offset", "is_transactional")
    need(BatchBuilder, "append", "self._builder.append(", "self._relative_offset += 1")
    need(BatchBuilder, "_build", "self._buffer")
    need(MessageBatch, "set_producer_state", "self._builder._set_producer_state(")
    need(MessageBatch, "get_data_buffer", "self._builder._build()")
    need(MessageBatch, "record_count")
    need(MessageAccumulator, "_pop_batch", "self._txn_manager.increment_sequence_number(batch.tp, batch.record_count)")
    need(TransactionManager, "increment_sequence_number", "self._sequence_numbers[tp]")
    need(TransactionManager, "fatal_error", "self._transaction_waiter.set_exception(exc)")
    need(TransactionManager, "needs_transaction_commit", "TransactionState.COMMITTING_TRANSACTION")
    need(BaseHandler, "do", "await self._sender.client.send(node_id, req, group=self.group)", "except KafkaError")
    need(EndTxnHandler, "create_request", "EndTxnRequest(")
    need(client_module.AIOKafkaClient, "send", "raise NodeNotReadyError(", ".send(\n            request,")
    need(client_module.AIOKafkaClient, "force_metadata_update", "if self._md_update_fut is None", "asyncio.shield")
    need(client_module.AIOKafkaClient, "_metadata_update", "MetadataRequest(")
    need(client_module.AIOKafkaClient, "_metadata_update", "cluster_metadata.update_metadata(metadata)")
    if "error_code, topic, is_internal, partitions = topic_data" not in _source(UPDATE):
        missing.append("ClusterMetadata.update_metadata reads topics otherwise")
    need(admin_module.AIOKafkaAdminClient, "_get_cluster_metadata", "MetadataRequest(")
    need(_PROTOCOL, "__init__", "super().__init__(")
    need(_CONNECTION, "connect", "AIOKafkaProtocol(self._closed_fut, reader, loop=loop)")
    need(_CONNECTION, "connect", "= reader, writer, protocol", "self._create_reader_task()")
    need(_CONNECTION, "_create_reader_task", "self._read(self_ref)")
    need(_CONNECTION, "_read", "await reader.readexactly(size)", "self._handle_frame(resp)")
    need(
        _CONNECTION,
        "_handle_frame",
        "correlation_id, request, fut = self._requests[0]",
        "resp_type.decode(resp)",
        "self._last_action = time.monotonic()",
        "self._requests.popleft()",
    )
    need(
        _CONNECTION,
        "send",
        "request_struct = request.prepare(self._versions)",
        "correlation_id = self._next_correlation_id()",
        "message = header.encode() + request_struct.encode()",
        "self._writer.write(size + message)",
        "(correlation_id, request_struct, fut)",
        "return wait_for(fut, self._request_timeout)",
    )
    need(conn_module, "create_conn", "AIOKafkaConnection(")
    need(fetch_module.FetchRequest_v4, "FLEXIBLE_VERSION")
    return missing


def _source(found: Any) -> str:
    """The source of a function, or of all methods of a class; empty if there is none. It runs at the start of each process and command, and
    `inspect` parses what it is asked for, which took a tenth of the time of a command. Here the compiled code names its lines.
    """
    parts = vars(found).values() if inspect.isclass(found) else [found]
    codes = [inspect.unwrap(one).__code__ for one in parts if inspect.isfunction(one)]
    return "".join(
        "".join(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : _last_line(code)]) for code in codes
    )


def _last_line(code: CodeType) -> int:
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, CodeType)]
    return max([code.co_firstlineno, *inner, *(line for *_, line in code.co_lines() if line)])


def reading_shortcomings() -> list[str]:
    """The same for the two corrections that consumers need even without the fast paths."""
    wanted = (
        ("FetchResult", "getall", "for msg in self._partition_records:"),
        ("PartitionRecords", "_contains_abort_marker", "next(next_batch)"),
        ("Fetcher", "_proc_fetch_request", "MemoryRecords("),
        ("PartitionRecords", "_unpack_records", "for record in next_batch:"),
    )
    found: list[str] = []
    for owner, name, word in wanted:
        method = getattr(getattr(fetcher_module, owner, None), name, None)
        if method is None or word not in _source(method):
            found.append(f"{owner}.{name} is not as it was: `{word}` is missing")
    return found


READING_SHORTCOMINGS = reading_shortcomings()
"""As found in this process, before any correction."""
SHORTCOMINGS = [*shortcomings(), *READING_SHORTCOMINGS]
"""As found in this process."""
