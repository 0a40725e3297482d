"""With which settings a session starts, what is shipped to executors, and where a cluster is looked for."""

from __future__ import annotations

import json
import socket
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.core.batching.ranges import RangeBroken
from headgate.core.errors import SettingError
from headgate.spark_bridge.base.errors import SparkAway, SparkDown
from headgate.spark_bridge.data.spool import path_of
from headgate.spark_bridge.process.cluster import addresses, complete, reachable
from headgate.spark_bridge.process.conf import for_connect, for_jvm, memory
from headgate.spark_bridge.process.executor_check import look
from headgate.spark_bridge.process.package import modules_in, paths_of, shippable


def test_the_user_s_settings_win_and_memory_is_bounded() -> None:
    """Those of this worker's own directory do not."""
    conf = for_jvm("local[2]", {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "9"}, "/tmp/d")
    assert (conf["spark.master"], conf["spark.sql.shuffle.partitions"]) == ("local[2]", "9")
    assert memory(conf) == {"spark.driver.memory": "3g", "spark.executor.pyspark.memory": "2g"}
    assert conf["spark.driver.host"] == "127.0.0.1"
    assert "-Djava.io.tmpdir=/tmp/d" in conf["spark.driver.defaultJavaOptions"]


def test_tables_that_end_with_the_jvm_are_not_where_the_worker_was_started() -> None:
    """The first use of the catalog makes a directory for tables. A metastore or a setting names another one."""
    name = "spark.sql.warehouse.dir"
    assert for_jvm("local[2]", {}, "/tmp/d")[name] == "/tmp/d/warehouse"
    assert for_jvm("local[2]", {name: "s3a://lake/w"}, "/tmp/d")[name] == "s3a://lake/w"
    assert name not in for_jvm("yarn", {"spark.sql.catalogImplementation": "hive"}, "/tmp/d")


def test_options_of_java_are_added_to_ours() -> None:
    """Both count."""
    conf = for_jvm("local[2]", {"spark.driver.defaultJavaOptions": "-Xss4m"}, "/tmp/d")
    assert conf["spark.driver.defaultJavaOptions"].endswith(" -Xss4m")


def test_executors_elsewhere_must_reach_the_driver() -> None:
    """So it does not bind to the loopback there. Executors and their Python workers have bounds, which a master subtracts from its own."""
    conf = for_jvm("spark://host:7077", {}, "/tmp/d")
    assert "spark.driver.host" not in conf
    assert memory(conf) == {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executor.pyspark.memory": "2g",
    }


def test_python_workers_of_an_executor_share_what_it_has() -> None:
    """Spark divides the setting by the executor's cores. On a local master it does not."""
    for master, cores, each in (("yarn", "4", "8g"), ("k8s://https://api", "many", "2g"), ("local[4]", "4", "2g")):
        assert for_jvm(master, {"spark.executor.cores": cores}, "/tmp/d")["spark.executor.pyspark.memory"] == each
    assert for_jvm("yarn", {"spark.executor.pyspark.memory": "3g"}, "/tmp/d")["spark.executor.pyspark.memory"] == "3g"


@pytest.mark.parametrize(("heap", "result"), [("1g", "512m"), ("6g", "3072m"), ("1m", "1m"), ("much", None)])
def test_a_result_is_refused_before_it_fills_the_heap(heap: str, result: str | None) -> None:
    """A JVM that is out of memory ends, with all batches that it has; a result that is too large only fails its own."""
    conf = for_jvm("local[2]", {"spark.driver.memory": heap}, "/tmp/d")
    assert conf.get("spark.driver.maxResultSize") == result
    given = {"spark.driver.memory": heap, "spark.driver.maxResultSize": "9g"}
    assert for_jvm("local[2]", given, "/tmp/d")["spark.driver.maxResultSize"] == "9g"


def test_what_yarn_and_kubernetes_are_given() -> None:
    """The driver runs beside the worker, and binds to what Spark finds out by itself; whatever the user sets passes through."""
    ours = {
        "spark.kubernetes.container.image": "registry/spark:4",
        "spark.kubernetes.namespace": "jobs",
        "spark.driver.host": "10.0.0.7",
        "spark.yarn.queue": "batches",
        "spark.executor.instances": "4",
    }
    for master in ("yarn", "k8s://https://api:6443"):
        conf = for_jvm(master, ours, "/tmp/d")
        assert ours.items() <= conf.items()
        assert conf["spark.master"] == master
        assert not {"spark.submit.deployMode", "spark.driver.bindAddress", "spark.pyspark.python"} & set(conf)
        assert conf["spark.rpc.message.maxSize"] == "512"


def test_a_path_that_is_too_long_for_a_socket_is_not_used_for_one() -> None:
    """Linux knows 108 letters."""
    assert for_jvm("local[2]", {}, "/" + "x" * 80)["spark.python.unix.domain.socket.enabled"] == "false"


def test_python_workers_in_containers_of_yarn_have_no_unix_sockets() -> None:
    """Spark makes them in the container's temporary directory, whose path is longer than that of a socket may be."""
    enabled, directory = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
    found = [for_jvm(master, {}, "/tmp/d")[enabled] for master in ("yarn", "k8s://https://api", "spark://host:7077")]
    assert found == ["false", "true", "true"]
    assert [
        for_jvm("yarn", {name: value}, "/tmp/d")[enabled] for name, value in ((enabled, "true"), (directory, "/run"))
    ] == [
        "true",
        "true",
    ]


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
        archive.writestr("b.py", "")
        archive.writestr("a-1.dist-info/METADATA", "")
    (file,) = shippable(paths_of(str(wheel)), tmp_path)
    assert file.endswith(".zip")
    assert modules_in([Path(file)]) == {"a", "b"}  # what an executor must be able to import


@pytest.mark.parametrize(("name", "says"), [("nowhere.py", "does not exist"), ("data.csv", "neither a .py file")])
def test_what_cannot_be_shipped_is_said_before_anything_starts(tmp_path: Path, name: str, says: str) -> None:
    """With the path as it was understood."""
    (tmp_path / "data.csv").write_text("")
    with pytest.raises(SettingError, match=says):
        paths_of(str(tmp_path / name))


# ----------------------------------------------------------------------------------------------------------------- a cluster


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens, and nobody else begins to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


def test_a_master_that_no_one_answers_for_is_said_in_seconds(closed_port: int) -> None:
    """Spark itself tries for a minute, and the Connect client for ten."""
    port = closed_port
    for url, setting in ((f"spark://127.0.0.1:{port}", "spark.master"), (f"sc://127.0.0.1:{port}", "spark.remote")):
        with pytest.raises(SparkAway, match=f"127.0.0.1:{port}.*{setting}"):
            reachable(url)


def test_one_master_of_two_is_enough(closed_port: int) -> None:
    """The other one stands by."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        reachable(f"spark://127.0.0.1:{closed_port},127.0.0.1:{server.getsockname()[1]}")


def test_yarn_needs_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own message names neither variable as what is missing here."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(SparkDown, match="HADOOP_CONF_DIR"):
        complete("yarn", {})
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    complete("yarn", {})


def test_kubernetes_needs_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark says so in the stack of its JVM. Defaults of Spark's own may contain it."""
    for name in ("SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SparkDown, match="no image of the executors"):
        complete("k8s://https://api", {})
    complete("k8s://https://api", {"spark.kubernetes.executor.container.image": "spark:4"})
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    complete("k8s://https://api", {})


def test_the_driver_runs_beside_the_worker() -> None:
    """Which takes its results."""
    with pytest.raises(SparkDown, match="deployMode is not client"):
        complete("spark://host", {"spark.submit.deployMode": "cluster"})
    complete("spark://host", {"spark.submit.deployMode": "client"})


def test_addresses_are_read_from_every_kind_of_url() -> None:
    """Also with a port that is not said, and of version six."""
    assert addresses("spark://[::1]:7077") == [("::1", 7077)]
    assert addresses("sc://host:15003/;user_id=x;token=y") == [("host", 15003)]
    assert addresses("local[2]") == []


WANTED = {
    "python": list(sys.version_info[:2]),
    "spark": "",
    "headgate": "",
    "modules": ["json"],
    "brokers": [],
    "kafka": None,
    "spool": None,
}
"""What every executor has."""


def lacks(**wanted: object) -> list[list[str]]:
    """What this process, as an executor, lacks."""
    return json.loads(look({**WANTED, **wanted})(0))["lacks"]


def test_an_executor_says_what_it_lacks(tmp_path: Path, closed_port: int) -> None:
    """All at once, so that one repair is enough."""
    assert lacks() == []
    (tmp_path / "seen").write_text("something")
    port = closed_port
    found = lacks(
        python=[2, 7],
        spark="2.4.8",
        headgate="0.0.7",
        modules=["nosuchmodule", "headgate"],
        brokers=[f"127.0.0.1:{port}"],
        spool=[str(tmp_path / "seen"), "something else"],
    )
    assert [kind for kind, _ in found] == ["python", "spark", "module", "headgate", "broker", "spool"]
    for (_, text), part in zip(
        found,
        (
            "and the worker 2.7",
            "and the worker 2.4.8",
            "has no module 'nosuchmodule'",
            "and the worker 0.0.7",
            f"cannot reach the broker 127.0.0.1:{port}: Connection refused",
            "has another file",
        ),
        strict=True,
    ):
        assert part in text


def test_a_spool_that_an_executor_does_not_see(tmp_path: Path) -> None:
    """It says which file it has looked for."""
    ((kind, text),) = lacks(spool=[str(tmp_path / "nowhere"), ""])
    assert (kind, text) == ("spool", f"cannot read spark.spool, {tmp_path}/nowhere: No such file or directory")


class NotLetIn:
    """A client whose user the brokers do not know."""

    async def start(self) -> None:
        raise RangeBroken("authentication failed")


def test_a_broker_that_does_not_let_an_executor_in() -> None:
    """It can be reached, but a file with a certificate, for example, is on the worker only."""
    ((kind, text),) = lacks(kafka=(f"{__name__}:NotLetIn", ()))
    assert (kind, text) == ("broker", "cannot read from the brokers: RangeBroken: authentication failed")


def test_the_spool_is_a_directory_of_this_machine() -> None:
    """An object store is none, and must not become a directory with a strange name."""
    with pytest.raises(SettingError, match="s3a://bucket"):
        path_of("s3a://bucket/spool")
    assert path_of("spool").is_absolute()
