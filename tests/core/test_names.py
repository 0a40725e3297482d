"""Names are legal, carry the job, and can be parsed back."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core import names as module
from headgate.core.errors import DeclarationError
from headgate.core.names import (
    JobName,
    StreamPartition,
    Topics,
    TransactionalId,
    collision,
    incarnation_id,
    incarnation_order,
    leader_id,
    metric_form,
    natural,
    parse_internal,
    processor_id,
    task_directory,
    task_name,
    topic_name,
    worker_id,
)

LEGAL = st.text("abzAZ09._-", min_size=1, max_size=12).filter(lambda text: text not in (".", ".."))
JOBS = st.builds(JobName, LEGAL, LEGAL)
TASKS = (
    st.text(max_size=12)
    | st.text("PrR.-_/% 1", max_size=6)
    | st.builds(
        str.__add__,
        st.sampled_from(["Partition ", "partition ", "Partition-", "pARTITION "]),
        st.text("aA1.- ", max_size=2),
    )
)


def test_the_topics_of_a_job():
    topics = Topics(JobName("my_sales", "2"))
    assert topics.fixed == (
        "__headgate_coordinator_my-sales_2",
        "__headgate_heartbeat_my-sales_2",
        "__headgate_log_my-sales_2",
        "my-sales-2-dead-letters",
    )
    assert topics.intermediate("by_country") == "my-sales-2-by_country"
    assert Topics(JobName("sales"), "eu.").coordinator == "eu.__headgate_coordinator_sales_1"


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b/c", "ä", "a\n", "a,b"])
def test_what_kafka_refuses_is_refused_first(name):
    with pytest.raises(DeclarationError, match="legal name") as caught:
        JobName.parse(name)
    assert caught.value.remedy


def test_a_topic_has_at_most_249_characters():
    assert topic_name("t" * 249)
    with pytest.raises(DeclarationError, match="250 characters; Kafka allows 249"):
        topic_name("t" * 250)
    with pytest.raises(DeclarationError, match="249"):
        Topics(JobName("j" * 230))
    with pytest.raises(DeclarationError, match="the topic of step 'ssss"):
        Topics(JobName("sales")).intermediate("s" * 245)


def test_a_step_may_not_take_the_name_of_the_dead_letters():
    with pytest.raises(DeclarationError, match="dead-letter"):
        Topics(JobName("sales")).intermediate("dead-letters")


KEPT = {
    "sales-1-orders": "kept for the job's own streams",
    "sales-1-dead-letters": "kept for the job's own streams",
    "sales-1-": "kept for the job's own streams",
    "__headgate_log_sales_1": "of headgate itself",
    "eu.__headgate_coordinator_other_2": "of headgate itself",
    "__transaction_state": "of Kafka itself",
    "sales-1": "",
    "sales-2-orders": "",
    "__own": "",
}


@pytest.mark.parametrize("topic", KEPT)
def test_what_is_the_jobs_own_is_no_topic_of_its_users(topic):
    """A reset deletes the job's own streams, and trims them: an input of such a name would go with them."""
    why = Topics(JobName("sales")).kept(topic, written=True)
    assert KEPT[topic] in why
    assert bool(why) == bool(KEPT[topic])
    assert Topics(JobName("sales")).kept("__consumer_offsets", written=False) == ""


@settings(deadline=None)
@given(
    st.lists(TASKS, unique=True, max_size=20),
    st.lists(JOBS, unique=True, max_size=20),
)
@example(["Partition 3", "partition 3", "Partition-3", "partition-3", "PARTITION 3", "%50artition 3"], [])
@example(["A", "a", "R" * 200, "r" * 200, "%41", "%61", "Ä", "ä"], [JobName("Sales"), JobName("sales")])
def test_no_two_tasks_and_no_two_jobs_share_a_directory(tasks, jobs):
    """Groupers name tasks as they like. A directory is a name in one folder, never a path out of it. Some disks (macOS, Windows) hold
    `A` and `a` for one name: a task found the store of another, was refused it, and wiped it."""
    made = [task_directory(task) for task in tasks]
    assert len({name.casefold() for name in made}) == len(tasks)
    assert all(
        name and "/" not in name and "\0" not in name and not name.startswith(".") and len(name) < 255 for name in made
    )
    assert len({job.directory.casefold() for job in jobs}) == len(jobs)


@settings(deadline=None)
@given(JOBS, LEGAL.filter(lambda step: step != "dead-letters"), st.sampled_from(["", "eu.", "a_"]))
def test_topics_are_parsed_back(job, step, prefix):
    topics = Topics(job, prefix)
    seen = JobName(*job.safe)
    assert parse_internal(topics.coordinator, prefix=prefix) == ("coordinator", seen)
    assert parse_internal(topics.heartbeat, prefix=prefix) == ("heartbeat", seen)
    assert parse_internal(topics.log, prefix=prefix) == ("log", seen)
    assert topics.kept(topics.intermediate(step), written=False)
    assert JobName.parse(str(job)) == job


def test_what_is_not_ours_is_not_parsed():
    for topic in (
        "orders",
        "__headgate_log_a",
        "__headgate_log_a_b_c",
        "__headgate_x_a_1",
        "__headgate_log_.._1",
        "__headgate_log_a_.",
    ):
        assert parse_internal(topic) is None
    assert parse_internal("__headgate_log_a_1", prefix="eu.") is None


def test_two_jobs_that_would_share_a_topic_are_found():
    mine = Topics(JobName("my_sales"))
    assert collision(mine, mine) is None
    assert collision(mine, Topics(JobName("my-sales"))) == "__headgate_coordinator_my-sales_1"
    assert collision(mine, Topics(JobName("my-sales"), "eu.")) is None
    # Kafka sees no difference between '.' and '_'
    assert collision(Topics(JobName("a.b", "1")), Topics(JobName("a", "b.1"))) == "__headgate_coordinator_a.b_1"
    # the dead letters of one, and a step of another
    a, b = Topics(JobName("a", "1-x")), Topics(JobName("a", "1"))
    assert collision(a, b) is None
    assert collision(a, b, other_steps=["x-dead-letters"]) == "a-1-x-dead-letters"
    assert collision(a, b, own_steps=["y"], other_steps=["x-y"]) == "a-1-x-y"


@settings(deadline=None)
@given(JOBS, JOBS)
def test_jobs_without_a_collision_share_nothing(a, b):
    if a != b and collision(Topics(a), Topics(b)) is None:
        assert not set(map(metric_form, Topics(a).fixed)) & set(map(metric_form, Topics(b).fixed))
    assert (str(TransactionalId(a)) == str(TransactionalId(b))) == (a == b)


def test_tasks():
    assert task_name(3) == "Partition 3"
    assert str(StreamPartition("orders", 3)) == "orders:3"


def test_incarnations_are_ordered_by_their_number():
    assert incarnation_id(7, b"\x3f\x2a") == "000007-3f2a"
    assert incarnation_order("1000000-a") > incarnation_order("999999-b") > incarnation_order("000007-3f2a")
    for counter, suffix in ((-1, "a"), (1, ""), (1, "a.b"), (10**18, "a")):
        with pytest.raises(DeclarationError, match="not an incarnation"):
            incarnation_id(counter, suffix)
    with pytest.raises(DeclarationError, match="not an incarnation"):
        incarnation_order("7-a")


@settings(deadline=None)
@given(JOBS, LEGAL, st.integers(0, 10**9), st.binary(min_size=1, max_size=8))
def test_transactional_ids_are_parsed_back(job, processor, counter, suffix):
    incarnation = incarnation_id(counter, suffix)
    assert TransactionalId.parse(worker_id(job, processor, incarnation)) == TransactionalId(job, processor, incarnation)
    assert TransactionalId.parse(leader_id(job)) == TransactionalId(job)


def test_transactional_ids_read_as_they_should():
    assert leader_id(JobName("sales")) == "headgate.sales.1.leader"
    assert worker_id(JobName("sales"), "p1.a", "000007-3f2a") == "headgate.sales.1.worker.p1%2Ea.000007-3f2a"
    for text in (
        "",
        "kafka",
        "headgate.sales.1",
        "headgate.sales.1.worker.p.x",
        "headgate.a b.1.leader",
        "headgate.a.1.worker.p p.000001-a",
    ):
        assert TransactionalId.parse(text) is None


def test_a_processor_id_is_checked():
    assert processor_id("pod-3") == "pod-3"
    for text in ("", "a b", "p" * 201):
        with pytest.raises(DeclarationError):
            processor_id(text)


@pytest.mark.parametrize(
    "order",
    [["Partition 2", "Partition 10", "Partition 010"], ["a", "a0", "a1", "ab"], ["7", "77", "7 b"], ["", "0"]],
)
def test_numbers_in_names_sort_as_numbers(order):
    assert sorted(sorted(order), key=natural)[0] == order[0]
    assert len({natural(name) for name in order}) == len(order)


def test_a_name_may_have_more_digits_than_python_reads():
    assert sorted(["a" + "9" * 6000, "a" + "1" * 6001], key=natural)[0] == "a" + "9" * 6000


def test_its_examples_are_true():
    assert doctest.testmod(module).failed == 0
