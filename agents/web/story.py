"""Answers `/api/story`: lines of the story of this worker, or of another one that lies on the same disk.

Promises: files are read in a thread, not on the loop. A request names a story by the name of its directory, and gets none but those that
are there. An answer has at most `MOST` lines, and says how many it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import DataError
from ..stories.files import folder_of, folders_in
from ..stories.reading import StoryReader
from ..stories.texts import document, wanted

if TYPE_CHECKING:
    from ..worker.worker import Worker

MOST = 5000
"""Lines in one answer."""


async def story_document(worker: Worker, query: Mapping[str, str]) -> dict[str, Any]:
    """The lines that a request asks for: `of` (a task, `leader`, a worker), `since` (ms), `most`, `all`, and `folder`, whose story."""
    options, recorder = worker.options, worker.recorder
    own = {"worker": options.processor, "lost": 0 if recorder is None else recorder.lost}
    if options.state_dir is None or recorder is None:
        why = "it has no state directory" if options.state_dir is None else "story.max-bytes is 0"
        return {**own, "lines": [], "more": 0, "left_out_bytes": 0, "here": [], "off": why}
    job = options.state_dir / worker.job.directory
    own_folder = folder_of(job, options.processor)
    since_ms, most = _number(query, "since", 0), min(_number(query, "most", MOST), MOST)
    choose = wanted(query.get("of", ""), everything=query.get("all", "") not in ("", "0"))

    def read() -> dict[str, Any]:
        there = {one.name: one for one in folders_in(job)}
        asked = query.get("folder", own_folder.name)
        folder: Path | None = there.get(asked)
        if folder is None and asked != own_folder.name:
            raise DataError(
                f"no story in {asked!r} lies on this disk", remedy="`here` of an answer names those that do"
            )
        reader = StoryReader(*([] if folder is None else [folder]))
        lines, more = reader.lines(choose, since_ms=since_ms, most=most)
        return {
            **own,
            "lines": [document(one) for one in lines],
            "more": more,
            "left_out_bytes": reader.left_out.bytes,
            "here": [name for name in there if name != own_folder.name],
            "off": "",
        }

    return await worker.port.in_thread(partial(read))


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 15:
        raise DataError(f"{name}={text[:40]!r} is not a number", remedy=f"like {name}=1767225600000")
    return int(text)
