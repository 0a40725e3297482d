"""Random seeds: `python -m tests.sim.fuzz [COUNT] [--base BASE] [--into FILE]`, and `python -m tests.sim.fuzz --sum FILE…`.

The base is random and printed, so that a failure can be reproduced. This is no check of a change, which must not fail by chance. Each
failed seed is printed on one line with how to replay it; at the end the number and range of the seeds are printed, and what they drew.

With `--into`, each seed is one line of a file, written when it is over. The same command goes on where the last one stopped, also after it
was killed; `--seconds` bounds one part. Several processes may run parts of their own, each into its own file; `--sum` reports them all.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .faults import REQUESTS
from .outcome import outcome

EVERY_S = 60.0


@dataclass
class Drawn:
    """What the seeds that are over drew, and how they came out."""

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Of the CPU."""
    rows: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    worlds: Counter[str] = field(default_factory=Counter)
    """In how many worlds a fault or a request took effect at least once."""
    ends: Counter[str] = field(default_factory=Counter)
    """How runs were closed, and requests answered."""
    failed: list[int] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        """One more seed."""
        self.seeds += 1
        self.steps += line["steps"]
        self.seconds += line["seconds"]
        self.rows += line["rows"]
        self.effects.update(line["effects"])
        self.worlds.update(line["effects"].keys())
        self.ends.update(line["ends"])
        if line["wrong"]:
            self.failed.append(line["seed"])

    def __str__(self) -> str:
        faults = [one for one in self.effects.most_common() if one[0] not in REQUESTS]
        asked = [one for one in self.effects.most_common() if one[0] in REQUESTS or one[0] == "start"]
        count = max(1, self.seeds)
        rate = (
            f"{self.seeds / self.seconds:.2f} worlds and {self.steps / self.seconds:,.0f} steps"
            if self.seconds
            else "-"
        )
        return "\n".join(
            [
                f"a seed: {self.steps / count:,.0f} steps, {sum(n for _, n in faults) / count:.1f} faults; a CPU-second: {rate}",
                f"faults that took effect: {self._listed(faults)}",
                f"requests: {self._listed(asked)}",
                f"how runs and requests ended: {', '.join(f'{name} {n}' for name, n in sorted(self.ends.items()))}",
                f"{self.seeds} seeds: {self.steps} steps, {self.rows} rows, {len(self.failed)} failed {self.failed or ''}",
            ]
        )

    def _listed(self, some: Iterable[tuple[str, int]]) -> str:
        return ", ".join(f"{name} {n} (in {self.worlds[name]} worlds)" for name, n in some)


def one(seed: int) -> dict[str, Any]:
    """Run a seed; what is kept of it."""
    began = time.process_time()
    found = outcome(seed)
    return {
        "seed": seed,
        "steps": found.steps,
        "seconds": round(time.process_time() - began, 3),
        "rows": found.rows,
        "effects": dict(found.effects),
        "ends": dict(found.ends),
        "wrong": "" if found.ok else str(found),
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The seeds in a file. What a kill has left of a line at its end is dropped, from the file, too."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def run(base: int, count: int, into: Path | None, most_s: float) -> Drawn:
    """Run the seeds that are not over yet, for as long as one part may take."""
    drawn, told, until = Drawn(), time.monotonic(), time.monotonic() + most_s
    before = lines_of(into) if into is not None else []
    for line in before:
        drawn.add(line)
    over = {line["seed"] for line in before}
    for seed in range(base, base + count):
        if seed in over:
            continue
        if time.monotonic() > until:
            break
        line = one(seed)
        drawn.add(line)
        if into is not None:
            with into.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if line["wrong"]:
            print(f"{line['wrong']}\n  replay: python -m tests.sim {seed} --trace", flush=True)
        if time.monotonic() - told > EVERY_S:
            told = time.monotonic()
            print(f"  {drawn.seeds} of {count} done, {len(drawn.failed)} failed", flush=True)
    return drawn


def main() -> int:
    """Run all seeds, or report what others have run. Returns 1 if one has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.fuzz", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000, help="how many seeds")
    parser.add_argument(
        "--base", type=int, help="the first of them; drawn at random, or that of the file, unless it is given"
    )
    parser.add_argument("--into", type=Path, help="a file with a line for each seed that is over, to go on with")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long this part may take")
    parser.add_argument("--sum", type=Path, nargs="+", metavar="FILE", help="run nothing, and report these files")
    asked = parser.parse_args()
    if asked.sum:
        drawn = Drawn()
        for line in {line["seed"]: line for path in asked.sum for line in lines_of(path)}.values():
            drawn.add(line)
        print(drawn)
        return 1 if drawn.failed else 0
    begun = lines_of(asked.into) if asked.into is not None else []
    drawn_base = min((line["seed"] for line in begun), default=secrets.randbelow(10**12) + 10**9)
    base: int = drawn_base if asked.base is None else asked.base
    print(f"{asked.count} seeds from {base}", flush=True)
    drawn = run(base, asked.count, asked.into, asked.seconds)
    print(
        f"{drawn}\n{drawn.seeds} of {asked.count} seeds, {base} to {base + asked.count - 1}: {len(drawn.failed)} failed"
    )
    return 1 if drawn.failed else 0


if __name__ == "__main__":
    sys.exit(main())
