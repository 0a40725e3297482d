"""The documentation as a site: `make site`. Pages stay as GitHub reads them; what the generator wants otherwise is changed in a copy.

It decides the order of the pages (that of `docs/index.md`, by its headings), and what the copy holds: every page, and every file that one
links to, at its place in the repository, so that links stay as they are. Its promise: a page that is in no list, and a link or an anchor
that leads nowhere, fail the build.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.chromium import PROGRAM

from .page_pictures import make
from .pages import ROOT, Page, pages

HOME = ROOT / "build" / "site"
SOURCE = HOME / "pages"
INDEX = "docs/index.md"
FIRST = {"README.md": "index.md"}
"""A page that has another name on the site."""
BELOW = {"docs/reference/python.md": "docs/reference/api", "docs/machines/index.md": "docs/machines"}
"""Pages whose own list is a part of the navigation: the pages of this directory."""
LAST = {"Project": ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")}
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})\w*")
APART = re.compile(r"[-*] |\d+\. |\||#|<!--")
"""What begins a line that is no sentence."""
PICTURE = re.compile(
    r'<picture>\n<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\n<img alt="([^"]*)" src="([^"]+)">\n</picture>'
)
"""What GitHub shows in light or dark as the reader has it; the site has marks for both, since its readers may choose."""
ITEM = re.compile(r"[-*] |\d+\. ")
OPTIONS = """\
[project]
site_name = "headgate"
site_description = "A stream processor for teams that use Kafka and write Python"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = {nav}

[project.theme]
font = false
features = ["content.code.copy", "navigation.sections", "navigation.top", "navigation.footer", "search.highlight"]

[[project.theme.palette]]
media = "(prefers-color-scheme)"
toggle.icon = "lucide/sun-moon"
toggle.name = "Light"

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "As the system"

[project.validation]
invalid_links = true
invalid_link_anchors = true

[project.markdown_extensions]
tables = {{}}
toc.permalink = true
toc.slugify.object = "pymdownx.slugs.slugify"
toc.slugify.kwds.case = "lower"
pymdownx.highlight.anchor_linenums = false
pymdownx.superfences.custom_fences = [
  {{ name = "mermaid", class = "mermaid", format = "pymdownx.superfences.fence_code_format" }},
]
"""


def listed(index: Page) -> dict[str, list[str]]:
    """The pages of each heading of the list of pages, in order."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in index.prose:
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        for to, _ in LINK.findall(line):
            found.setdefault(heading, []).append((Path(index.name).parent / to).as_posix())
    return found


def navigation(known: dict[str, Page]) -> list[dict[str, object]]:
    """What stands at the side: headings, their pages by title, and under some pages their own lists."""
    entries: list[dict[str, object]] = [{"headgate": FIRST["README.md"]}, {"Documentation": INDEX}]
    for heading, names in {**listed(known[INDEX]), **LAST}.items():
        below: list[dict[str, object]] = []
        for name in names:
            below.append({title(known[name]): name})
            if directory := BELOW.get(name):
                own = [other for other in sorted(known) if other.startswith(f"{directory}/") and other != name]
                below[-1] = {title(known[name]): [name, *({title(known[one]): one} for one in own)]}
        entries.append({heading: below})
    return entries


def title(page: Page) -> str:
    """The first heading."""
    return next(line.removeprefix("# ") for line in page.prose if line.startswith("# "))


def unlisted(known: dict[str, Page]) -> list[str]:
    """Pages that would stand at no side."""
    shown = set(re.findall(r'"([^"]+\.md)"', json.dumps(navigation(known))))
    return sorted(set(known) - shown - set(FIRST))


def copied(name: str, text: str) -> str:
    """The page for the generator: a fence names only its language, a list stands apart from the text above it, README is the first page."""
    lines: list[str] = []
    fenced, above = "", ""
    for line in text.splitlines():
        mark = FENCE.match(line.lstrip())
        if fenced:
            fenced = "" if line.strip() == fenced else fenced
        elif mark:
            fenced = mark["marks"]
            line = line[: len(line) - len(line.lstrip())] + mark.group()
        elif ITEM.match(line) and above.strip() and not above.startswith(" ") and not APART.match(above):
            lines.append("")
        lines.append(line)
        above = "" if fenced else line
    copy = "\n".join(lines) + "\n"
    copy = PICTURE.sub(r"![\2](\3#only-light)\n![\2](\1#only-dark)", copy)
    for page, other in FIRST.items():
        copy = copy.replace(f"]({'../' * name.count('/')}{page}", f"]({'../' * name.count('/')}{other}")
    return copy


def write() -> None:
    """Make the copy."""
    shutil.rmtree(HOME, ignore_errors=True)
    known = {page.name: page for page in pages()}
    if missing := unlisted(known):
        raise SystemExit(f"no list names {', '.join(missing)}: add a line to {INDEX}")
    for name, page in known.items():
        to = SOURCE / FIRST.get(name, name)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(copied(name, (ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
        for picture in PICTURE.findall((ROOT / name).read_text(encoding="utf-8")):
            for file in ((ROOT / name).parent / picture[0], (ROOT / name).parent / picture[2]):
                other = SOURCE / file.resolve().relative_to(ROOT)
                other.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, other)
        for _, target in page.links():
            file = ((ROOT / name).parent / target.partition("#")[0]).resolve()
            if "://" in target or file.suffix == ".md" or not file.is_file():
                continue
            other = SOURCE / file.relative_to(ROOT)
            other.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, other)
    (HOME / "zensical.toml").write_text(OPTIONS.format(nav=inline(navigation(known))), encoding="utf-8")


def inline(value: object) -> str:
    """The value in TOML's words."""
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {inline(one)}' for key, one in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    """Make the copy, and build it. Where there is a Chromium, the copy has pictures of the page as it is now."""
    write()
    if PROGRAM is not None and os.environ.get("PICTURES") != "no":
        asyncio.run(make(SOURCE / "docs/pictures"))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "zensical.toml"]
    built = subprocess.run(command, cwd=HOME, check=False)
    if built.returncode:
        raise SystemExit(built.returncode)
    print(f"the site is in {(HOME / 'site').relative_to(ROOT)}: open index.html")


if __name__ == "__main__":
    main()
