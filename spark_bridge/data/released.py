"""What a user's function leaves in Spark's memory: released when its attempt at a batch ends.

    broadcast variables, with their files     when nothing refers to them any more, nor to a DataFrame of the attempt that may need them
    accumulators                              when nothing but PySpark's own register refers to them
    global views of rows of the batch         at once; on Spark Connect temporary views of them, too
    cached DataFrames of rows of the batch    at once (`handover.forget`; on Spark Connect here)

What the user keeps in a variable stays, and so does what holds no rows of the batch: it may be meant for the batches to come. The broadcast
variables that Spark makes for itself are left to its own cleaner.

PySpark does not say who has made a thing, so its context and its client are told here to note it: by the thread in which the attempt runs.
The private names of PySpark that this needs stand in this file. Where one is missing, nothing is released early.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..base.jobs import is_connect
from .handover import plan_of

_OWN_COMMAND = "_prepare_for_python_RDD"
"""The function of PySpark that broadcasts what it sends itself: a user's function that is large."""


@dataclass(slots=True)
class _Sent:
    """A broadcast variable."""

    python: Any
    """A weak reference to the user's object."""
    java: Any
    path: str

    def over(self) -> bool:
        """Whether no one can use it any more."""
        return self.python() is None

    def destroy(self) -> None:
        with contextlib.suppress(Exception):  # of a session that is over
            self.java.destroy(False)
        with contextlib.suppress(OSError):
            os.unlink(self.path)


@dataclass(slots=True)
class Left:
    """What one attempt has made and not released yet."""

    session: Any = None
    """A weak reference to its session, which each of its DataFrames refers to."""
    sent: list[_Sent] = field(default_factory=list[_Sent])
    counted: list[int] = field(default_factory=list[int])
    """Accumulators, by id."""
    views: list[tuple[str, bool, Any]] = field(default_factory=list[tuple[str, bool, Any]])
    """Views on Spark Connect: name, whether it is global, and what it shows."""
    cached: list[Any] = field(default_factory=list[Any])
    """Cached relations on Spark Connect."""

    def free(self) -> bool:
        """Release what no one uses any more. Returns whether that was all."""
        if self.session is None or self.session() is None:
            for one in [one for one in self.sent if one.over()]:
                one.destroy()
                self.sent.remove(one)
        self.counted = [one for one in self.counted if not _forgotten(one)]
        return not self.sent and not self.counted


class _Here(threading.local):
    left: Left | None = None
    """Of the attempt that runs in this thread."""


_here = _Here()
_waiting: list[Left] = []
"""What attempts have left that someone still refers to."""
_lock = threading.Lock()


@contextlib.contextmanager
def noted(session: Any) -> Iterator[Left]:
    """Note what is made in this thread. When this ends, release what no one refers to any more; the rest when a later one ends."""
    left = _here.left = Left()
    with contextlib.suppress(AttributeError):  # another version of PySpark
        _listen(session)
    try:
        yield left
    finally:
        _here.left = None
        with _lock:
            waiting = [*_waiting, left]
            _waiting.clear()
        still = [one for one in waiting if not one.free()]
        with _lock:
            _waiting.extend(still)


def belongs(left: Left, own: Any) -> None:
    """The attempt runs in this session."""
    if not is_connect(own):
        left.session = weakref.ref(own)


def forget_views(left: Left, session: Any, frame: Any) -> None:
    """Drop views and cached data that hold rows of the attempt's DataFrame, and no one else could name any more."""
    with contextlib.suppress(Exception):  # if the session is over, so are they
        if is_connect(session):
            _forget_there(left, session, frame)
        else:
            _forget_global(session, frame)
    left.views, left.cached = [], []


def let_go(own: Any, session: Any) -> None:
    """PySpark remembers the session that was made or used last: not this one of an attempt, but that of the worker."""
    if is_connect(own):
        return
    kind: Any = type(own)
    if kind._activeSession is own:
        kind._activeSession = session
    for name in ("catalog", "streams"):  # they refer to it, and are made again if someone asks
        vars(own).pop(name, None)
    with contextlib.suppress(ImportError, AttributeError):  # another version of PySpark
        from pyspark import RDD
        from pyspark.sql.session import _monkey_patch_RDD

        made_with: Any = RDD.toDF
        if any(cell.cell_contents is own for cell in made_with.__closure__ or ()):
            _monkey_patch_RDD(session)


def _forgotten(number: int) -> bool:
    """Whether this accumulator is forgotten: only PySpark's register refers to it."""
    from pyspark import accumulators

    register = accumulators._accumulatorRegistry
    if number in register and sys.getrefcount(register[number]) > 2:  # the register, and the argument here
        return False
    register.pop(number, None)
    return True


# ----------------------------------------------------------------------------------------------- what PySpark is told


def _listen(session: Any) -> None:
    if is_connect(session):
        _listen_there(session.client)
    else:
        _listen_to(session.sparkContext)


def _listen_to(context: Any) -> None:
    if "broadcast" in vars(context):
        return
    broadcast, accumulator = context.broadcast, context.accumulator

    def sent(value: Any) -> Any:
        made, left = broadcast(value), _here.left
        if left is not None and sys._getframe(1).f_code.co_name != _OWN_COMMAND:
            left.sent.append(_Sent(weakref.ref(made), made._jbroadcast, made._path))
        return made

    def counted(*args: Any, **named: Any) -> Any:
        made, left = accumulator(*args, **named), _here.left
        if left is not None:
            left.counted.append(made.aid)
        return made

    context.broadcast, context.accumulator = sent, counted


def _listen_there(client: Any) -> None:
    if "execute_command" in vars(client):
        return
    execute, analyze = client.execute_command, client._analyze

    def executed(command: Any, *more: Any, **named: Any) -> Any:
        found, left = execute(command, *more, **named), _here.left
        if left is not None and command.WhichOneof("command_type") == "create_dataframe_view":
            view = command.create_dataframe_view
            left.views.append((view.name, view.is_global, view.input))
        return found

    def analyzed(method: str, **named: Any) -> Any:
        found, left = analyze(method, **named), _here.left
        if left is not None and method == "persist":
            left.cached.append(named["relation"])
        return found

    client.execute_command, client._analyze = executed, analyzed


# ------------------------------------------------------------------------------------------ what holds rows of a batch


def _forget_global(session: Any, frame: Any) -> None:
    manager = session._jsparkSession.sharedState().globalTempViewManager()
    names = manager.listViewNames("*")
    if not names.size():
        return
    plan = plan_of(frame)
    for name in [names.apply(at) for at in range(names.size())]:
        found = manager.get(name)
        if found.isDefined() and _shows(found.get(), plan):
            manager.remove(name)


def _shows(view: Any, plan: Any) -> bool:
    """Whether a global view shows rows of this plan, or names temporary views, which end with their session."""
    if not view.plan().isDefined():
        return view.tableMeta().viewReferredTempViewNames().size() > 0
    leaves = view.plan().get().collectLeaves()
    return any(leaves.apply(at).sameResult(plan) for at in range(leaves.size()))


def _forget_there(left: Left, session: Any, frame: Any) -> None:
    number = frame._plan._root_plan_id
    for name, is_global, relation in left.views:
        if _holds(relation, number):
            drop = session.catalog.dropGlobalTempView if is_global else session.catalog.dropTempView
            drop(name)
    for relation in left.cached:
        if _holds(relation, number):
            session.client._analyze(method="unpersist", relation=relation, blocking=False)


def _holds(message: Any, number: int) -> bool:
    """Whether the plan with this number is part of a message."""
    for form, value in message.ListFields():
        if form.name == "plan_id" and value == number:
            return True
        if form.message_type is None or form.message_type.GetOptions().map_entry:
            continue
        repeated = not hasattr(value, "ListFields")
        if any(_holds(one, number) for one in (value if repeated else (value,))):
            return True
    return False
