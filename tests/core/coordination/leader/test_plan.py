"""What a leader is told once, and what operators change while it leads."""

from __future__ import annotations

from headgate.core.coordination.leader.plan import STANDBY, LeaderConfig, Plan, Timing, overridden
from headgate.core.coordination.messages import SetConfig
from headgate.core.graph.graph import Graph, Input, Stage
from headgate.core.settings import TAKEN_BY


def test_dynamic_settings_change_the_waits_at_once():
    """Those that are dynamic; the others are read when a process starts."""
    timing = Timing()
    assert overridden(timing, {}) is timing
    changed = overridden(
        timing,
        {
            "stall.timeout": SetConfig("stall.timeout", "1m"),
            "answers.keep": SetConfig("answers.keep", "2s"),
            "placement.rejoin-grace": SetConfig("placement.rejoin-grace", 0),
            "session.timeout": SetConfig("session.timeout", "1m"),
        },
    )
    assert (changed.stall_s, changed.answer_kept_ms, changed.grace_s, changed.session_s) == (60.0, 2000, 0.0, 6.0)


def test_the_grace_may_be_left_to_the_leader():
    """Who is waited for then waits as long as by default."""
    changed = overridden(Timing(grace_s=3.0), {"placement.rejoin-grace": SetConfig("placement.rejoin-grace", "auto")})
    assert (changed.grace_s, changed.grace_auto) == (10.0, True)
    again = overridden(changed, {"placement.rejoin-grace": SetConfig("placement.rejoin-grace", "3s")})
    assert again == Timing(grace_s=3.0)


def test_a_leader_takes_what_the_table_says_and_its_own_flags_win():
    """A flag of the worker that leads stands before the override, as for every setting."""
    values = {
        name: SetConfig(name, 1 if name == STANDBY else "77s") for name, parts in TAKEN_BY.items() if "leader" in parts
    }
    changed = overridden(Timing(), values)
    differing = [name for name in Timing.__slots__ if getattr(changed, name) != getattr(Timing(), name)]
    assert len(differing) == len(values) == 9
    assert overridden(Timing(), values, frozenset(values)) == Timing()


def test_a_plan_says_of_its_graph_what_a_leader_asks():
    """Derived, never stated a second time."""
    graph = Graph((Input("orders"), Input("clicks", producers=("web",))))
    assert (Plan(graph=graph).inputs, Plan(graph=graph).stateful) == (("clicks", "orders"), graph.stateful)
    assert Plan(graph=graph).reads == {"clicks": ("web",)}


def test_plans_of_one_deployment_are_equal():
    assert Plan("d1", graph=Graph((Input("orders"),))) == Plan("d1", graph=Graph((Input("orders"),)))
    assert LeaderConfig("p1", "x", "u").timing == Timing()


def test_what_a_plan_says_of_its_graph():
    """Inputs by name, the jobs that write them, and whether its tasks are fixed for the job's life."""
    two = Graph((Input("b", producers=("up/1",)), Input("a")), (Stage("n", "agg", ("a",), stateful=True),))
    code = Plan(graph=two)
    assert code.inputs == ("a", "b")
    assert code.reads == {"b": ("up/1",)}
    assert code.stateful
    assert not Plan().stateful
