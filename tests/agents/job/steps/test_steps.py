"""Each kind of step says itself what it is: no list elsewhere has to know of it."""

from __future__ import annotations

from headgate.agents.job.steps import batches, columns, ends, keyed, rows, sources
from headgate.agents.job.steps.columns import FilterColumnsStep
from headgate.agents.job.steps.keyed import JoinColumnsStep, JoinStep, JoinTableColumnsStep, JoinTableStep
from headgate.agents.job.steps.rows import FilterStep
from headgate.agents.job.steps.sources import ShuffleStep
from headgate.agents.job.steps.step import Step
from headgate.agents.operators.base.stateless import Operator
from headgate.agents.operators.pipeline.made import operator_class
from headgate.core.graph.graph import KEYED, SHARE, SHUFFLES
from headgate.core.graph.updates import GIVES_EVENTS, NEEDS_EVENTS

SHARED = (
    sources.SourceStep,
    rows.FunctionStep,
    rows.PassingStep,
    columns.OfColumnsStep,
    keyed.KeptStep,
    keyed.WithTableStep,
    keyed.JoinStreamsStep,
    ends.TopicStep,
)
"""What several kinds have in common."""
KINDS = [
    one
    for family in (batches, columns, ends, keyed, rows, sources)
    for one in vars(family).values()
    if isinstance(one, type) and issubclass(one, Step) and one.__module__ == family.__name__ and one not in SHARED
]


def test_every_kind_of_step_has_a_verb_of_its_own():
    """A step without one, or with another's, would be taken for something else by the rules of the graph.

    A filter is one whether a function or an expression says what it keeps, and a join whether it is with a table or with a stream.
    """
    verbs = [
        kind.VERB
        for kind in KINDS
        if kind not in (ShuffleStep, FilterColumnsStep, JoinTableStep, JoinTableColumnsStep, JoinColumnsStep)
    ]
    assert "" not in verbs
    assert len(set(verbs)) == len(verbs)
    assert (FilterColumnsStep.VERB, JoinTableStep.VERB) == (FilterStep.VERB, JoinStep.VERB)
    assert JoinTableColumnsStep.VERB == JoinColumnsStep.VERB == JoinStep.VERB
    ways = ({}, {"everyone": True}, {"gathers": True})
    assert {ShuffleStep(by="k", serde=None, key_serde=None, **one).verb for one in ways} == SHUFFLES


def test_the_rules_of_the_graph_name_verbs_that_there_are():
    """A verb that is misspelt there would turn a rule off without a word."""
    verbs = {kind.VERB for kind in KINDS} | {"broadcast", "repartition", "gather"}
    assert (KEYED | SHUFFLES | NEEDS_EVENTS | GIVES_EVENTS | {SHARE}) - verbs == set()


def test_every_kind_of_step_has_an_operator():
    """It names a class that exists, which is made of the step and what runs it. An input is read by a source."""
    for kind in KINDS:
        for path in {kind.RUN_BY, kind.SENT_BY} - {""}:
            assert issubclass(operator_class(path), Operator)
    assert [kind for kind in KINDS if not kind.RUN_BY] == [sources.InputStep]
