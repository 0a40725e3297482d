"""What is compared between a topic and what the job needs, and the commands that are printed."""

from __future__ import annotations

import pytest

from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import INTERMEDIATE, TASK_LOG, ExistingTopic, TopicSpec, departures, differences
from headgate.agents.worker.topic_defaults import TopicDefaults
from headgate.core.errors import SettingError

CLIENT = ClientSettings("b:1")


def test_a_missing_topic_is_created_by_its_command():
    """With every setting that matters, quoted for a shell."""
    spec = TopicSpec("log", 4, {**TASK_LOG, "x": "a b"}, replication=3)
    (missing,) = differences(spec, None, CLIENT)
    assert missing.what == "it does not exist"
    assert missing.remedy == (
        "kafka-topics.sh --bootstrap-server b:1 --create --topic log --partitions 4 --replication-factor 3 "
        "--config cleanup.policy=compact --config delete.retention.ms=86400000 "
        "--config max.compaction.lag.ms=3600000 --config message.timestamp.after.max.ms=9223372036854775807 "
        "--config message.timestamp.before.max.ms=9223372036854775807 --config min.cleanable.dirty.ratio=0.3 "
        "--config segment.bytes=67108864 --config 'x=a b'"
    )
    assert str(missing).startswith("log: it does not exist")


def test_a_topic_that_is_as_needed_has_no_difference():
    """The order of cleanup policies does not matter, and neither do settings that nobody needs."""
    spec = TopicSpec("t", 2, {"cleanup.policy": "compact,delete", "retention.ms": "5"})
    assert (
        differences(
            spec, ExistingTopic("t", 2, {"cleanup.policy": "delete, compact", "retention.ms": "5", "segment.ms": "1"})
        )
        == []
    )
    assert differences(spec, ExistingTopic("t", 2, {})) == []


def test_an_output_that_someone_else_has_made_may_have_any_width():
    """The number of partitions is only for its creation: another may have made it a moment before, or a broker did not know it yet."""
    spec = TopicSpec("t", 4, any_width=True)
    assert differences(spec, ExistingTopic("t", 1, {})) == []
    assert spec.command(CLIENT).endswith("--topic t --partitions 4")


def test_a_task_log_that_is_compacted_later_than_needed_differs():
    """Restoring would read what has long been replaced. One that is compacted sooner is as good."""
    spec = TopicSpec("log", 1, TASK_LOG)
    sooner = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "60000"}
    later = {"segment.bytes": "1073741824", "min.cleanable.dirty.ratio": "0.5", "max.compaction.lag.ms": str(2**63 - 1)}
    assert differences(spec, ExistingTopic("log", 1, {**TASK_LOG, **sooner})) == []
    assert [d.what for d in differences(spec, ExistingTopic("log", 1, {**TASK_LOG, **later}))] == [
        "segment.bytes is 1073741824, but at most 67108864 is needed",
        "min.cleanable.dirty.ratio is 0.5, but at most 0.3 is needed",
        "max.compaction.lag.ms is 9223372036854775807, but at most 3600000 is needed",
    ]


def test_each_difference_has_its_own_remedy():
    """An intermediate stream with a retention would lose records of a job that rests."""
    told = differences(
        TopicSpec("mid", 3, INTERMEDIATE),
        ExistingTopic("mid", 2, {"retention.ms": "604800000", "retention.bytes": "-1"}),
        CLIENT,
    )
    assert [d.what for d in told] == [
        "it has 2 partitions, but 3 are needed",
        "retention.ms is 604800000, but -1 is needed",
    ]
    assert told[1].remedy == (
        "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type topics --entity-name mid --add-config retention.ms=-1"
    )


def test_kafkas_tools_are_told_where_their_client_settings_stand():
    """A broker with TLS or users: the tools take these from a file only. A comma parts settings, so lists stand in brackets."""
    client = ClientSettings("b:1", {"security.protocol": "SSL"})
    front = "--bootstrap-server b:1 --command-config client.properties"
    assert TopicSpec("t", 1).command(client) == f"kafka-topics.sh {front} --create --topic t --partitions 1"
    (told,) = differences(
        TopicSpec("t", 1, {"cleanup.policy": "compact,delete"}),
        ExistingTopic("t", 1, {"cleanup.policy": "delete"}),
        client,
    )
    assert told.remedy == (
        f"kafka-configs.sh {front} --alter --entity-type topics --entity-name t --add-config 'cleanup.policy=[compact,delete]'"
    )


def test_a_topic_of_unknown_width_leaves_it_to_whoever_makes_it():
    """An input belongs to somebody else."""
    assert TopicSpec("orders", 0).command(CLIENT).endswith("--topic orders --partitions N")


def test_the_limit_is_the_topics_or_the_brokers_default():
    """Needed before anything is sent."""
    assert ExistingTopic("t", 1, {"max.message.bytes": "5"}).limit == 5
    assert ExistingTopic("t", 1, {}).limit == 1_048_588


def test_what_the_settings_say_is_created_and_only_named_later():
    """Replicas and retention are no matter of correctness: a topic that has others is used, and who changes it finds the command."""
    defaults = TopicDefaults(replicas=3, min_insync=2, outputs_kept_ms=60_000, dead_letters_kept_ms=0)
    log, output = defaults.own(TopicSpec("log", 1, TASK_LOG)), defaults.output(TopicSpec("out", 2, any_width=True))
    assert defaults.dead_letters(TopicSpec("dead", 1)).preferred == {"min.insync.replicas": "2"}
    assert "--replication-factor 3" in log.command(CLIENT)
    assert "--config min.insync.replicas=2 --config retention.ms=60000" in output.command(CLIENT)
    as_said = ExistingTopic("out", 5, {"min.insync.replicas": "2", "retention.ms": "60000"}, replicas=3)
    assert departures(output, as_said, CLIENT) == []
    found = ExistingTopic("out", 5, {"min.insync.replicas": "1", "retention.ms": "5"}, replicas=1)
    assert differences(output, found, CLIENT) == []
    assert [(one.what, one.remedy.rpartition(" ")[2]) for one in departures(output, found, CLIENT)] == [
        ("it has 1 replica, and the settings say 3", "replicas"),
        ("min.insync.replicas is 1, and the settings say 2", "min.insync.replicas=2"),
        ("retention.ms is 5, and the settings say 60000", "retention.ms=60000"),
    ]


def test_nothing_is_named_where_the_brokers_choose():
    """Zero leaves it to them, whatever it is."""
    spec = TopicDefaults(dead_letters_kept_ms=0).dead_letters(TopicSpec("dead", 1))
    assert departures(spec, ExistingTopic("dead", 1, {"min.insync.replicas": "2", "retention.ms": "5"}, 3)) == []
    assert departures(spec, ExistingTopic("dead", 1, {})) == []


def test_more_replicas_in_sync_than_there_are_is_refused():
    """Each write would be refused for ever."""
    given = {"topic.replicas": 2, "topic.min-insync": 3, "topic.output-retention": 0, "topic.dead-letters-retention": 0}
    with pytest.raises(SettingError, match="no record could be written") as wrong:
        TopicDefaults.of(given.get)
    assert "topic.replicas=3" in wrong.value.remedy
    assert TopicDefaults.of({**given, "topic.replicas": 0}.get).min_insync == 3
