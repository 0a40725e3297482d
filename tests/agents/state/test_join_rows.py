"""The rows that a join keeps, as people read them: by side, key and time, with or without the job's code."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.state.scan import RowDecoder, scan
from headgate.agents.testing.driver import Driver
from headgate.core.windows import blocks


def job(how: Any, **more: Any) -> hg.App:
    app = hg.App("job", key_serde=hg.msgpack())
    left, right = (app.input(topic, key="k", timestamp="ts") for topic in ("left", "right"))
    left.join(right, within="10s", how=how, into=lambda one, other: {"x": 1}, name="j", **more).to("out")
    return app


def rows(d: Driver, declared: Declared | None, key: str = "", most: int = 100) -> list[Any]:
    (store,) = (actor.state.store for actor in d.tasks.values())
    assert store is not None
    return list(scan(RowDecoder(store, declared), "j", key, most))


@pytest.mark.parametrize("known", [True, False])
def test_kept_rows_are_shown_by_side_key_and_time(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the blocks in which they are stored; whether a row has found a partner is said of the sides where that matters."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 2)
    app = job("left")
    with Driver(app) as d:
        d.send("left", {"k": "b", "ts": 9_000}, headers=[("h", b"1")])
        d.send_all("left", [{"k": "a", "ts": ts} for ts in (9_500, 8_000, 7_000)])
        d.send_all("right", [{"k": "c", "ts": 9_000}, {"k": "b", "ts": 9_100}])
        d.advance("1s")
        d.send("right", {"k": "a", "ts": 18_000})
        d.advance("1s")
        declared = Declared(app) if known else None
        found = rows(d, declared)
        bound = ("bound", 9_500)
        a7, a8, a9 = (
            ("a", {"side": "left", "timestamp": ts, "value": {"k": "a", "ts": ts}, "has_partner": ts != 7_000})
            for ts in (7_000, 8_000, 9_500)
        )
        b = ("b", {"side": "left", "timestamp": 9_000, "value": {"k": "b", "ts": 9_000}, "has_partner": True})
        rights = [
            (k, {"side": "right", "timestamp": ts, "value": {"k": k, "ts": ts}})
            for k, ts in (("a", 18_000), ("b", 9_100), ("c", 9_000))
        ]
        assert found[0] == bound
        assert found[1:] == [a7, a8, a9, (b[0], b[1] | {"headers": [["h", 1]]}), *rights]
        assert rows(d, declared, "a") == [a7, a8, a9, rights[0]]
        assert rows(d, declared, most=2)[1:] == [a7, a8]
        assert rows(d, declared, "nobody") == []


def test_what_cannot_be_read_is_shown_as_such() -> None:
    """A block of bytes that nobody wrote: it is not left out in silence."""
    app = job("inner")
    with Driver(app) as d:
        d.send("left", {"k": "a", "ts": 9_000})
        d.advance("1s")
        (store,) = (actor.state.store for actor in d.tasks.values())
        assert store is not None
        store.write({"j": {bytes(7) + b"\x09": b"\x00\xc1"}})
        found = rows(d, None)
        assert [value["side"] for _, value in found if isinstance(value, dict)] == ["left"]
        assert "c1" in [value for _, value in found]


def test_rows_are_shown_in_one_order_whatever_the_order_of_their_blocks() -> None:
    """Two sides, many slices: slots say nothing about the order."""
    with Driver(job("outer", grace="1m")) as d:
        for n in range(30):
            d.send("left" if n % 2 else "right", {"k": f"k{n * 7 % 5}", "ts": 20_000 + n * 13 % 30 * 100})
        d.advance("1s")
        found = [(row["side"], key, row["timestamp"]) for key, row in rows(d, None) if key != "bound"]
        assert len(found) == 30
        assert all(one <= other for one, other in pairwise(found))
