"""The long form: `python -m tests.chaos [FAULTS] [SECONDS] [SEED]`; 36 faults by default, at most so many seconds.

Prints one line a fault, and at the end how many of each kind really happened, how long counts stood still, and that every record
counts once. Exit code 0 only then, and only if all the faults happened, in three kinds or more.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from headgate.agents.broker.broker import Broker

from .outputs import somewhere
from .scene import HUNG_S, MOST_S, Scene

FAULTS = tuple(os.environ.get("CHAOS_FAULTS", "kill kill kill zombie same broker pause").split())
KINDS = 3
"""So many kinds of faults must really have happened."""


def main(faults: int = 36, seconds: float = 1200.0, seed: int = 1, per_second: int = 3000) -> int:
    """Torment, count, report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended by `timeout`, too
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="headgate-chaos-"))
    print(f"seed {seed}, in {directory}")
    with Broker.start(directory / "kafka") as broker, somewhere(directory / "out") as out:
        scene = Scene(broker, directory / "scene", leaving=out("chaos"))
        names = ["w1", "w2"]
        try:
            watch = scene.watch()
            load = scene.load(per_second)
            worker = scene.worker(names[0])
            scene.advanced("the start", worker)
            until = time.monotonic() + seconds
            bag: list[str] = []
            while scene.happened.total() < faults and time.monotonic() < until:
                scene.flowing(chance.uniform(0.1, 2.5))
                if not bag:
                    bag = list(FAULTS)
                    chance.shuffle(bag)
                match bag.pop():
                    case "kill":
                        worker = scene.kill(worker)
                    case "zombie":
                        other = names[1] if worker.processor == names[0] else names[0]
                        worker = scene.zombie(worker, other)
                    case "same":
                        worker = scene.zombie(worker, worker.processor)
                    case "broker":
                        scene.broker_killed(worker, chance.uniform(0.0, 5.0))
                    case _:
                        scene.broker_paused(worker, chance.uniform(0.3, HUNG_S))
            made = scene.settle(load, 120)
            longest = watch.longest()
        finally:
            scene.close()
        counted = scene.check()
    print(f"\n{scene.happened.total()} faults: {dict(scene.happened)}")
    for kind in scene.happened:
        took = [seconds for name, seconds in scene.recoveries if name == kind]
        print(
            f"  {kind:20} counts grow again after {statistics.median(took):.1f} s (median), {max(took):.1f} s (longest)"
        )
    print(
        f"{made} records written, {counted} counted once, 0 lost, 0 doubled; longest silence {longest:.1f} s (bound {MOST_S:g} s)"
    )
    kinds = min(KINDS, len(set(FAULTS)), faults)
    enough = scene.happened.total() >= faults and len(+scene.happened) >= kinds
    if not enough:
        print(f"too few: {faults} faults in {kinds} kinds were asked for")
    if enough and longest < MOST_S and counted == made:
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:])))
