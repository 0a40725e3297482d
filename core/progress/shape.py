"""Validates msgpack without building anything from it: is it complete, and how deeply is it nested?

Untrusted bytes must be checked before anything is built from them: five bytes can announce an array of four billion elements. The check
costs about a microsecond per element, so it is only used for the rare body that could be nested too deeply.
"""

from __future__ import annotations


def msgpack_flaw(body: bytes, max_nesting: int) -> str | None:
    """What is wrong with these bytes as one msgpack value, or None.

    >>> msgpack_flaw(bytes([0x91, 0x91, 0x01]), 1)
    'is nested deeper than 1'
    """
    open_containers: list[int] = [1]  # how many elements each open container still lacks; the root is one element
    at, end = 0, len(body)
    while open_containers:
        if open_containers[-1] == 0:
            open_containers.pop()
            continue
        if at >= end:
            return "is cut off"
        open_containers[-1] -= 1
        if body[at] == 0xC1:
            return "is not msgpack"
        elements, at = _element(body, at)
        if elements is not None:
            if len(open_containers) > max_nesting:
                return f"is nested deeper than {max_nesting}"
            open_containers.append(elements)
    if at > end:
        return "is cut off"
    return "has trailing bytes" if at < end else None


# the sizes of scalars of fixed size, by type byte
_FIXED = {
    0xC0: 1,
    0xC2: 1,
    0xC3: 1,
    0xCA: 5,
    0xCB: 9,
    0xCC: 2,
    0xCD: 3,
    0xCE: 5,
    0xCF: 9,
    0xD0: 2,
    0xD1: 3,
    0xD2: 5,
    0xD3: 9,
}
_FIXED.update({0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18})
# heads with a length: the bytes of that length, and how many more bytes belong to the head (an extension's type)
_SIZED = {
    0xC4: (1, 0),
    0xC5: (2, 0),
    0xC6: (4, 0),
    0xC7: (1, 1),
    0xC8: (2, 1),
    0xC9: (4, 1),
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def _element(body: bytes, at: int) -> tuple[int | None, int]:
    """The element at this place: how many elements it contains (None: it is not a container), and where the next head begins."""
    head = body[at]
    if head <= 0x7F or head >= 0xE0:
        return None, at + 1
    if head <= 0x8F:
        return 2 * (head & 0x0F), at + 1
    if head <= 0x9F:
        return head & 0x0F, at + 1
    if head <= 0xBF:
        return None, at + 1 + (head & 0x1F)
    if head in _FIXED:
        return None, at + _FIXED[head]
    if head in _SIZED:
        width, more = _SIZED[head]
        return None, at + 1 + width + more + int.from_bytes(body[at + 1 : at + 1 + width], "big")
    width, per_entry = _CONTAINERS[head]
    return per_entry * int.from_bytes(body[at + 1 : at + 1 + width], "big"), at + 1 + width
