"""The job model: a value that says what is wanted, and comes back from its bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.core.graph.model import JobModel, from_value, producer_sets, to_value
from headgate.core.names import StreamPartition
from headgate.core.orders import ProducerSet

P = StreamPartition
TASKS = {"Partition 0": (P("orders", 0), P("rates", 0)), "Partition 1": (P("orders", 1), P("rates", 0))}


def a_model() -> JobModel:
    return JobModel(
        term=3,
        version=7,
        run_id="r1",
        deployment="d1",
        tasks=TASKS,
        wanted={"Partition 0": "p1", "Partition 1": "p2"},
        processors=("p1", "p2"),
        producers={"by-country": ProducerSet("by-country", 2, frozenset(TASKS))},
        former=("by-city",),
        placer="mine:place",
    )


def test_it_answers_who_owns_and_who_should_run():
    """Streams and their widths, owners of a partition, tasks of a processor."""
    model = a_model()
    assert model.streams == {"orders": 2, "rates": 1}
    assert model.owners_of(P("orders", 9)) == ()
    assert model.owners_of(P("rates", 0)) == ("Partition 0", "Partition 1")
    assert model.tasks_of("p2") == ("Partition 1",)
    assert model.placement() == {"p1": ("Partition 0",), "p2": ("Partition 1",)}
    assert model.is_of("r1", "d1")
    assert not model.is_of("r1", "d2")
    assert not model.is_of("r2", "d1")


def test_it_comes_back_from_its_value():
    assert from_value(3, to_value(a_model())) == a_model()
    of_before = to_value(a_model())
    del of_before["former"], of_before["placer"]
    assert from_value(3, of_before) == replace(a_model(), former=(), placer="")
    assert "placer" not in to_value(replace(a_model(), placer=""))


def test_it_remembers_the_streams_that_earlier_versions_wrote():
    """Nothing else says whose they are: a reset left them, and their records were counted again when a step got the name back."""
    model = replace(a_model(), shared={"priced": 1})
    model = replace(model, producers={**model.producers, "priced": ProducerSet("priced", 1, frozenset(TASKS))})
    assert model.streams_before({"by-shop"}) == ("by-city", "by-country")
    assert model.streams_before({"by-city", "by-country"}) == ()


@pytest.mark.parametrize(
    "broken",
    [
        {"streams": [1]},
        {"tasks": []},
        {"tasks": {"t": [[5, 0]]}},
        {"tasks": {"t": [[0, -1]]}},
        {"tasks": {"t": [[0]]}},
        {"tasks": {1: []}},
        {"version": True},
        {"version": "1"},
        {"wanted": {"t": 1}},
        {"producers": {"s": [1]}},
        {"producers": {"s": [-1, []]}},
        {"former": [1]},
        {"placer": 1},
    ],
)
def test_what_is_no_model_is_refused(broken: dict):
    """Any wrong shape raises one of the errors that the reader of the stream expects."""
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        from_value(1, to_value(a_model()) | broken)


def test_an_epoch_rises_when_the_set_changes_and_only_then():
    """Producers are the tasks that own something that leads to the stream."""
    feeds = {"by-country": frozenset({"orders"}), "by-rate": frozenset({"rates"})}
    first = producer_sets(feeds, TASKS, {})
    assert first["by-country"] == ProducerSet("by-country", 1, frozenset(TASKS))
    assert producer_sets(feeds, TASKS, first) == first
    grown = TASKS | {"Partition 2": (P("orders", 2),)}
    second = producer_sets(feeds, grown, first)
    assert second["by-country"].epoch == 2
    assert second["by-rate"].epoch == 1
