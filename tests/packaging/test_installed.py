"""headgate works from a wheel, which was made from an sdist, as it works from the source tree."""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from headgate.agents.cli.start.new import write

from ..docs.container_files import dockerfile
from .conftest import ROOT, Environment, fresh, run

HEAVY = ("pyspark", "pyarrow", "faust", "aiohttp")
ROOMS = {
    "headgate": "headgate",
    "core": "headgate/core",
    "agents": "headgate/agents",
    "spark_bridge": "headgate/spark_bridge",
    "docs": "headgate/docs",
}


def in_tree() -> set[str]:
    """Every file of the rooms and every page, under the name that it has when installed."""
    return {
        f"{name}/{path.relative_to(ROOT / room).as_posix()}"
        for room, name in ROOMS.items()
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def is_compiled(name: str) -> bool:
    """The compiled part, which is there or not, and its source, which only the sdist needs."""
    return name.endswith((".c", ".h", ".so"))


def test_the_wheel_holds_every_file_of_the_rooms_and_nothing_else(wheel: Path) -> None:
    """Sources, `py.typed`, and all that is not Python: checksums, pages, schemas."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    inside = {name for name in names if ".dist-info/" not in name and not is_compiled(name)}
    tree = {name for name in in_tree() if not is_compiled(name)}
    assert (sorted(tree - inside), sorted(inside - tree)) == ([], [])
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_sdist_can_build_itself_and_holds_the_licence(sdist: Path) -> None:
    """The wheel of these tests was built from it; what people look for is in it."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "agents/records/native").glob("*.[ch]")}
    assert {"LICENSE", "README.md", "setup.cfg", "setup.py", "pyproject.toml", *sources} <= names


def test_import_comes_from_the_installed_copy(installed: Environment) -> None:
    """Not from the source tree, and not from the editable install beside it."""
    place = installed.says("import headgate, headgate.core.machine as m; print(headgate.__file__); print(m.__file__)")
    for line in place.splitlines():
        assert Path(line).is_relative_to(installed.home), line


def test_the_command_is_installed(installed: Environment) -> None:
    """`headgate --help` says what there is."""
    assert "Usage: headgate" in run([installed.headgate, "--help"], cwd=installed.home)


def test_what_an_error_names_can_be_read(installed: Environment) -> None:
    """Whoever is woken at night has a container, and neither a clone nor a browser."""
    said = run([installed.headgate, "docs", "troubleshooting#a-task-has-failed"], cwd=installed.home)
    assert said.startswith("## A task has failed")


def test_the_version_is_the_same_everywhere(installed: Environment) -> None:
    """What pip says and what the package says."""
    program = "import headgate, importlib.metadata as m; print(headgate.__version__ == m.version('headgate'))"
    assert installed.says(program) == "True"


def test_the_first_job_of_the_readme_needs_nothing_else(installed: Environment) -> None:
    """The job declares itself, with its types and the functions of Spark, on what the installation brought."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (job,) = re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S)[:1]
    assert installed.says(f"{job}\nprint(app.name)") == "sales"


LOADED = f"print(sorted(set(sys.modules) & set({HEAVY!r})))"
PROGRAMS = {
    "import headgate": f"import headgate, sys; {LOADED}",
    "headgate --help": (
        "import sys, io, contextlib; sys.argv = ['headgate', '--help']\n"
        "from headgate.agents.cli.group import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\n"
        f"{LOADED}"
    ),
    "the pytest plugin": f"import headgate.agents.testing.pytest_plugin, sys; {LOADED}",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_nothing_heavy_is_imported_before_it_is_needed(what: str, installed: Environment) -> None:
    """Half a second of Spark and Faust is not paid by who asks for help."""
    assert installed.says(PROGRAMS[what]) == "[]"


def test_a_typed_program_against_the_public_names_is_accepted(installed: Environment, tmp_path: Path) -> None:
    """pyright, strict, sees the types of an installed headgate; and a wrong program is refused, so it does look."""
    right = Path(__file__).with_name("typed_program.py").read_text(encoding="utf-8")
    (tmp_path / "right.py").write_text(right, encoding="utf-8")
    (tmp_path / "wrong.py").write_text("import headgate as hg\n\nversion: int = hg.__version__\n", encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}), encoding="utf-8")
    pyright = Path(sys.executable).with_name("pyright")
    with pytest.raises(pytest.fail.Exception) as said:
        run([pyright, "--pythonpath", installed.python, "right.py", "wrong.py"], cwd=tmp_path)
    assert re.findall(r"(\w+\.py):\d+:\d+ - (.*)", str(said.value)) == [
        ("wrong.py", 'error: Type "str" is not assignable to declared type "int"')
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_wheel_in_a_truly_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """As a user does it: an empty environment, and in it what the image of a new job and its workflow run. `pip` finds our wheel in a
    directory, and all that it pulls in at the index.
    """
    environment = fresh(tmp_path / "env")
    home = tmp_path / "web-sales"
    write(home, "web-sales", "web_sales")
    steps = [one.text for one in dockerfile((home / "Dockerfile").read_text(encoding="utf-8")) if one.name == "RUN"]
    steps += re.findall(r"- run: (.*)", (home / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert len(steps) == 5
    here = f"PATH={environment.home / 'bin'}:$PATH PIP_FIND_LINKS={wheel.parent} PIP_DISABLE_PIP_VERSION_CHECK=1"
    here += " PIP_NO_COMPILE=1"  # Python compiles what it imports, which is a fraction
    try:
        said = [run(["sh", "-c", f"export {here}; {step}"], cwd=home, timeout_s=800) for step in steps]
    except pytest.fail.Exception as failure:
        if any(
            sign in str(failure)
            for sign in ("NewConnectionError", "ConnectionError", "ProxyError", "NameResolutionError")
        ):
            pytest.skip("the package index cannot be reached from here")
        raise
    assert "1 passed" in said[-1]
    assert environment.says("import headgate; print(headgate.__version__)")
    assert "Usage: headgate" in run([environment.headgate, "--help"], cwd=tmp_path)
    missing = run([environment.python, "-m", "pip", "check"], cwd=tmp_path)
    assert "No broken requirements" in missing, missing
    assert os.access(environment.headgate, os.X_OK)
