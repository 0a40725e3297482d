"""Examples of the page about frames: each function is one, and its first line says of what."""

from __future__ import annotations

import headgate as hg


def decode() -> None:
    """frames, frames.decode, frames.UserFrame, frames.BatchFrame, frames.Watermark"""
    frame = hg.frames.decode(b'\x00{"amount": 3}')  # the value of one Kafka record of an intermediate or shared stream
    assert frame == hg.frames.UserFrame(b'{"amount": 3}')
    match frame:
        case hg.frames.UserFrame(body):
            rows = [body]
        case hg.frames.BatchFrame():
            rows = list(frame.values)
        case _:  # hg.frames.Watermark and the other control messages have no rows
            rows = []
    assert rows == [b'{"amount": 3}']


def encode() -> None:
    """frames.encode, frames.EndOfStream, frames.Drain"""
    end = hg.frames.EndOfStream("sales/1", "run-1", "Partition 0", 4, 1)
    assert hg.frames.decode(hg.frames.encode(end)) == end
    drain = hg.frames.Drain("sales/1", "run-1", "Partition 0", 4, 1, "before the upgrade")
    assert hg.frames.encode(drain)[0] == 3


def columns() -> None:
    """frames.ArrowFrame"""
    import pyarrow as pa

    rows = pa.table(
        {"__key": pa.array([b"DE"], pa.binary()), "__timestamp": pa.array([5], pa.int64()), "amount": [3]}
    ).replace_schema_metadata({"hg.v": "1", "hg.kind": "0"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    frame = hg.frames.decode(b"\x05" + sink.getvalue().to_pybytes())
    assert isinstance(frame, hg.frames.ArrowFrame)
    assert frame.records == 1


def not_a_frame() -> None:
    """frames.FrameError"""
    try:
        hg.frames.decode(b"\xff?")
    except hg.frames.FrameError as error:
        assert error.reason
