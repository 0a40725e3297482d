"""Decodes msgpack into values of a type: a dataclass, TypedDict or msgspec Struct.

Promises, as for JSON (`typed_json`): a field that may be None may be missing, and is None then; of two equal keys, the last one counts.
What a value must be is msgspec's rule for msgpack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .missing_fields import as_it_is, filler
from .typed_json import decoder_of


class TypedMsgpack:
    """The decoder of one type. `one` raises for a record that does not fit; `many` may also raise where `one` accepts all records."""

    def __init__(self, library: Any, kind: Any) -> None:
        self._strictly: Callable[[bytes], Any] = decoder_of(library.msgpack, kind)
        self._anything: Callable[[bytes], Any] = library.msgpack.Decoder().decode
        self._encode: Callable[[Any], bytes] = library.msgpack.Encoder().encode
        self._misfit: type[Exception] = library.ValidationError
        self._fill = filler(kind)

    def one(self, data: bytes) -> Any:
        """Decode one value. Only records that msgspec refuses are slow."""
        try:
            return self._strictly(data)
        except self._misfit as misfit:
            value = self._anything(data)
            if not isinstance(value, dict):
                raise
            try:
                # decoded from bytes again, for `convert` has the rules of JSON: text would do for bytes
                return self._strictly(self._encode(self._fill(value)))
            except self._misfit:
                raise misfit from None

    def many(self, data: Sequence[Any]) -> list[Any]:
        """Decode a column."""
        return list(map(self._strictly if self._fill is as_it_is else self.one, data))
