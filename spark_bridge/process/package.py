"""`spark.package`: code that the executors need, as Spark ships it: files with one module each, and archives.

A directory becomes an archive. If it is a package (it holds `__init__.py`), the archive contains the package; otherwise it contains what
is in the directory, as a directory on `PYTHONPATH` would give it.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...core.errors import SettingError
from .conf import code_paths

ARCHIVES = (".zip", ".egg", ".whl", ".jar")
SKIPPED = frozenset({"__pycache__", ".git", ".venv", "node_modules"})


def paths_of(text: str) -> tuple[Path, ...]:
    """The paths in a setting. Raises `SettingError` for one that does not exist or is nothing that can be shipped."""
    found: list[Path] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        path = Path(word).expanduser().absolute()
        if not path.exists():
            raise SettingError(
                f"spark.package: {path} does not exist", remedy="name a .py file, a directory or an archive"
            )
        if path.is_file() and path.suffix not in (".py", *ARCHIVES):
            raise SettingError(
                f"spark.package: {path} is neither a .py file, a directory, nor one of {', '.join(ARCHIVES)}",
                remedy="archives of other kinds, such as a packed environment, go into spark.archives",
            )
        found.append(path)
    return tuple(found)


def shippable(paths: Iterable[Path], directory: Path) -> list[str]:
    """Files that Spark can ship; those that must be made are written to this directory."""
    return [str(_one(path, directory)) for path in paths]


def _one(path: Path, directory: Path) -> Path:
    if path.is_file() and path.suffix != ".whl":
        return path
    made = directory / f"{path.stem if path.is_file() else path.name}.zip"
    if path.is_file():  # Spark knows what a .zip is, and a wheel is one
        shutil.copyfile(path, made)
        return made
    above = path.parent if (path / "__init__.py").exists() else path
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path.rglob("*")):
            inside = file.relative_to(above)
            if file.is_file() and SKIPPED.isdisjoint(inside.parts):
                archive.write(file, inside.as_posix())
    return made


def modules_in(paths: Sequence[Path]) -> set[str]:
    """The names of the modules and packages at the top of what is shipped."""
    found: set[str] = set()
    for path in paths:
        if path.suffix == ".py":
            found.add(path.stem)
        elif path.is_dir() and (path / "__init__.py").exists():
            found.add(path.name)
        elif path.is_dir():
            found |= {one.stem for one in path.iterdir() if one.suffix == ".py" or (one / "__init__.py").exists()}
        else:
            with zipfile.ZipFile(path) as archive:
                found |= set(_modules_of(archive.namelist()))
    return found


def _modules_of(names: Iterable[str]) -> Iterator[str]:
    """The modules and packages at the top of an archive; metadata, classes of Java and data are none.

    >>> sorted(_modules_of(["a.py", "b/__init__.py", "b/c.py", "b-1.0.dist-info/METADATA", "META-INF/MANIFEST.MF", "data/x.csv"]))
    ['a', 'b']
    """
    for name in names:
        top, _, rest = name.partition("/")
        if not rest and top.endswith(".py") and top != "__main__.py":
            yield top.removesuffix(".py")
        elif rest == "__init__.py":
            yield top


def travel_with_functions(shipped: Sequence[Path]) -> list[str]:
    """Let the functions of the job's own modules travel to the executors as they are, without importing their module there. Returns the
    names of those modules: all that are neither installed nor shipped.

    A cluster does not have the file in which the job is declared, nor should it: importing it would need headgate.
    """
    from pyspark import cloudpickle

    there, places = modules_in(shipped), code_paths()
    found: list[str] = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        top = name.partition(".")[0]
        if "." in name or top in there or top in ("headgate", "__main__", "__mp_main__"):
            continue
        if any(file.startswith(place + "/") for place in places) and "site-packages" not in file:
            cloudpickle.register_pickle_by_value(module)
            found.append(name)
    return found
