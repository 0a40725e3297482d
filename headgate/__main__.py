"""`python -m headgate`: the command line without its script on the PATH."""

from __future__ import annotations

from headgate.agents.cli.begin import begin

if __name__ == "__main__":
    begin()
