"""Measures the simulator's steps per second on one core: `python -m tests.sim.speed [SEEDS] [--profile]`.

With `--profile` it also says where the time goes, by room and by function, from the stacks of the running process. It went here when this
was written, at 3,600 steps (0.6 worlds) a CPU-second on an idle core, and half of that beside four busy processes:

    core 32 %, agents 26 %                 the code under test: the only part that a world is about
    tests/sim 20 %                         the loop and the schedule 9 %, the port 4 %, the broker 2 %, what is watched and checked 5 %
    __init__ of frozen dataclasses 11 %    the events and orders of the machines, and the messages of the coordinator stream
    asyncio, the rest of Python 10 %

No function has more than 3 % of its own. So a simulator that cost nothing would make 1.3 times the steps, and ten times the steps need
another Python, or less work in the code under test for a step; the checks and the recorded stories (2 %) are not what they wait for. What
helps is a second process: each seed is one line of a file, and several processes write several files (`fuzz`).
"""

from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from .outcome import outcome

ROOT = f"{Path(__file__).resolve().parents[2]}/"
EVERY_S = 0.002


class Profile:
    """The function that runs, looked at every few milliseconds of the CPU."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        """By function: how often it ran itself."""
        self.within: Counter[str] = Counter()
        """By function: how often it or something that it called ran."""
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def _look(self, _: int, frame: FrameType | None) -> None:
        names: list[str] = []
        while frame is not None:
            code = frame.f_code
            names.append(f"{code.co_filename.removeprefix(ROOT)} {code.co_qualname}")
            frame = frame.f_back
        self.own[names[0]] += 1
        self.within.update(set(names))

    def ended(self) -> None:
        """Print what was seen."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        rooms: Counter[str] = Counter()
        for name, count in self.own.items():
            rooms["/".join(name.split(" ")[0].split("/")[:2])] += count
        for title, counts, most in (("rooms", rooms, 15), ("own time", self.own, 25), ("with calls", self.within, 60)):
            print(f"{title}:")
            for name, count in counts.most_common(most):
                print(f"  {count / self.own.total():6.1%} {name}")


def main() -> None:
    """Run some seeds, and print the rate and the faults that took effect."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.speed", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=100)
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    asked = parser.parse_args()
    seeds: int = asked.seeds
    effects: Counter[str] = Counter()
    steps = bad = 0
    profile = Profile() if asked.profile else None
    began = time.process_time()
    for seed in range(seeds):
        found = outcome(seed)
        steps += found.steps
        effects.update(found.effects)
        if not found.ok:
            bad += 1
            print(str(found).splitlines()[0][:300])
    spent = time.process_time() - began
    if profile is not None:
        profile.ended()
    print(
        f"{seeds} seeds, {steps} steps in {spent:.1f} s: {steps / spent:,.0f} steps/s, {steps / seeds:,.0f} a seed; {bad} failed"
    )
    for name, count in effects.most_common():
        print(f"  {name:<14} {count}")


if __name__ == "__main__":
    main()
