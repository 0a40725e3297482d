"""Frames: what one Kafka record of a stream between two stages holds, or of one that a job shares with others.

`decode` gives the frame in the value of a record: a user record, a batch of them, columns, or a control message. The format is a public
contract, byte by byte in docs/frames.md.
"""

from __future__ import annotations

from headgate.core.progress.frames import (
    ArrowFrame,
    BatchFrame,
    Drain,
    EndOfStream,
    FrameError,
    UserFrame,
    Watermark,
    decode,
    encode,
)

__all__ = [
    "ArrowFrame",
    "BatchFrame",
    "Drain",
    "EndOfStream",
    "FrameError",
    "UserFrame",
    "Watermark",
    "decode",
    "encode",
]
