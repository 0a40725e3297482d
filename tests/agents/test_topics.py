"""What is compared between a topic and what the job needs, and the commands that are printed."""

from __future__ import annotations

from headgate.agents.topics import INTERMEDIATE, TASK_LOG, Found, TopicSpec, differences


def test_a_missing_topic_is_created_by_its_command():
    """With every setting that matters, quoted for a shell."""
    spec = TopicSpec("log", 4, {**TASK_LOG, "x": "a b"}, replication=3)
    (missing,) = differences(spec, None, "b:1")
    assert missing.what == "it does not exist"
    assert missing.remedy == (
        "kafka-topics.sh --bootstrap-server b:1 --create --topic log --partitions 4 --replication-factor 3 "
        "--config cleanup.policy=compact --config delete.retention.ms=604800000 --config 'x=a b'"
    )
    assert str(missing).startswith("log: it does not exist")


def test_a_topic_that_is_as_needed_has_no_difference():
    """The order of cleanup policies does not matter, and neither do settings that nobody needs."""
    spec = TopicSpec("t", 2, {"cleanup.policy": "compact,delete", "retention.ms": "5"})
    assert (
        differences(spec, Found("t", 2, {"cleanup.policy": "delete, compact", "retention.ms": "5", "segment.ms": "1"}))
        == []
    )
    assert differences(spec, Found("t", 2, {})) == []


def test_each_difference_has_its_own_remedy():
    """An intermediate stream with a retention would lose records of a job that rests."""
    told = differences(
        TopicSpec("mid", 3, INTERMEDIATE),
        Found("mid", 2, {"retention.ms": "604800000", "retention.bytes": "-1"}),
        "b:1",
    )
    assert [d.what for d in told] == [
        "it has 2 partitions, and 3 are needed",
        "retention.ms is 604800000, and -1 is needed",
    ]
    assert told[1].remedy == "kafka-configs.sh --bootstrap-server b:1 --alter --topic mid --add-config retention.ms=-1"


def test_the_limit_is_the_topics_or_the_brokers_default():
    """Needed before anything is sent."""
    assert Found("t", 1, {"max.message.bytes": "5"}).limit == 5
    assert Found("t", 1, {}).limit == 1_048_588
