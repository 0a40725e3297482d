"""What is built once for the packaging tests: an sdist, a wheel from it, and an environment that sees headgate only from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_BUILT = (
    ".*",
    "*.egg-info",
    "*.so",
    "__pycache__",
    "artifacts",
    "bench",
    "build",
    "dist",
    "spark-warehouse",
    "tests",
)
"""What the tree has beside the sources, or makes of them."""


def run(arguments: Iterable[object], *, cwd: Path, timeout_s: float = 300) -> str:
    """What a command prints; its failure fails the test with all that it said."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        pytest.fail(
            f"{' '.join(map(str, arguments))}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False
        )
    return done.stdout


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment outside of the source tree."""

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def headgate(self) -> Path:
        """The installed command."""
        return self.home / "bin" / "headgate"

    def says(self, program: str) -> str:
        """What a program prints here."""
        return run([self.python, "-c", program], cwd=self.home).strip()


def fresh(home: Path) -> Environment:
    """An empty environment with pip."""
    venv.create(home, with_pip=True, symlinks=True)
    return Environment(home)


def beside(home: Path, artifact: Path) -> Environment:
    """An environment with headgate from the artifact, and what headgate needs from the environment of the tests.

    The path file adds the outer packages behind the own ones and runs none of their path files, so an editable headgate out
    there is not seen.
    """
    environment = fresh(home)
    inner = environment.says("import sysconfig; print(sysconfig.get_path('purelib'))")
    Path(inner, "outer.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [environment.python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*pip, "uninstall", "--yes", "setuptools"], cwd=home)  # an old one of this Python's would hide the outer one
    run([*pip, "install", "--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall", artifact], cwd=home)
    return environment


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was made from that sdist, as an index would make it.

    A build writes into its tree, where the one of another pytest worker would find it. So each has a tree of its own.
    """
    out, tree = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source") / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_BUILT))
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree], cwd=out)
    return out


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def sdist(built: Path) -> Path:
    (found,) = built.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """headgate installed from the wheel. `pip` would make the same of the sdist: it asks the same backend for a wheel of it."""
    return beside(tmp_path_factory.mktemp("wheel") / "env", wheel)
