"""Threads for calls that may hang, and the guard of the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headgate.spark_bridge.base.threads import Threads, off_the_loop

pytestmark = pytest.mark.asyncio


async def test_the_loop_s_thread_is_refused_and_every_other_is_not() -> None:
    """A call to Spark there would stop every actor of the worker."""
    with pytest.raises(AssertionError, match="on the thread of an event loop"):
        off_the_loop()
    threads = Threads(1)
    assert await threads.call(off_the_loop) is None
    threads.close()


async def test_a_call_that_hangs_is_given_up_and_its_thread_ends_when_it_returns() -> None:
    """The others have as many threads as before, then and later."""
    threads, never, stuck = Threads(1), threading.Event(), list[threading.Thread]()

    def hangs() -> None:
        stuck.append(threading.current_thread())
        never.wait()

    hung = threads.call(hangs)
    waiting = threads.call(threading.get_ident)
    threads.give_up(hung)
    more = threads.call(threading.get_ident)
    assert await waiting == await more
    never.set()
    await hung
    await asyncio.to_thread(stuck[0].join, 60.0)
    assert not stuck[0].is_alive()
    assert await threads.call(threading.get_ident) == await waiting
    threads.close()


async def test_what_a_call_raises_is_the_caller_s() -> None:
    """Also what is no ordinary exception."""

    def leaves() -> None:
        raise SystemExit(3)

    threads = Threads(1)
    with pytest.raises(ZeroDivisionError):
        await threads.call(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="SystemExit"):
        await threads.call(leaves)
    threads.close()
