"""Names of classes and static functions of a JVM, asked for once.

py4j asks the JVM whenever a name is used: `F.col("n")` makes three calls, two of them to ask what `functions` and `col` are. Functions of
users consist of such names.

Promise: what was not found is asked for again, and so is what may change: a static field, and a package, which is what py4j takes every
unknown name for.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView


class RememberingView(JVMView):
    """The classes of a JVM."""

    def __getattr__(self, name: str) -> Any:
        return _kept(self, name, super().__getattr__(name))


class RememberingClass(JavaClass):
    """The static functions of a class, and the classes in it."""  # pyright: ignore[reportIncompatibleMethodOverride]

    def __getattr__(self, name: str) -> Any:
        return _kept(self, name, super().__getattr__(name))


def _kept(owner: Any, name: str, found: Any) -> Any:
    if type(found) is JavaClass:
        found.__class__ = RememberingClass
    if isinstance(found, JavaClass | JavaMember):
        vars(owner)[name] = found
    return found


def remember(gateway: Any) -> None:
    """From now on, the names of this gateway's JVM are asked for once."""
    gateway.jvm.__class__ = RememberingView
