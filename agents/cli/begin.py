"""The entry point of `headgate VERB`.

Decides how verbs are found (by name, in `VERBS`; the module of a verb is imported only when the verb is used, so that `--help` is fast) and
how commands end: 0 done, 1 failed, 2 usage, 3 deadline passed, 4 not found, 130 for Ctrl-C, from the very start. An error is printed on
standard error with what to do about it, and without a traceback unless `HEADGATE_DEBUG` is set.

Promises: a command reacts to SIGINT and SIGTERM from its first statement, however it was started. Shells start background jobs with SIGINT
ignored, and `nohup` and supervisors may ignore or block other signals; a process inherits that.
"""

from __future__ import annotations

import signal
import sys


def begin() -> None:
    """Run the command. Ctrl-C is handled before anything of headgate is imported."""
    try:
        _hear()
        from .group import main

        main(prog_name="headgate")
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(130) from None


def _hear() -> None:
    """Undo what was inherited: signals do again what they do in a terminal. A signal that came while it was blocked takes effect now."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
