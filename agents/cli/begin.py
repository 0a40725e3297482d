"""How a command begins: `headgate VERB`.

Decides how verbs are found (by name, in `VERBS`; each module is imported only when its verb is used, so that `--help` costs
nothing) and how commands end: 0 done, 1 failed, 2 usage, 3 deadline passed, 4 not found, 130 for Ctrl-C, also before anything has begun.
What failed is said on standard error, with what to do about it, and never as a traceback, unless `HEADGATE_DEBUG` is set.

Promises: from its first statement on a command hears SIGINT and SIGTERM, however it was started. Shells start what runs in the background
with SIGINT ignored, `nohup` and supervisors may ignore or block others, and a process inherits that.
"""

from __future__ import annotations

import signal
import sys


def begin() -> None:
    """What the script runs. Nothing of ours is imported before somebody is there who knows what Ctrl-C means."""
    try:
        _hear()
        from .group import main

        main(prog_name="headgate")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(130) from None


def _hear() -> None:
    """Undo what was inherited: each signal means again what it means in a terminal. One that came while it was blocked comes now."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
