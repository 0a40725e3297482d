"""With which settings a session starts, what is shipped to executors, and where a cluster is looked for."""

from __future__ import annotations

import socket
import sys
import zipfile
from pathlib import Path

import pytest

from headgate.core.errors import SettingError
from headgate.spark_bridge.cluster import addresses, reachable
from headgate.spark_bridge.conf import for_connect, for_jvm, memory
from headgate.spark_bridge.errors import SparkAway, SparkDown
from headgate.spark_bridge.executor_check import look
from headgate.spark_bridge.package import modules_in, paths_of, shippable


def test_the_user_s_settings_win_and_memory_is_bounded() -> None:
    """Those of this worker's own directory do not."""
    conf = for_jvm("local[2]", {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "9"}, "/tmp/d")
    assert (conf["spark.master"], conf["spark.sql.shuffle.partitions"]) == ("local[2]", "9")
    assert memory(conf) == {"spark.driver.memory": "3g", "spark.executor.pyspark.memory": "2g"}
    assert conf["spark.driver.host"] == "127.0.0.1"
    assert "-Djava.io.tmpdir=/tmp/d" in conf["spark.driver.defaultJavaOptions"]


def test_options_of_java_are_added_to_ours() -> None:
    """Both count."""
    conf = for_jvm("local[2]", {"spark.driver.defaultJavaOptions": "-Xss4m"}, "/tmp/d")
    assert conf["spark.driver.defaultJavaOptions"].endswith("/tmp/d -Xss4m")


def test_executors_elsewhere_must_reach_the_driver() -> None:
    """So it does not bind to the loopback there, and the memory of Python workers is a matter of the cluster."""
    conf = for_jvm("spark://host:7077", {}, "/tmp/d")
    assert not {"spark.driver.host", "spark.executor.pyspark.memory"} & set(conf)


def test_a_path_that_is_too_long_for_a_socket_is_not_used_for_one() -> None:
    """Linux knows 108 letters."""
    assert for_jvm("local[2]", {}, "/" + "x" * 80)["spark.python.unix.domain.socket.enabled"] == "false"


def test_a_connect_server_gets_the_settings_of_a_session_only() -> None:
    """The others are named, because they have no effect."""
    conf, theirs = for_connect({"spark.sql.shuffle.partitions": "9", "spark.driver.memory": "3g"})
    assert conf["spark.sql.shuffle.partitions"] == "9"
    assert all(name.startswith("spark.sql.") for name in conf)
    assert theirs == ["spark.driver.memory"]


# --------------------------------------------------------------------------------------------------------------- spark.package


def made(directory: Path) -> tuple[Path, Path, Path]:
    package, source, single = directory / "pkg", directory / "src", directory / "single.py"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("A = 1\n")
    (package / "__pycache__" / "x.pyc").write_text("")
    (source / "deep").mkdir(parents=True)
    (source / "top.py").write_text("B = 2\n")
    (source / "deep" / "__init__.py").write_text("")
    single.write_text("C = 3\n")
    return package, source, single


def test_directories_become_archives_that_import_as_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with its name, any other directory as if it were on the path."""
    given = made(tmp_path / "given")
    paths = paths_of(", ".join(map(str, given)))
    assert modules_in(paths) == {"pkg", "top", "deep", "single"}
    target = tmp_path / "target"
    target.mkdir()
    files = shippable(paths, target)
    assert [Path(file).name for file in files] == ["pkg.zip", "src.zip", "single.py"]
    assert zipfile.ZipFile(files[0]).namelist() == ["pkg/__init__.py"]
    assert modules_in([Path(files[1])]) == {"top", "deep"}


def test_a_wheel_is_an_archive(tmp_path: Path) -> None:
    """Spark puts only what it knows on the path."""
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/__init__.py", "")
    (file,) = shippable(paths_of(str(wheel)), tmp_path)
    assert file.endswith(".zip")


@pytest.mark.parametrize(("name", "says"), [("nowhere.py", "does not exist"), ("data.csv", "neither a .py file")])
def test_what_cannot_be_shipped_is_said_before_anything_starts(tmp_path: Path, name: str, says: str) -> None:
    """With the path as it was understood."""
    (tmp_path / "data.csv").write_text("")
    with pytest.raises(SettingError, match=says):
        paths_of(str(tmp_path / name))


# ----------------------------------------------------------------------------------------------------------------- a cluster


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_master_that_nobody_answers_for_is_said_in_seconds() -> None:
    """Spark itself tries for a minute, and the Connect client for ten."""
    port = closed_port()
    for url, setting in ((f"spark://127.0.0.1:{port}", "spark.master"), (f"sc://127.0.0.1:{port}", "spark.remote")):
        with pytest.raises(SparkAway, match=f"127.0.0.1:{port}.*{setting}"):
            reachable(url)


def test_one_master_of_two_is_enough() -> None:
    """The other one stands by."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        reachable(f"spark://127.0.0.1:{closed_port()},127.0.0.1:{server.getsockname()[1]}")


def test_yarn_needs_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own message names neither variable as what is missing here."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(SparkDown, match="HADOOP_CONF_DIR"):
        reachable("yarn")
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    reachable("yarn")


def test_addresses_are_read_from_every_kind_of_url() -> None:
    """Also with a port that is not said, and of version six."""
    assert addresses("spark://[::1]:7077") == [("::1", 7077)]
    assert addresses("sc://host:15003/;user_id=x;token=y") == [("host", 15003)]
    assert addresses("local[2]") == []


def test_an_executor_says_what_it_lacks() -> None:
    """All at once, so that one repair is enough."""
    python = list(sys.version_info[:2])
    fine = look({"python": python, "modules": ["json"], "brokers": []})(0)
    assert not fine.startswith("!")
    port = closed_port()
    lacks = look({"python": [2, 7], "modules": ["nosuchmodule"], "brokers": [f"127.0.0.1:{port}"]})(0)
    assert lacks.startswith("!")
    for part in ("and the worker 2.7", "has no module 'nosuchmodule'", f"cannot reach the broker 127.0.0.1:{port}"):
        assert part in lacks
