"""`headgate new NAME`: a directory with a job, its test, settings, an image, a workflow that runs the test, and a page about all of it.

The files are the templates in `templates/`. `{NAME}` in them is the job, `{MODULE}` the Python module that it is in, `{VERSION}` the
version of headgate.

Promises: nothing that exists is changed; a directory is taken only if it is empty. A name that could be no job or no module, or that would
hide another module, is refused before anything is written. Exit codes: 0, or 2 if the name or the directory cannot be taken.
"""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

import click

from .... import __version__
from ....core.errors import DeclarationError
from ....core.names import JobName
from ..group import Mistyped
from ..output import show_text

TEMPLATES = Path(__file__).parents[1] / "templates"
FILES = {
    # file: its template; the module and its test are named after the job
    "{MODULE}.py": "job.py.txt",
    "test_{MODULE}.py": "test_job.py.txt",
    "headgate.toml": "headgate.toml.txt",
    "requirements.txt": "requirements.txt.txt",
    "Dockerfile": "Dockerfile.txt",
    ".github/workflows/test.yml": "test.yml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Make a directory NAME with a job, its test, settings, a Dockerfile, a CI workflow and a README."""
    module = module_of(name)
    directory = Path(name)
    made = write(directory, name, module)
    for path in made:
        show_text(path)
    show_text(f"\nTry it:\n  cd {name}\n  python -m pytest\n  headgate dev {module}:app", err=True)
    show_text(f"\n{directory / 'README.md'} says more.", err=True)


def module_of(name: str) -> str:
    """The module of a job of this name.

    >>> module_of("web-sales")
    'web_sales'
    """
    JobName(name)
    module = name.replace("-", "_")
    if not module.isidentifier() or keyword.iskeyword(module):
        raise DeclarationError(
            f"'{name}' cannot be the name of a Python module",
            remedy="use letters, digits, '_' and '-', begin with a letter, and take no word of Python's, for example web-sales",
        )
    from importlib.metadata import (
        packages_distributions,
    )  # a tenth of what a command imports, and only this one needs it

    if module in sys.stdlib_module_names or module in packages_distributions():
        raise DeclarationError(
            f"'{name}' would hide the module {module} that is installed here",
            remedy=f"take another name, for example {name}-job",
        )
    return module


def write(directory: Path, name: str, module: str) -> list[Path]:
    """Write the files, and return their paths."""
    if directory.is_symlink() or (directory.exists() and not (directory.is_dir() and not any(directory.iterdir()))):
        raise Mistyped(
            f"'{directory}' exists and is not an empty directory", remedy="take another name, or move it away"
        )
    directory.mkdir(exist_ok=True)
    made: list[Path] = []
    for file, template in FILES.items():
        path = directory / filled(file, name, module)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(filled((TEMPLATES / template).read_text(encoding="utf-8"), name, module), encoding="utf-8")
        made.append(path)
    return made


def filled(text: str, name: str, module: str) -> str:
    """A template with this job in it."""
    return text.replace("{NAME}", name).replace("{MODULE}", module).replace("{VERSION}", __version__)
