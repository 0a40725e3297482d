"""What Ivy is told, and how a user's Maven settings become it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from headgate.agents.broker.ivy import Jar, Repository, ivysettings, module, repositories
from headgate.core.errors import EnvironmentFault

HEAD = '<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">'


def written(tmp_path: Path, body: str) -> Path:
    """A settings.xml."""
    path = tmp_path / "settings.xml"
    path.write_text(f"{HEAD}{body}</settings>")
    return path


def test_no_settings_means_the_public_repository(tmp_path: Path) -> None:
    """Nothing configured."""
    assert repositories(tmp_path / "settings.xml") == []
    resolvers = ET.fromstring(ivysettings([])).findall("resolvers/chain/ibiblio")
    assert [resolver.get("root") for resolver in resolvers] == [None]


@pytest.mark.parametrize("pattern", ["*", "central", "external:*", "internal,central"])
def test_a_mirror_of_central_replaces_everything(tmp_path: Path, pattern: str) -> None:
    """With its user, and a password from the environment."""
    path = written(
        tmp_path,
        f"<mirrors><mirror><id>m</id><mirrorOf>{pattern}</mirrorOf><url>https://mirror.example/maven</url></mirror></mirrors>"
        "<servers><server><id>m</id><username>ann</username><password>a&amp;b</password></server></servers>",
    )
    found = repositories(path)
    assert found == [Repository("https://mirror.example/maven", "ann", "a&b")]
    settings = ET.fromstring(ivysettings(found))
    resolver = settings.find("resolvers/chain/ibiblio")
    credentials = settings.find("credentials")
    assert resolver is not None
    assert resolver.get("root") == "https://mirror.example/maven/"
    assert credentials is not None
    assert (credentials.get("host"), credentials.get("username"), credentials.get("passwd")) == (
        "mirror.example",
        "ann",
        "a&b",
    )


@pytest.mark.parametrize("pattern", ["snapshots", "*,!central"])
def test_a_mirror_of_something_else_does_not(tmp_path: Path, pattern: str) -> None:
    """Central stays as it is."""
    path = written(
        tmp_path, f"<mirrors><mirror><id>m</id><mirrorOf>{pattern}</mirrorOf><url>https://x/</url></mirror></mirrors>"
    )
    assert repositories(path) == []


def test_repositories_of_active_profiles_are_used_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Active by name or by default; the others not."""
    monkeypatch.setenv("WHERE", "https://env.example")

    def profile(name: str, url: str, active: str = "false") -> str:
        return (
            f"<profile><id>{name}</id><activation><activeByDefault>{active}</activeByDefault></activation>"
            f"<repositories><repository><id>{name}</id><url>{url}</url></repository></repositories></profile>"
        )

    profiles = profile("a", "https://a/") + profile("b", "https://b/") + profile("c", "${env.WHERE}/c", "true")
    path = written(
        tmp_path, f"<profiles>{profiles}</profiles><activeProfiles><activeProfile>a</activeProfile></activeProfiles>"
    )
    assert [repository.url for repository in repositories(path)] == ["https://a/", "https://env.example/c"]


def test_broken_settings_are_named(tmp_path: Path) -> None:
    """Not XML."""
    (tmp_path / "settings.xml").write_text("<settings>")
    with pytest.raises(EnvironmentFault, match=r"settings\.xml is not XML"):
        repositories(tmp_path / "settings.xml")


def test_a_module_asks_for_its_jars_and_nothing_behind_them() -> None:
    """Intransitive, one artifact each."""
    found = ET.fromstring(module([Jar("org.apache.kafka", "kafka-clients", "4.4.0", 1, "ab")])).findall(
        "dependencies/dependency"
    )
    assert [(d.get("org"), d.get("name"), d.get("rev"), d.get("transitive")) for d in found] == [
        ("org.apache.kafka", "kafka-clients", "4.4.0", "false")
    ]
