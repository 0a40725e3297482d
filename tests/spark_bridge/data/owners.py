"""A model of publishing: owners of a task crash, stall, or are fenced between any two steps of a store of files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from headgate.core.batching.manifest import ManifestEntry
from headgate.core.batching.publishing import Keep, SeriesPaths, SparkWrite, Undone
from headgate.spark_bridge.data.files import Files
from headgate.spark_bridge.data.publish import Publisher, manifest

TARGET = "mem://out"
BATCHES = 6
FEW = 3
"""So many files of entries are merged in the model, so that it happens often."""
STEP_MS = 10
"""The time between the rows of a batch and those of the next number."""


class Crash(BaseException):
    """The process of a life is gone."""


class Life:
    """An owner of the task, in a thread that takes one step at a time, when it is told to."""

    def __init__(self, work: Callable[[Life], None]) -> None:
        self.go, self.at_gate = threading.Semaphore(0), threading.Semaphore(0)
        self.crashed = self.over = False
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.at_gate.acquire()

    def _run(self) -> None:
        try:
            self.gate()
            self._work(self)
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.over = True
        self.at_gate.release()

    def gate(self) -> None:
        """Wait until the life may take its next step."""
        self.at_gate.release()
        self.go.acquire()
        if self.crashed:
            raise Crash

    def step(self) -> None:
        """Let it take one step."""
        if not self.over:
            self.go.release()
            self.at_gate.acquire()

    def crash(self) -> None:
        """Let it do nothing any more."""
        self.crashed = True
        while not self.over:
            self.step()


class SteppedFiles:
    """A store of files for one life: each call is a step, and what is not atomic in a real one takes several."""

    def __init__(self, held: dict[str, str], gate: Callable[[], None], copies: bool) -> None:
        self.held, self.gate, self.copies = held, gate, copies

    def found(self, directory: str) -> list[tuple[str, int]]:
        self.gate()
        top = f"{directory}/"
        return [(path.removeprefix(top), len(text)) for path, text in self.held.items() if path.startswith(top)]

    def names(self, directory: str) -> list[str]:
        return sorted({path.partition("/")[0] for path, _ in self.found(directory)})

    def size(self, path: str) -> int | None:
        self.gate()
        return len(self.held[path]) if path in self.held else None

    def read(self, path: str) -> str | None:
        self.gate()
        return self.held.get(path)

    def put(self, path: str, text: str) -> None:
        self.gate()
        self.held[path] = text

    def move(self, source: str, target: str) -> bool:
        self.gate()
        if source not in self.held:
            return False
        self.held[target] = self.held[source]
        if self.copies:
            self.gate()
        self.held.pop(source, None)
        return True

    def delete(self, path: str) -> None:
        for one in [one for one in self.held if one == path or one.startswith(f"{path}/")]:
            self.gate()
            self.held.pop(one, None)

    def settle(self, top: str, directories: Iterable[str]) -> None:
        self.gate()


class Task:
    """A task whose batches are written to files: its log, and the rule that only its present owner may commit."""

    def __init__(self, order: list[int], copies: bool, keep: Keep | None = None, now_ms: int = 0) -> None:
        self.order = [*order, *range(len(order) + 1, len(order) + 4)]
        self.keep, self.now_ms = keep, now_ms
        self.held: dict[str, str] = {}
        self.copies = copies
        self.named: dict[int, str] = {}
        self.forgotten: set[int] = set()
        self.upto = BATCHES
        self.is_alive: list[Life] = []
        self._attempts = 0

    def begin(self) -> Life:
        """Another owner; the one before is fenced, and goes on as long as it does not notice."""
        life = Life(self._own)
        self.is_alive.append(life)
        return life

    def _commit(self, life: Life, change: Callable[[], None]) -> Undone:
        """Returns which batches are durably not done, as far as this owner can know."""
        life.gate()
        if life is not self.is_alive[-1]:
            raise Crash  # fenced
        change()
        return self._undone()

    def _undone(self) -> Undone:
        return Undone(self.upto + 1, frozenset(self.order[: self.upto]) - self.forgotten)

    def _own(self, life: Life) -> None:
        files = SteppedFiles(self.held, life.gate, self.copies)
        publisher = Publisher(files, SparkWrite(TARGET, series="s", keep=self.keep), lambda: self.now_ms)
        written: dict[int, str] = {}
        undone = self._undone()
        left = [number for number in self.order[: self.upto] if number not in self.forgotten]
        for place, number in enumerate(left):
            for ahead in left[place : place + 2]:  # as many are in flight
                if ahead not in self.named and ahead not in written:
                    written[ahead] = self._write(ahead, files, publisher)
            if number not in self.named:
                undone = self._commit(life, lambda number=number: self.named.__setitem__(number, written[number]))
            publisher.publish(number, self.named[number], undone)
            undone = self._commit(life, lambda number=number: self.forgotten.add(number))

    def _write(self, number: int, files: Files, publisher: Publisher) -> str:
        """The job of Spark, which nobody can stop."""
        self._attempts += 1
        attempt = f"a{self._attempts}"
        for part in range(2):
            where = SeriesPaths(TARGET, "s").attempt(number, attempt)
            files.put(f"{where}/c={part}/part-0000{part}-x-c000.json", f"{number} {attempt} {part}")
        at = {"earliest_ms": number * STEP_MS, "latest_ms": number * STEP_MS + 1}
        publisher.seal(ManifestEntry("j/1", "w", "P", f"P/w/{number}", number, attempt, 2, "rows", **at))
        return attempt

    def present(self) -> list[str]:
        """The contents of all files that plain readers see."""
        return sorted(text for path, text in self.held.items() if "/_headgate/" not in path)

    def entries(self) -> list[ManifestEntry]:
        """What the manifest says."""
        return manifest(SteppedFiles(self.held, lambda: None, False), TARGET)

    def check(self) -> None:
        """Every batch of the manifest is there with all its files, and is of the attempt that was named."""
        for entry in self.entries():
            assert entry.attempt == self.named[entry.number]
            assert [self.held[f"{TARGET}/{file.path}"] for file in entry.files] == [
                f"{entry.number} {entry.attempt} {part}" for part in range(2)
            ]

    def run(self) -> None:
        """The last owner, to its end."""
        last = self.begin()
        while not last.over:
            last.step()
        if last.error is not None:
            raise last.error

    def end(self) -> None:
        """End all threads."""
        for life in self.is_alive:
            life.crash()
