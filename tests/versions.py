"""A small suite against other versions: the oldest and newest Python on this machine, and brokers of other Kafka releases. `make versions`.

    python -m tests.versions                       all of it
    python -m tests.versions 3.6.2 4.0.1           these releases of Kafka
    python -m tests.versions python3.13            this interpreter

It takes minutes and needs a network the first time, so it is no part of `.ci/run`. A Kafka comes with all that it names from the Maven
repositories of this machine, into the cache; each Python gets an environment in `build/versions`. Nothing is left running.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headgate.agents.broker import ivy, jars
from headgate.agents.broker.guard import Lease
from headgate.agents.broker.java import find_java
from headgate.agents.broker.places import cache_dir
from headgate.agents.broker.ports import choose_ports
from headgate.agents.broker.settings import HOST, server_properties
from headgate.agents.broker.storage import BrokerIdentity, random_id
from headgate.agents.broker.wire import ask_cluster

ROOT = Path(__file__).resolve().parents[1]
KAFKAS = ("3.6.2", "3.9.2", "4.0.1", "4.2.0")
"""The oldest that is supported, the last of 3, the first of 4, and one before that of the embedded broker, on which all tests run."""
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
ON_KAFKA = ("tests/e2e/test_kafka_side.py", "tests/e2e/test_state_survives.py", "tests/e2e/test_bounded.py")
ON_PYTHON = (
    "tests/core/progress",
    "tests/core/task",
    "tests/agents/testing/test_driver.py",
    "tests/agents/records/kafka/test_columns.py",
    *ON_KAFKA,
)
READY_S = 240.0
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


def classpath(release: str) -> str:
    """The jars of a release, with all that they name."""
    home = cache_dir() / "kafka-versions" / release
    if not home.exists():
        with tempfile.TemporaryDirectory(prefix="headgate-ivy-") as scratch:
            settings = Path(scratch) / "settings.xml"
            found = ivy.ivysettings(ivy.repositories(Path.home() / ".m2" / "settings.xml"))
            settings.write_text(found.replace("usepoms='false'", "usepoms='true'"))  # a release names what it needs
            into = Path(scratch) / "jars"
            command = [find_java().path, "-jar", str(jars._shipped(jars.pyspark_jars(), "ivy"))]
            command += ["-settings", str(settings), "-cache", f"{scratch}/cache", "-confs", "default"]
            command += ["-dependency", "org.apache.kafka", "kafka_2.13", release]
            command += ["-retrieve", f"{into}/[artifact]-[revision].[ext]", "-types", "jar", "bundle"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            home.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(into, home)
    return f"{home}/*"


@contextlib.contextmanager
def kafka(release: str) -> Iterator[str]:
    """A broker of this release, and its address."""
    java, path = find_java().path, classpath(release)
    home = Path(tempfile.mkdtemp(prefix=f"headgate-kafka-{release}-"))
    lease = Lease(home)
    with Lease.guard(home) as guard:
        try:
            yield from _served(release, java, path, home)
        finally:
            lease.release()
            guard.wait()


def _served(release: str, java: str, path: str, home: Path) -> Iterator[str]:
    (ports,) = choose_ports(BrokerIdentity.new(1, secure=False), None)
    settings, log = home / "server.properties", home / "kafka.log"
    settings.write_text(server_properties(1, [ports], home, None))
    format_it = [java, "-cp", path, "kafka.tools.StorageTool", "format", "-t", random_id(), "-c", str(settings)]
    subprocess.run(format_it, check=True, stdout=subprocess.DEVNULL)
    with log.open("w") as out:
        broker = subprocess.Popen([java, "-Xmx512m", "-cp", path, "kafka.Kafka", str(settings)], stdout=out, stderr=out)
    try:
        give_up = time.monotonic() + READY_S
        while (seen := ask_cluster(HOST, ports.client)) is None or not seen.brokers or seen.controller < 1:
            if broker.poll() is not None or time.monotonic() > give_up:
                raise SystemExit(f"Kafka {release} does not serve:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield f"{HOST}:{ports.client}"
    finally:
        broker.terminate()
        broker.wait(240)


def on_kafka(release: str) -> int:
    """The suite on a broker of this release."""
    with kafka(release) as bootstrap:
        environment = os.environ | {"HEADGATE_TEST_BOOTSTRAP": bootstrap}
        return subprocess.run([sys.executable, *PYTEST, *ON_KAFKA], cwd=ROOT, env=environment, check=False).returncode


def on_python(interpreter: str) -> int:
    """The suite in an environment of this interpreter."""
    home = ROOT / "build" / "versions" / Path(interpreter).name
    python = home / "bin" / "python"
    if not (home / "made").exists():
        subprocess.run([interpreter, "-m", "venv", "--clear", home], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--editable", ".[test]"]
        subprocess.run(pip, cwd=ROOT, check=True)
        (home / "made").touch()
    return subprocess.run([python, *PYTEST, *ON_PYTHON], cwd=ROOT, check=False).returncode


def pythons() -> list[str]:
    """The oldest and the newest that is here; the one that runs this has all other tests."""
    found = [name for name in PYTHONS if _runs(name)]
    mine = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [name for name in dict.fromkeys([*found[:1], *found[-1:]]) if name != mine]


def _runs(name: str) -> bool:
    found = shutil.which(name)
    return found is not None and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode


def main(wanted: list[str]) -> None:
    """Run them one after the other, and say how it went."""
    said: dict[str, int] = {}
    for name in wanted or [*pythons(), *KAFKAS]:
        print(f"\n=== {name}", flush=True)
        said[name] = on_kafka(name) if name[0].isdigit() else on_python(name)
    print("\n" + "\n".join(f"{'ok' if code == 0 else 'FAILED':8}{name}" for name, code in said.items()))
    raise SystemExit(any(said.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
