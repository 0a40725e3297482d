"""An error begins with the line of the user's code: in messages, in tracebacks, in dead letters, and where a test fails."""

from __future__ import annotations

import doctest
import linecache
import re
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

import headgate as hg
from headgate.agents.job.steps.rows import MapStep
from headgate.agents.operators.base import user_line as module
from headgate.agents.operators.base.user_line import own_traceback, user_line
from headgate.agents.testing.driver import Driver
from headgate.spark_bridge.base.errors import SparkRowError


class Order(msgspec.Struct):
    country: str
    amount: int


def per_unit(order: Any) -> Any:
    return share_of(order)


def share_of(order: Any) -> Any:
    try:
        return 1 / order["amount"]
    except ZeroDivisionError:
        raise ValueError("nothing was bought") from None


async def called(order: Any) -> Any:
    return per_unit(order)


def read(data: bytes) -> Any:
    raise ValueError("no such version")


LINE = f'{__file__}:{share_of.__code__.co_firstlineno + 4} `raise ValueError("nothing was bought") from None`: '
READ = f'{__file__}:{read.__code__.co_firstlineno + 1} `raise ValueError("no such version")`: '


def mapped(app: hg.App) -> Any:
    return app.input("orders").map(per_unit)


def awaited(app: hg.App) -> Any:
    return app.input("orders").map_async(called)


def typed(app: hg.App) -> Any:
    return app.input("orders", serde=hg.json(Order)).map(per_unit)


def own_serde(app: hg.App) -> Any:
    return app.input("orders", serde=hg.custom(read, repr, name="own")).map(per_unit)


def expression(app: hg.App) -> Any:
    return app.input("orders", serde=hg.json(Order)).filter(hg.col("amount") + 2**62 > 0)


def declared(job: Callable[..., Any]) -> str:
    """The line of the declaration, which is the only one of these functions."""
    number = job.__code__.co_firstlineno + 1
    return f"{__file__}:{number} `{linecache.getline(__file__, number).strip()}`: "


JOBS = [
    (mapped, {"amount": 0}, LINE, "map ("),
    (awaited, {"amount": 0}, LINE, "map-async ("),
    (typed, {"amount": 0}, declared(typed), "not json(Order): "),
    (own_serde, b"?", READ, "not "),
    (expression, {"country": "DE", "amount": 2**62}, declared(expression), "filter ("),
]


@pytest.mark.parametrize(("job", "order", "line", "said"), JOBS, ids=[job.__name__ for job, *_ in JOBS])
def test_the_users_line_comes_first(job: Callable[[hg.App], Any], order: Any, line: str, said: str) -> None:
    """In the reason of the task, in its traceback and in the error of a test; a frame of headgate stands before it nowhere."""
    app = hg.App("shop")
    job(app).to("out")
    with capture_logs() as logs, Driver(app) as d:
        with pytest.raises(hg.HeadgateError) as wrong:
            d.send("orders", order)
    told = next(one for one in logs if one["event"] in ("user code failed", "data cannot be read"))
    assert told["why"].startswith(f"{line}record at orders[0] offset 0: {said}")
    file, number = line.partition(" ")[0].rsplit(":", 1)
    assert told["traceback"].splitlines()[1].startswith(f'  File "{file}", line ')
    assert f'  File "{file}", line {number}, in ' in told["traceback"]
    assert set(re.findall(r'File "(.*)", line', told["traceback"])) == {file}
    shown = "".join(traceback.format_exception(wrong.value))
    assert f'File "{file}", line {number}, in ' in shown or line in shown
    before = shown[: shown.index(f"{file}:{number}")]
    assert "/agents/runtime/" not in before
    assert "During handling" not in shown


def test_a_dead_letter_of_bad_data_names_the_declaration_of_its_input() -> None:
    """Its traceback was one frame of headgate's decoder, which nobody could change."""
    app = hg.App("shop", on_bad_data="dead_letter")
    typed(app).to("out")
    with Driver(app) as d:
        d.send("orders", {"amount": 0})
        (letter,) = d.dead_letters()
    file, number = declared(typed).partition(" ")[0].rsplit(":", 1)
    assert letter.traceback.splitlines()[1] == f'  File "{file}", line {number}, in the declaration of input'
    assert letter.traceback.count("File ") == 1


def test_the_examples_of_the_module_hold() -> None:
    assert doctest.testmod(module).failed == 0


def test_a_bug_of_headgate_keeps_its_frames() -> None:
    """Whoever reports it has nothing else; the step that it happened in is named all the same."""
    step = MapStep(where=f"{__file__}:1", fn=print)
    try:
        hg.session(None)  # type: ignore[arg-type]  # any error out of headgate's code alone
    except hg.HeadgateError as error:
        told = TypeError("a bug").with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    assert user_line(told, step).startswith(f"{__file__}:1 `")
    lines = own_traceback(told, step).splitlines()
    assert lines[1] == f'  File "{__file__}", line 1, in the declaration of map'
    assert any("/agents/job/" in line for line in lines)
    assert lines[-1] == "TypeError: a bug"


def test_the_line_that_a_python_worker_of_spark_has_named_comes_first() -> None:
    """Its frames are in another process, on another machine perhaps, so that the file may not be here."""
    error = SparkRowError("ValueError: negative amount")
    error.worker_line = ("/srv/shop.zip/shop.py", 7)
    step = MapStep(where=f"{__file__}:1", fn=print)
    assert user_line(error, step) == "/srv/shop.zip/shop.py:7"
    assert '"/srv/shop.zip/shop.py", line 7, in a Python worker of Spark' in own_traceback(error, step)


def test_a_job_that_is_installed_is_no_library(tmp_path: Any) -> None:
    """In an image it lies beside the packages that it needs, whose lines are not its own."""
    place = tmp_path / "site-packages"
    for name, text in (
        ("shop/job.py", "def step(value):\n    return lib.call(value)\n"),
        ("lib.py", "def call(value):\n    return 1 / value\n"),
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    lib: dict[str, Any] = {}
    exec(compile((place / "lib.py").read_text(), place / "lib.py", "exec"), lib)
    job: dict[str, Any] = {"lib": type("lib", (), {"call": staticmethod(lib["call"])})}
    exec(compile((place / "shop/job.py").read_text(), place / "shop/job.py", "exec"), job)
    with pytest.raises(ZeroDivisionError) as wrong:
        job["step"](0)
    step = MapStep(where=f"{place}/shop/job.py:1", fn=print)
    wrong.value.__traceback__ = wrong.tb.tb_next
    assert user_line(wrong.value, step) == f"{place}/shop/job.py:2 `return lib.call(value)`"
    assert 'lib.py", line 2' in own_traceback(wrong.value, step)
