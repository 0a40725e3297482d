"""`python -m headgate.agents.cli`: the command line without its script on the PATH."""

from __future__ import annotations

from .begin import begin

if __name__ == "__main__":
    begin()
