"""Sinks of the user's own: what is refused where `to_sink` is declared, and what is an error while a batch is written.

Promises: a class that could lose rows without a word is no sink. A method that would have to be awaited or iterated over is refused by its
definition, and by what it returns, if its definition does not show it. Arguments that do not fit are said at the line of the declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from concurrent.futures import Future
from typing import Any

from ...core.errors import DeclarationError, HeadgateError
from .sink import Sink

METHODS = {
    "open": "(owner)",
    "begin": "(batch)",
    "write": "(rows, batch)",
    "commit": "(note)",
    "rollback": "()",
    "close": "()",
}
"""What a sink is called by, and with what."""
OF_TRANSACTIONS = ("begin", "commit", "rollback")
"""What a transactional sink has to say itself."""
ANSWERS = (str, type(None))
"""What `begin` may return."""


def check_sink(sink: Any, args: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse a class that is no sink, or that cannot be made with these arguments. `own`: the arguments of `to_sink` itself; those that
    are None were not given."""
    if not (isinstance(sink, type) and issubclass(sink, Sink)):
        raise DeclarationError(f"to_sink({sink!r:.80})", remedy="a subclass of hg.Sink; its arguments follow by name")
    where = f"to_sink({sink.__name__})"
    for name, signature in METHODS.items():
        _check_method(sink, name, signature, where)
    if sink.write is Sink.write:
        raise DeclarationError(
            f"{where}: the class has no write, so that no row would go anywhere",
            remedy="def write(self, rows, batch): … writes the rows, a pyarrow.Table",
        )
    if type(sink.transactional) is not bool:
        raise DeclarationError(
            f"{where}: transactional = {sink.transactional!r:.60}", remedy="transactional = True or False, in the class"
        )
    lacking = [name for name in OF_TRANSACTIONS if getattr(sink, name) is getattr(Sink, name)]
    if sink.transactional and lacking:
        raise DeclarationError(
            f"{where} is transactional, and has no {' and no '.join(lacking)}: its batches would not be once in effect",
            remedy="begin(batch) says whether the target has the batch, commit(note) writes rows, batch.number and note in one "
            "transaction, rollback() undoes what was written; or leave transactional out: then it is at least once",
        )
    _check_arguments(sink, args, own, where)


def _check_method(sink: type[Sink], name: str, signature: str, where: str) -> None:
    method = getattr(sink, name)
    if not callable(method):
        raise DeclarationError(
            f"{where}: {name} = {method!r:.60} is no method", remedy=f"def {name}{_shown(signature)}"
        )
    plain = inspect.unwrap(method)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise DeclarationError(
            f"{where}: {name} is an async function, which would never be awaited",
            remedy=f"def {name}{_shown(signature)} is called in a thread of its own and may block; it can call asyncio.run(…)",
        )
    if inspect.isgeneratorfunction(plain):
        raise DeclarationError(
            f"{where}: {name} is a generator, which no one would iterate over, so nothing of it would run",
            remedy=f"def {name}{_shown(signature)} without yield",
        )
    stands = inspect.getattr_static(sink, name)
    gets_self = hasattr(type(stands), "__get__") and not isinstance(stands, staticmethod | classmethod)
    given = [None] * (signature.count(",") + (signature != "()") + gets_self)
    try:
        inspect.signature(method).bind(*given)
    except ValueError:  # it is compiled, and does not say what it takes
        return
    except TypeError as error:
        raise DeclarationError(
            f"{where}: {name} is called with {signature}: {error}", remedy=f"def {name}{_shown(signature)}"
        ) from None


def _shown(signature: str) -> str:
    """A method's arguments as they are written.

    >>> _shown("()"), _shown("(batch)")
    ('(self)', '(self, batch)')
    """
    return "(self)" if signature == "()" else f"(self, {signature[1:]}"


def _check_arguments(sink: type[Sink], args: Mapping[str, Any], own: Mapping[str, Any], where: str) -> None:
    """Make no sink, and say whether one could be made."""
    if inspect.isabstract(sink):
        lacking = ", ".join(sorted(getattr(sink, "__abstractmethods__", ())))
        raise DeclarationError(f"{where} is abstract: it lacks {lacking}", remedy="a class that has them")
    try:
        signature = inspect.signature(sink)
    except ValueError:  # of a class that is compiled, and does not say what it takes
        return
    for name, given in own.items():
        one = signature.parameters.get(name)
        if one is None or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if given is not None or one.default is one.empty:
            raise DeclarationError(
                f"{where}: {name}= is an argument of to_sink itself, so that {sink.__name__} would never get its own '{name}'",
                remedy=f"call the argument of {sink.__name__} something else",
            )
    try:
        signature.bind(**args)
    except TypeError as error:
        given = ", ".join(f"{name}=…" for name in args)
        raise DeclarationError(
            f"{where}: {sink.__name__}({given}): {error}",
            remedy=f"the arguments of {sink.__name__}{_without_types(signature)} follow by name; to_sink has {', '.join(own)} itself",
        ) from None


def _without_types(signature: inspect.Signature) -> str:
    plain = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def returned(sink: Sink, name: str, given: Any) -> Any:
    """What a method of a sink has returned. Raises `SinkMisused` for what says that the method has done nothing yet."""
    if given is None:
        return None
    if isinstance(given, Future | Generator | AsyncGenerator) or inspect.isawaitable(given):
        if isinstance(given, Coroutine | Generator):
            given.close()
        raise SinkMisused(
            f"{type(sink).__name__}.{name} has returned a {type(given).__name__}, for which no one waits: it may have done nothing",
            remedy=f"{name} does its work before it returns; what is asynchronous it can wait for: asyncio.run(…)",
        )
    if name == "begin" and not isinstance(given, ANSWERS):
        raise SinkMisused(
            f"{type(sink).__name__}.begin has returned {given!r:.60}",
            remedy="the note with which the target has committed the batch, a text, or None if it is to be written",
        )
    return given


class SinkMisused(HeadgateError):
    """A sink of the user's own does not do what a sink does. Trying again does not help."""

    final = True
