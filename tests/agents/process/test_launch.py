"""From MODULE:app to a worker that may start: code, processor id, location."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.launch import (
    Identity,
    bound_inputs,
    load_app,
    location_of,
    state_root,
    stored_location,
    take_seat,
    worker_options,
)
from headgate.core.errors import DeclarationError, EnvironmentFault, SettingError

SOURCE = """
import headgate as hg
app = hg.App("launched")
app.input("orders").to("copies")
def make():
    other = hg.App("made")
    other.input("orders").to("copies")
    return other
number = 7
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "launched_job.py").write_text(SOURCE)
    (tmp_path / "launched_broken.py").write_text("import not_there_at_all\n")
    (tmp_path / "launched_raising.py").write_text("number = 1\nraise ValueError('no such country')\n")
    (tmp_path / "launched_typo.py").write_text("import headgate as hg\napp = hg.App('x'\n")
    (tmp_path / "launched_maker.py").write_text("def app():\n    return {}['broker']\ndef lost(x):\n    return x\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def configured(tmp_path: Path, **settings):
    return configure(
        CommandLine("b:1", settings={"state.dir": str(tmp_path / "state"), **settings}), environ={}, directory=tmp_path
    )


def test_an_app_or_a_function_that_returns_one_is_loaded(jobs: Path) -> None:
    """`:app` is the default name."""
    assert [load_app(t, jobs).name for t in ("launched_job:app", "launched_job", "launched_job:make")] == [
        "launched",
        "launched",
        "made",
    ]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere:app", "no module 'nowhere'"),
        ("launched_job:ap", "it has launched_job:app"),
        ("launched_job:number", "is int, not an App"),
        ("launched_broken:app", "not_there_at_all"),
        (":app", "does not name a module"),
    ],
)
def test_what_is_not_there_is_said_with_what_there_is(jobs: Path, target: str, says: str) -> None:
    """A typo in the one argument that everybody types."""
    with pytest.raises(DeclarationError, match=says):
        load_app(target, jobs)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("launched_raising:app", r"ValueError: no such country \(.*launched_raising.py:2\)"),
        ("launched_typo:app", r"SyntaxError: .*never closed \(.*launched_typo.py:2\)"),
        ("launched_maker:app", r"KeyError: 'broker' \(.*launched_maker.py:2\)"),
        ("launched_maker:lost", "missing 1 required positional argument"),
    ],
)
def test_a_mistake_in_the_users_own_lines_is_said_with_its_place(jobs: Path, target: str, says: str) -> None:
    """Nobody reads forty frames of an import system to find the one line that is his."""
    with pytest.raises(DeclarationError, match=says):
        load_app(target, jobs)


def test_bounded_ends_inputs_that_have_no_end_of_their_own(jobs: Path) -> None:
    """`--bounded` makes a batch of a stream."""
    app = load_app("launched_job:make", jobs)
    bound_inputs(app)
    assert [one.until for one in app.graph().inputs] == ["newest"]


def test_the_smallest_free_number_of_this_host_is_taken_and_a_restart_gets_it_back(tmp_path: Path) -> None:
    """Ids are stable over restarts, and two workers never share one."""
    first, second = take_seat(tmp_path, host="pod.example"), take_seat(tmp_path, host="pod.example")
    assert (first.processor, second.processor) == ("pod-0", "pod-1")
    first.leave()
    assert take_seat(tmp_path, host="pod.example").processor == "pod-0"


def test_a_given_id_that_is_held_is_not_free_and_is_not_refused_here(tmp_path: Path) -> None:
    """Whether the other one lives is for the member to find out."""
    first = take_seat(tmp_path, "w1")
    assert (first.free, take_seat(tmp_path, "w1").free) == (True, False)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """The kernel lets go of it, however the process died."""
    code = (
        "import sys, pathlib; from headgate.agents.process.launch import take_seat; "
        "take_seat(pathlib.Path(sys.argv[1]), 'w1'); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"seat = None\n{code.replace('take_seat(pathlib', 'seat = take_seat(pathlib')}",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert take_seat(tmp_path, "w1").free is False
    process.kill()
    process.wait(240)
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()
    assert take_seat(tmp_path, "w1").free is True


def test_a_lock_file_names_the_processes_that_have_held_it(tmp_path: Path) -> None:
    """They are dead, whatever location they claim. The last twenty are enough; a file of an older version names none."""
    seat = take_seat(tmp_path, "w1")
    assert (seat.free, seat.forerunners) == (True, frozenset())
    seat.sign("p0")
    assert take_seat(tmp_path, "w1").forerunners is None  # it is not free: it says nothing of who is dead
    for n in range(1, 25):
        seat.leave()
        seat.sign("nobody")  # it does not hold it any more
        seat = take_seat(tmp_path, "w1")
        assert seat.forerunners == {f"p{before}" for before in range(max(0, n - 20), n)}
        seat.sign(f"p{n}")
    seat.leave()
    (tmp_path / ".workers" / "w1.lock").write_text("4711\n")
    seat = take_seat(tmp_path, "w1")
    assert (seat.free, seat.forerunners) == (True, None)
    seat.sign("later")
    seat.leave()
    assert take_seat(tmp_path, "w1").forerunners == {"later"}


def test_the_location_is_written_once_also_by_many_at_a_time(tmp_path: Path) -> None:
    """Workers that share the directory share the location; nobody reads half of one."""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(stored_location(tmp_path / "s"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["location"]


def rack(_: Path) -> str:
    """A provider of one's own."""
    return "rack-7"


def test_a_location_provider_of_ones_own_is_asked(jobs: Path) -> None:
    """By import path; one that is not there is an error of the setting. A worker registers it, and nothing of its machine (Samza's hole 15:
    it registered its host name, and its tasks the provider's id). `test_assignment` shows that its tasks have it, too.
    """
    import types

    module = types.ModuleType("launched_provider")
    module.rack = rack
    sys.modules["launched_provider"] = module
    try:
        configuration = configured(jobs, **{"location.provider": "launched_provider:rack"})
        assert location_of(configuration, jobs / "x") == "rack-7"
        app = load_app("launched_job:app", jobs)
        root = state_root(configuration, app.job)
        seat = take_seat(root, "w1")
        options = worker_options(app, configuration, seat, Identity("w1"), root=root, url="http://x")
        seat.leave()
        assert options.location == "rack-7"
    finally:
        del sys.modules["launched_provider"]
    with pytest.raises(SettingError, match="cannot be imported"):
        location_of(configured(jobs, **{"location.provider": "launched_provider:rack"}), jobs / "x")


@pytest.mark.parametrize(
    ("provider", "found"),
    [("host", socket.gethostname()), ("env:LAUNCHED_RACK", "rack-3"), ("kubernetes-ordinal", "ordinal-4")],
)
def test_a_location_is_read_of_this_machine(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, provider: str, found: str
) -> None:
    """Its host name and its environment; the state directory is not asked for an id that nobody uses."""
    monkeypatch.setenv("LAUNCHED_RACK", "rack-3")
    monkeypatch.setenv("POD_NAME", "shop-4")
    assert location_of(configured(jobs, **{"location.provider": provider}), jobs / "state" / "x") == found
    assert not (jobs / "state").exists()


def test_a_location_that_is_not_there_is_an_error_at_the_start(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt provider, a variable that is not set, an empty file in the state directory."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    with pytest.raises(SettingError, match="cannot be imported") as raised:
        location_of(configured(jobs, **{"location.provider": "kubernetes_node"}), jobs / "x")
    assert (
        "kubernetes-node, kubernetes-pod, kubernetes-ordinal, env:NAME, or package.module:name" in raised.value.remedy
    )
    with pytest.raises(SettingError, match="NODE_NAME, which is not set"):
        location_of(configured(jobs, **{"location.provider": "kubernetes-node"}), jobs / "x")
    (jobs / "location").write_text("\n")
    with pytest.raises(SettingError, match=f"the id in {jobs / 'location'} is empty") as raised:
        location_of(configured(jobs), jobs / "x")
    assert raised.value.remedy == f"remove {jobs / 'location'}: the next start writes another id"


def test_a_state_directory_that_cannot_be_used_is_said_with_its_name(tmp_path: Path) -> None:
    """Not a traceback out of the depths."""
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="state directory"):
        take_seat(tmp_path / "file" / "below")


def test_the_directory_of_a_jobs_state_is_for_its_user_alone(tmp_path: Path) -> None:
    """A new one, one that an older version made for everybody, and one that is private already."""
    old, kept = tmp_path / "old", tmp_path / "kept"
    for path, mode in ((old, 0o755), (kept, 0o700)):
        path.mkdir()
        path.chmod(mode)
    for path in (tmp_path / "state" / "new", old, kept):
        take_seat(path).leave()
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_directory_of_another_user_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could read all that the worker writes."""
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(EnvironmentFault, match="belongs to user") as error:
        take_seat(tmp_path)
    assert "chown -R" in error.value.remedy


def test_what_belongs_to_one_worker_does_not_enter_the_run(jobs: Path) -> None:
    """The run's settings stand in a topic: neither this worker's port nor its directory does."""
    configuration = configured(jobs, **{"web.port": 0, "commit.interval": "1s", "spark.spool": "/shared/spool"})
    app = load_app("launched_job:make", jobs)
    root = state_root(configuration, app.job)
    seat = take_seat(root, "w1")
    for wrong in ("x y", "x\n", " ", "x" * 201):
        with pytest.raises(DeclarationError, match="run id"):
            worker_options(app, configuration, seat, Identity("w1", run_id=wrong), root=root)
    options = worker_options(app, configuration, seat, Identity("w1", run_id="r7"), root=root, url="http://x")
    assert dict(options.settings) == {"commit.interval": "1s"}
    assert (options.alone["spark.spool"], "commit.interval" in options.alone) == ("/shared/spool", False)
    assert (options.processor, options.run_id, options.lock_free, options.state_dir) == (
        "w1",
        "r7",
        True,
        jobs / "state",
    )
    seat.leave()
