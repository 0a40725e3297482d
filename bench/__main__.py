"""Runs every script of bench that has a `main()`, each in a process of its own: `python -m bench [names] [options]`.

All words from the first one that begins with `-` are passed to the scripts: `python -m bench throughput --quick --works AB`. The output of
a script is shown and kept in `bench/out/<name>.txt`, after a line with the machine and the commit.
"""

from __future__ import annotations

import ast
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def scripts() -> list[Path]:
    """The files in this directory that define `main`; of a package, its `__main__.py`."""
    return [
        path
        for path in sorted([*HERE.glob("*.py"), *HERE.glob("*/__main__.py")])
        if (path.parent != HERE or not path.name.startswith("_"))
        and any(
            isinstance(node, ast.FunctionDef) and node.name == "main"
            for node in ast.parse(path.read_text(encoding="utf-8")).body
        )
    ]


def surroundings() -> str:
    """One line that makes figures comparable: commit, Python, machine."""
    git = subprocess.run(
        ["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    commit = git.stdout.strip() or "no git"
    return f"# {commit} · Python {platform.python_version()} · {platform.machine()}, {os.cpu_count()} cores · {platform.system()}"


def run(name: str, options: list[str], kept: Path) -> int:
    """Run one script; show and keep its output. Returns its exit code."""
    command = [sys.executable, "-u", "-m", f"bench.{name}", *options]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent) as running,
        kept.open("w", encoding="utf-8") as file,
    ):
        signal.signal(signal.SIGTERM, lambda *_: running.terminate())  # it ends its broker and its programs
        file.write(f"{surroundings()}\n")
        for line in running.stdout or ():
            print(line, end="", flush=True)
            file.write(line)
    return running.returncode


def main(words: list[str]) -> int:
    """Run the named scripts, or all. Returns 0 if all succeeded, 2 for an unknown name."""
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    wanted, options = words[:first], words[first:]
    found = {path.stem if path.parent == HERE else path.parent.name: path for path in scripts()}
    if unknown := [name for name in wanted if name not in found]:
        print(f"no bench {', '.join(unknown)}; there are: {', '.join(found) or 'none'}", file=sys.stderr)
        return 2
    failed = 0
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    for name in wanted or found:
        print(f"== {name}", flush=True)
        failed |= run(name, options, out / f"{name}.txt") != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
