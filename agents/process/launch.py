"""Prepares a worker from `MODULE:app` and settings: loads the code, and decides the process's id and location.

Decides:

- The code: an `App`, or a function that returns one, imported with `--app-dir` (default: the current directory) on the path.
- The processor id: the given one, or the host name and the smallest number whose lock file is free here, so that a restarted worker gets
  its old id.
- The location: a random id, written once into the state directory, so that workers that share the directory share the location; or what
  `location.provider` names (`core/coordination/location.py`).
- Whether the previous process with this id is certainly dead: its lock file was free, and names it.

Promises: two processes that start at once never get the same id. A location id is written completely or not at all. The directory of a
job's state is readable only by the user who runs its workers, also one that an older version has made.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import secrets
import socket
import stat
import sys
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ... import __version__
from ...core.coordination.location import DEFAULT, PROVIDERS, built_in, checked, provided
from ...core.coordination.requests import run_id_problem
from ...core.errors import DeclarationError, EnvironmentFault, HeadgateError, SettingError
from ...core.names import JobName, processor_id
from ...core.settings import JOB, find, secrets_of, stream_problem
from ...core.user_rule import called
from ..by_name import imported
from ..job.declare.app import App
from ..job.derive.copied import copied_tables
from ..job.derive.declaration import Declared
from ..job.steps.sources import inputs_of
from ..worker.options import WorkerOptions
from .configuration import Configuration
from .user import user_name

MOST_HERE = 1000
"""The most workers of one job on one machine."""
LOCKS = ".workers"
FORERUNNERS = 20
"""How many processes a lock file names. One that did not come so far as to take part is named, too."""
PRIVATE = 0o700
RUN_FAILED = 5
"""The exit code by which a child tells its supervisor that the run has failed. The supervisor then does not restart it, and exits
with 1.
"""


def load_app(target: str, app_dir: Path | None = None) -> App:
    """The app that `MODULE:app` names; the default name is `app`.

    Raises `DeclarationError` if it cannot be found, with what exists instead.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise DeclarationError(f"{target!r} does not name a module", remedy="use MODULE:app, such as sales:app")
    directory = str((app_dir or Path.cwd()).absolute())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module_name = module_name.removesuffix(".py").replace("/", ".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if missing == module_name or module_name.startswith(f"{missing}."):
            raise DeclarationError(
                f"there is no module '{missing}' in {directory} or on the path",
                remedy="give its directory: --app-dir DIR",
            ) from error
        raise DeclarationError(f"'{module_name}' cannot be imported: {error}", remedy=f"install {missing}") from error
    except HeadgateError:
        raise
    except Exception as error:
        raise _of_user_code(f"'{module_name}' cannot be imported", error) from error
    found = getattr(module, attribute or "app", None)
    if found is None:
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        hint = f"it has {', '.join(f'{module_name}:{name}' for name in apps)}" if apps else "it has no App"
        raise DeclarationError(f"'{module_name}' has no '{attribute or 'app'}'", remedy=hint)
    if not isinstance(found, App) and callable(found):
        try:
            found = found()
        except HeadgateError:
            raise
        except Exception as error:
            raise _of_user_code(f"'{target}' does not return an App", error) from error
    if not isinstance(found, App):
        raise DeclarationError(
            f"'{target}' is {type(found).__name__}, not an App",
            remedy="app = hg.App(…), or a function that returns one",
        )
    return found


def _of_user_code(what: str, error: Exception) -> DeclarationError:
    """A mistake in the user's code: what was raised and where, without the frames of headgate and of the import system."""
    if isinstance(error, SyntaxError) and error.filename:
        said, place = f"SyntaxError: {error.msg}", f"{error.filename}:{error.lineno}"
    else:
        said = "".join(traceback.format_exception_only(error)).strip()
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename}:{last.lineno}"
    return DeclarationError(f"{what}: {said} ({place})", remedy="set HEADGATE_DEBUG=1 to see the whole traceback")


def bound_inputs(app: App) -> None:
    """Apply `--bounded`: every input without an end ends where it is now, so the job runs as a batch."""
    followed = {one.source.topic for one in copied_tables(app.steps).values()}
    for topic, step in inputs_of(app.steps).items():
        if step.until is None and topic not in followed:  # a copy of a table follows its topic as long as the job runs
            # steps refer to each other by identity, so the value is changed in place, before anything is derived from it
            object.__setattr__(step, "until", "newest")


def state_root(configuration: Configuration, job: JobName) -> Path:
    """The directory of this job's tables, locks and location on this machine."""
    return Path(str(configuration.value("state.dir"))).expanduser().absolute() / job.directory


@dataclass
class Seat:
    """A processor id that this process holds through its lock file."""

    processor: str
    free: bool
    """The lock was free, so the previous process with this id on this machine is dead."""
    file: IO[str] | None = None
    forerunners: frozenset[str] | None = None
    """The processes that have held the lock before, and are dead; None if an older version has not written them."""

    def sign(self, process: str) -> None:
        """Write which process this is into the lock file: whoever holds the lock after it knows that it is dead."""
        if self.file is None:
            return
        self.file.seek(0)
        _, *before = self.file.read().splitlines() or [""]
        self.file.seek(0)
        self.file.truncate()
        self.file.write("\n".join([str(os.getpid()), process, *before[: FORERUNNERS - 1]]) + "\n")
        self.file.flush()

    def leave(self) -> None:
        """Release the lock."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


def take_seat(root: Path, given: str = "", *, host: str = "") -> Seat:
    """The processor id of this process: the given one, or the first free one of this host."""
    locks = root / LOCKS
    try:
        _make_private(root)
        locks.mkdir(exist_ok=True)
        if given:
            return _sit(locks, processor_id(given)) or Seat(given, False)
        name = host_word(host or socket.gethostname())
        for number in range(MOST_HERE):
            seat = _sit(locks, processor_id(f"{name}-{number}"))
            if seat is not None:
                return seat
    except OSError as error:
        raise EnvironmentFault(
            f"the state directory {root} cannot be used: {error.strerror or error}",
            remedy="choose another with --state-dir, or change its permissions",
        ) from error
    raise EnvironmentFault(
        f"{MOST_HERE} workers are already running here", remedy="give this one its own id with --processor-id"
    )


def _make_private(root: Path) -> None:
    """Make a directory that no other user can read, or take an existing one from them: tables hold what users' records hold."""
    root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    found, me = root.stat(), os.geteuid()
    if found.st_uid != me:
        raise EnvironmentFault(
            f"the state directory {root} belongs to user {found.st_uid}, who could read it, and this worker runs as user {me}",
            remedy=f"run the worker as that user, give it the directory (chown -R {me} {root}), or choose another with --state-dir",
        )
    if stat.S_IMODE(found.st_mode) & ~PRIVATE:
        root.chmod(PRIVATE)


def _sit(locks: Path, processor: str) -> Seat | None:
    file = (locks / f"{processor}.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    file.seek(0)
    before = file.read().splitlines()
    return Seat(processor, True, file, None if len(before) == 1 else frozenset(before[1:]))


def host_word(host: str) -> str:
    """The host name in a form that is valid in an id."""
    word = "".join(c if c.isalnum() or c in "._-" else "-" for c in host.partition(".")[0])
    return word.strip("-_.")[:60] or "worker"


def location_of(configuration: Configuration, root: Path) -> str:
    """The location of this worker: from the provider, by default the id in the state directory."""
    provider = str(configuration.value("location.provider"))
    if provider == DEFAULT:
        return stored_location(root.parent)
    if built_in(provider):
        return provided(provider, socket.gethostname(), os.environ)
    remedy = "fix it, or leave location.provider at its default"
    given = imported("location.provider", provider, PROVIDERS)
    found = called("location.provider", provider, given, root.parent, remedy=remedy, error=SettingError)
    return checked(provider, found, "what it returned", "return a name, such as that of the disk")


def stored_location(directory: Path) -> str:
    """The random id of this state directory. The first process writes it, completely."""
    path = directory / "location"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            draft = directory / f".location.{uuid.uuid4().hex}"
            draft.write_text(f"{uuid.uuid4().hex[:12]}\n")
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        stored = path.read_text(errors="replace").strip()
    except OSError as error:
        raise EnvironmentFault(
            f"the location cannot be kept in {directory}: {error.strerror or error}", remedy="give another --state-dir"
        ) from error
    return checked(DEFAULT, stored, f"the id in {path}", f"remove {path}: the next start writes another id")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a supervisor passes to its children, or a command line contains."""

    processor: str = ""
    process: str = ""
    supervised: bool = False
    run_id: str = ""
    deployment: str = ""
    no_wait: bool = False
    bounded: bool = False
    since_ms: int = 0


def worker_options(
    app: App, configuration: Configuration, seat: Seat, identity: Identity, *, root: Path, url: str = ""
) -> WorkerOptions:
    """All options of a worker, as one value."""
    given, declared = of_the_job(configuration.given), Declared(app)
    alone = {name: value for name, value in configuration.given.items() if name not in given}
    for name in given:
        if why := stream_problem(name, declared.graph.input):
            raise SettingError(why)
    if why := run_id_problem(identity.run_id):
        raise DeclarationError(why, remedy="letters, digits, '-' and '_', such as a date or the number of a build")
    process = identity.process or uuid.uuid4().hex
    seat.sign(process)
    return WorkerOptions(
        declared=declared,
        client=configuration.client,
        processor=seat.processor,
        location=location_of(configuration, root),
        process=process,
        token=secrets.token_hex(3),
        state_dir=root.parent,
        run_id=identity.run_id,
        deployment=identity.deployment,
        settings=given,
        alone=alone,
        flags=of_the_job(configuration.own),
        host=socket.gethostname(),
        user=user_name(),
        pid=os.getpid(),
        version=__version__,
        url=url,
        web_port=int(configuration.value("web.port")),
        lock_free=seat.free,
        forerunners=seat.forerunners,
        supervised=identity.supervised,
        since_ms=identity.since_ms,
        no_wait=identity.no_wait,
        bounded=identity.bounded,
        jitter_s=secrets.randbelow(1000) / 1000,
        secrets=tuple(secrets_of(configuration.client.given, configuration.given)),
        job_uuid=uuid.uuid4().hex,
    )


def of_the_job(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that belong to one worker; these are written into the run."""
    return {name: value for name, value in settings.items() if find(name).owner == JOB}
