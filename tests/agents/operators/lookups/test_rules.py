"""The rules of a lookup that need no task: answers that are kept, the rate of calls, the circuit."""

from __future__ import annotations

from headgate.agents.operators.lookups.answers import MISSING, Answers
from headgate.agents.operators.lookups.breaker import Breaker
from headgate.agents.operators.lookups.rate import AHEAD_S, Rate


def test_an_answer_is_good_for_its_time() -> None:
    """None is an answer, too."""
    answers = Answers(10, 1000)
    answers.keep("DE", None, 0)
    found = answers.find("DE", 999), answers.find("FR", 999), answers.find("DE", 1000)
    assert found == (None, MISSING, MISSING)


def test_a_clock_that_goes_back_makes_nothing_good_again() -> None:
    """The wall clock may be set back: an answer would be good for as long again."""
    answers = Answers(10, 1000)
    answers.keep("DE", 1, 5000)
    answers.keep("FR", 2, 0)
    found = answers.find("FR", 0), answers.find("DE", 6000), answers.find("FR", 0)
    assert found == (2, MISSING, MISSING)


def test_what_was_not_used_for_longest_makes_room() -> None:
    """The cache has a bound, and keeps what is asked for often."""
    answers = Answers(2, 1000)
    answers.keep("DE", 1, 0)
    answers.keep("FR", 2, 0)
    answers.find("DE", 1)
    answers.keep("IT", 3, 1)
    found = [answers.find(one, 2) for one in ("DE", "FR", "IT")]
    assert (found, len(answers)) == ([1, MISSING, 3], 2)


def test_calls_keep_the_rate() -> None:
    """Calls that are asked for at once get times in a row; a pause saves up no more than `AHEAD_S`."""
    rate = Rate(100)
    saved = round(AHEAD_S * 100)
    first = [round(rate.wait_s(10.0), 6) for _ in range(saved + 3)]
    later = [round(rate.wait_s(99.0), 6) for _ in range(saved + 3)]
    expected = [0.0] * (saved + 1) + [0.01, 0.02]
    assert (first, later) == (expected, expected)


def test_a_rate_holds_over_any_span() -> None:
    """However calls come, a span of time has at most its share of them, and what was saved up."""
    rate, now_s, went = Rate(50), 0.0, []
    for step in range(400):
        now_s += (0.0, 0.001, 0.3, 0.0)[step % 4]
        went.append(now_s + rate.wait_s(now_s))
    most = max(sum(at <= one < at + 1 for one in went) for at in went)
    assert (went == sorted(went), most <= 50 + 50 * AHEAD_S + 1) == (True, True)


def test_a_circuit_opens_after_failures_in_a_row() -> None:
    """An answer between them ends the row."""
    circuit = Breaker(3)
    seen = []
    for what in "ffaffff":
        circuit.failed() if what == "f" else circuit.answered()
        seen.append(circuit.open)
    assert (seen, circuit.openings, circuit.in_a_row) == ([False] * 5 + [True, True], 1, 4)


def test_an_answer_closes_the_circuit() -> None:
    """The probe has been answered: calls are made again."""
    circuit = Breaker(1)
    circuit.failed()
    circuit.answered()
    closed = circuit.open
    circuit.failed()
    assert (closed, circuit.open, circuit.openings, circuit.answers) == (False, True, 2, 1)


def test_a_circuit_of_none_never_opens() -> None:
    """`breaker=0`."""
    circuit = Breaker(0)
    for _ in range(100):
        circuit.failed()
    assert circuit.open is False
