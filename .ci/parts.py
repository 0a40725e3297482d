"""Installs the parts of other projects that tests need: a browser, Prometheus, PostgreSQL, Node.

Without one of them the tests that need it are skipped, and CI would pass over what they test. So CI asks `apt` for what is missing, where
it is root and has `apt`. Exits 1 if a part is missing that is in the lists of `apt`: it could have been installed. Where it is not in them,
the tests may skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from glob import glob

PARTS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "prometheus": ("prometheus", "promtool"),
    "postgresql": ("/usr/lib/postgresql/*/bin/initdb", "initdb"),
    "nodejs": ("node",),
}
"""By Debian's package, the programs of which the tests need one."""

INSTALL_S = 300
"""How long `apt` may take for one of them."""


def found(program: str) -> bool:
    """Whether a program is here; with a slash it is a pattern of paths."""
    return bool(glob(program)) if "/" in program else shutil.which(program) is not None


def missing() -> list[str]:
    """The packages of which no program is here."""
    return [package for package, programs in PARTS.items() if not any(map(found, programs))]


def install(packages: list[str]) -> None:
    """Ask `apt` for packages, each for itself: one that it does not have must not keep the others away."""
    apt(["update"])
    for package in packages:
        apt(["install", "--yes", "--no-install-recommends", package])


def apt(arguments: list[str]) -> None:
    """Run `apt-get`, and show what it said if it failed."""
    command = ["apt-get", "--quiet", *arguments]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command)} did not end in {INSTALL_S} s")
        return
    if done.returncode:
        print(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


def installable(package: str) -> bool:
    """Whether `apt` could install a package."""
    if shutil.which("apt-cache") is None:
        return False
    said = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=False).stdout
    return any(
        line.strip().startswith("Candidate:") and not line.rstrip().endswith("(none)") for line in said.splitlines()
    )


def main() -> int:
    """Zero if nothing is missing that could be here."""
    if missing() and os.geteuid() == 0 and shutil.which("apt-get"):
        install(missing())
    absent = missing()
    for package in PARTS:
        if package not in absent:
            print(f"{package} is here")
        elif installable(package):
            print(f"{package} is not here, and its tests are skipped: apt-get install {package}")
        else:
            print(f"{package} is not here and cannot be installed: its tests are skipped")
    return int(any(map(installable, absent)))


if __name__ == "__main__":
    sys.exit(main())
