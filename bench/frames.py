"""How fast are frames decoded, against plain `msgpack.unpackb` of the same bodies in the same run?

    python bench/frames.py          prints a table, writes bench/out/frames.json, exits with 1 below 30 %

All frames of a round differ, so that nothing can be cached. The CPU time of this thread counts, so that other load on the machine does not
matter. The two alternate, and the median of their ratios is compared with the limit.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgpack

from headgate.core.progress.frames import BatchFrame, Drain, EndOfStream, Frame, Watermark, decode, encode

PROMISED = 0.30
ROUNDS = 41
NOW = 1_763_700_000_000


def watermark(i: int) -> Frame:
    return Watermark("sales/1", "2026-11-21-a", f"Partition {i}", 12, 3, NOW + i)


def end(i: int) -> Frame:
    return EndOfStream("sales/1", "2026-11-21-a", f"Partition {i}", 12, 3)


def drain(i: int) -> Frame:
    return Drain("sales/1", "2026-11-21-a", f"Partition {i}", 12, 3, "7f3e9c1a")


def batch(i: int) -> Frame:
    records = range(i * 1000, i * 1000 + 1000)
    return BatchFrame(
        [b"key-%d" % n for n in records],
        [NOW + n for n in records],
        [b'{"n": %d, %s}' % (n, b"x" * 84) for n in records],
    )


KINDS: dict[str, tuple[Callable[[int], Frame], int]] = {
    "watermark": (watermark, 1000),
    "end of stream": (end, 1000),
    "drain": (drain, 1000),
    "batch of 1000": (batch, 10),
}


def seconds(read: Callable[[bytes], object], inputs: list[bytes]) -> float:
    start = time.thread_time()
    for data in inputs:
        read(data)
    return time.thread_time() - start


def measure(make: Callable[[int], Frame], count: int) -> dict[str, float]:
    frames = [encode(make(i)) for i in range(count)]
    bodies = [data[1:] for data in frames]
    plain, checked = [], []
    for _ in range(ROUNDS):
        plain.append(seconds(msgpack.unpackb, bodies))
        checked.append(seconds(decode, frames))
    ratios = [p / c for p, c in zip(plain, checked, strict=True)]
    return {
        "unpackb_us": statistics.median(plain) / count * 1e6,
        "decode_us": statistics.median(checked) / count * 1e6,
        "ratio": statistics.median(ratios),
    }


def main() -> int:
    results = {kind: measure(make, count) for kind, (make, count) in KINDS.items()}
    print(f"{'frame':<16}{'unpackb µs':>12}{'decode µs':>12}{'ratio':>8}")
    for kind, row in results.items():
        print(f"{kind:<16}{row['unpackb_us']:>12.2f}{row['decode_us']:>12.2f}{row['ratio']:>8.0%}")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "frames.json").write_text(json.dumps({"promised": PROMISED, "results": results}, indent=2) + "\n")
    return 0 if all(row["ratio"] >= PROMISED for row in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
