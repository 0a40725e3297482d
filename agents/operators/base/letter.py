"""What the running letter has done: it counts when the letter is complete, is forgotten if the letter fails, and is set aside while a
commit is sealed in its middle.

One rule for operators and the parts that they keep: what a letter does is an addition, in attributes of its own, which the class names
(`of_letter`). `complete` applies it and `drop` forgets it; both leave these attributes as they are before a letter. So what is set aside
is nothing but their values.
"""

from __future__ import annotations

from typing import Any, ClassVar


class LetterPart:
    """Base class of what a letter changes."""

    of_letter: ClassVar[tuple[str, ...]] = ()
    """The attributes with what the running letter has done, and the parts that are such classes, too."""

    def drop(self) -> None:
        """The letter failed: discard its changes."""

    def suspend(self) -> Any:
        """Set aside what the running letter has changed so far, because a seal must not see it. `resume` gets it back."""
        found = [getattr(self, name) for name in self.of_letter]
        aside = [one.suspend() if isinstance(one, LetterPart) else one for one in found]
        self.drop()
        return aside

    def resume(self, aside: Any) -> None:
        """Resume the letter that was set aside."""
        for name, one in zip(self.of_letter, aside, strict=True):
            part = getattr(self, name)
            if isinstance(part, LetterPart):
                part.resume(one)
            else:
                setattr(self, name, one)
