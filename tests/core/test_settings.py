"""The table of settings, and what is made of values."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import settings as s
from headgate.core.errors import SettingError
from headgate.core.secrets import MASK
from headgate.core.settings import (
    JOB,
    LEAST,
    MOST,
    SETTINGS,
    WAIT,
    VirtualTime,
    conflict,
    did_you_mean,
    duration_ms,
    find,
    nearest,
    offer,
    override_problem,
    parse,
    resolve,
    shown,
    size_bytes,
    stream_problem,
)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_row_is_whole_and_its_default_can_be_parsed(name: str):
    row = SETTINGS[name]
    assert row.kind in (s.IMMUTABLE, s.DYNAMIC, s.NEXT_RUN)
    assert row.owner in (s.JOB, s.WORKER)
    assert row.doc.endswith(".")
    parse(name.replace("spark.<name>", "spark.executor.memory").replace("<name>", "orders"), row.default)


def test_every_dynamic_setting_says_who_takes_it_and_no_other_does():
    """One that nobody takes is acknowledged and changes nothing."""
    assert set(s.TAKEN_BY) == {name for name, row in SETTINGS.items() if row.kind == s.DYNAMIC}
    assert all(s.TAKEN_BY.values())


@pytest.mark.parametrize(
    "name", ["spark.executor.memory", "spark.jars", "spark.sql.shuffle.partitions", "spark.hadoop.fs.s3a.path-style"]
)
def test_a_setting_of_spark_has_its_own_name(name: str):
    """Numbers and flags become the texts that Spark wants."""
    assert find(name) is SETTINGS[s.OF_SPARK]
    assert [parse(name, value) for value in ("2g", 2, True)] == ["2g", "2", "true"]
    assert s.stream_of(name) == ""
    assert "when a process starts" in override_problem(name, "2g", ran=False)
    with pytest.raises(SettingError, match="is not a"):
        parse(name, ["2g"])


@pytest.mark.parametrize(
    ("name", "meant"),
    [("spark.in.flight", "spark.in-flight"), ("spark.batchTimeout", "spark.batch-timeout"), ("spark.batch.timeout", "spark.batch-timeout"),
        ("spark.inflght", "spark.in-flight"), ("spark.jar", "spark.jars"), ("spark.pakage", "spark.package")],
)  # fmt: skip
def test_a_setting_of_spark_is_not_guessed_where_ours_was_meant(name: str, meant: str):
    """Spark would accept any name and do nothing."""
    with pytest.raises(SettingError, match=f"did you mean '{meant}'"):
        find(name)


@pytest.mark.parametrize("name", ["spark.", "spark", "spark..memory", "spark.<name>.x", "spark.xyzzy"])
def test_what_is_no_setting_of_spark(name: str):
    assert not s.of_spark(name)


def test_a_secret_of_spark_is_masked():
    """Keys of a bucket stand among the settings of Spark."""
    assert shown("spark.hadoop.fs.s3a.secret.key", "hunter2") == MASK
    assert "never written to a topic" in override_problem("spark.hadoop.fs.s3a.secret.key", "hunter2", ran=False)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("200ms", 200), ("5s", 5000), ("1.5m", 90_000), ("2h", 7_200_000), ("1d", 86_400_000), ("1w", 604_800_000),
        (2, 2000), ("0", 0), (0.5, 500)],
)  # fmt: skip
def test_durations(text: object, ms: int):
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "5 parsecs", "1e9s", True, None, [], "99999999999999999999d", "9999999999w"]
)
def test_what_is_no_duration(text: object):
    with pytest.raises(SettingError, match="duration"):
        duration_ms(text)


def test_a_wait_may_be_left_to_headgate():
    """`auto` is parsed as None; a misspelt one is an error like that of any duration."""
    name = "placement.rejoin-grace"
    assert (parse(name, "auto"), parse(name, "2s"), parse(name, 0)) == (None, 2000, 0)
    assert resolve([("flag", {name: "auto"})])[name].value is None
    assert override_problem(name, "auto", ran=True) == ""
    with pytest.raises(SettingError, match=f"'{name}': 'automatic' is not a duration"):
        parse(name, "automatic")


@pytest.mark.parametrize(
    ("text", "size"), [("64KiB", 65536), ("1 MB", 1_000_000), (10, 10), ("10b", 10), ("1.5gib", 1610612736)]
)
def test_sizes(text: object, size: int):
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "-1", "1 cup", True, "9" * 30])
def test_what_is_no_size(text: object):
    with pytest.raises(SettingError, match="size"):
        size_bytes(text)


@pytest.mark.parametrize("name", LEAST)
def test_values_below_which_a_setting_makes_no_sense_are_refused(name: str):
    """A stall.timeout of 0 s, set live, fenced healthy workers again and again; a session.timeout of 0 s never let one begin."""
    row = find(name)
    assert parse(name, row.least) <= parse(name, row.default)
    with pytest.raises(SettingError, match=f"at least {row.least}"):
        parse(name, 0)
    assert f"at least {row.least}" in override_problem(name, "0", ran=False) or row.owner != JOB


MEANS_SOMETHING = {
    "topic.replicas": "the brokers' default",
    "topic.min-insync": "the brokers' default",
    "topic.output-retention": "the brokers' default",
    "topic.dead-letters-retention": "the brokers' default",
    "placement.debounce": "tasks are placed as soon as a worker has joined",
    "placement.rejoin-grace": "nobody waits for a worker that has left",
    "placement.prepare": "tasks with state move at once",
    "stop.prepare": "a worker leaves at once",
    "standby": "no log is followed but to prepare a move",
    "story.max-bytes": "no story is written",
    "chooser.max-starve": "a lower tier is read in turn with the others",
    "chooser.align-wait": "alignment waits for no empty partition",
    "chooser.max-drift": "the streams of a join are read however far apart they are",
    "streams.<name>.priority": "the tier of all inputs; lower ones are negative",
    "intermediate.max-lag": "inputs are read only while nothing is unread behind them",
    "error.retries": "a chunk fails at its first error",
    "letter.warn-after": "no letter is reported",
    "await.timeout": "awaited code may take as long as it wants",
    "drain.callback-timeout": "awaited code may take as long as it wants, also during a drain",
    "control.aggregate-above": "control messages are always merged",
    "state.cleanup-delay": "what tasks have left behind is never removed",
    "web.port": "a free port",
    "workers": "as many as `--workers` says",
}
"""The settings that can be 0, and what that says."""


def test_every_setting_that_can_be_0_says_something_by_it():
    """`commit.interval=0s` commits without a pause, `fetch.max-batch-bytes=0` makes every batch bad data; nobody can want either. A new
    setting of numbers either has a least value, or stands in this list.
    """
    can_be = set[str]()
    for name, row in SETTINGS.items():
        if row.type in ("duration", WAIT, "size", "count", "positive", "number"):
            with contextlib.suppress(SettingError):
                parse(name, 0)
                can_be.add(name)
    assert can_be - set(MEANS_SOMETHING) == set()
    assert set(MEANS_SOMETHING) & set(SETTINGS) == can_be


@pytest.mark.parametrize("name", MOST)
def test_values_above_which_a_setting_makes_no_sense_are_refused(name: str):
    """`web.port=99999999` was accepted, and the worker failed when it opened the port."""
    row = find(name)
    assert parse(name, row.most) == int(row.most)
    with pytest.raises(SettingError, match=f"'{name}' cannot be 99999999.*at most {row.most}"):
        parse(name, 99999999)


def test_in_virtual_time_what_is_done_at_once_is_no_mistake():
    """The test driver commits at once, because nothing but the test moves its clock. From an operator the same text is refused."""
    assert parse("commit.interval", VirtualTime("0ms")) == 0
    with pytest.raises(SettingError, match="at least 10ms"):
        parse("commit.interval", "0ms")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, ""),
        ({"heartbeat.interval": "10s"}, "'session.timeout' (6s) must be at least 2 times 'heartbeat.interval' (10s)"),
        ({"heartbeat.interval": "10s", "session.timeout": "1m"}, ""),
        ({"commit.interval": "1m"}, "the broker would abort transactions before they commit"),
        ({"session.timeout": "0s", "heartbeat.interval": "10s"}, ""),
    ],
)
def test_settings_that_make_no_sense_together_are_named(values: dict[str, str], why: str):
    """With the default of the one that was not given. A value that is wrong by itself is refused where it is given."""
    assert why in conflict(values)
    assert bool(why) == bool(conflict(values))


def test_a_conflict_can_be_asked_of_one_setting():
    """A pair that was wrong before is no reason against a change of something else."""
    wrong = {"commit.interval": "1m"}
    assert [bool(conflict(wrong, name)) for name in ("commit.interval", "transaction.timeout", "log.level")] == [
        True,
        True,
        False,
    ]


def test_an_unknown_name_is_an_error_with_the_nearest_known_one():
    with pytest.raises(SettingError, match=r"did you mean 'session\.timeout'"):
        find("session.timout")
    with pytest.raises(SettingError, match="no setting"):
        find("streams..priority")
    assert find("streams.orders.priority").type == "number"
    assert find("streams.eu.orders.priority").name == "streams.<name>.priority"


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("stauts", "status"), ("drian", "drain"), ("Drain", "drain"), ("tabl", "tables"), ("dead", "dead-letters"),
        ("", ""), ("xyzzy", ""), ("a", ""), ("frobnicate-all", ""),
    ],
)  # fmt: skip
def test_nonsense_is_near_to_nothing(typed: str, near: str):
    """Who mistypes a word is helped; who types another word is not sent elsewhere."""
    known = ["status", "drain", "dead-letters", "tables", "start"]
    assert nearest(typed, known) == near
    assert did_you_mean(typed, known) == (f"did you mean '{near}'?" if near else "")
    assert nearest(typed, []) == ""


def test_an_unknown_setting_that_is_near_to_nothing_names_the_list():
    with pytest.raises(SettingError, match="lists them all"):
        find("xyzzy")


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("commit.interval", "1s", 1000), ("buffer.bytes", "1KiB", 1024), ("intermediate.trim", "off", False),
        ("intermediate.trim", True, True), ("chunk.max-records", "5", 5), ("web.port", 0, 0), ("streams.a.priority", -3, -3),
        ("watermark.idle-confirm", "0.25s", 250), ("guarantee", "at_least_once", "at_least_once"), ("placement", "my:fn", "my:fn"),
    ],
)  # fmt: skip
def test_values_are_parsed(name: str, value: object, parsed: object):
    assert parse(name, value) == parsed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit.interval", "soon"), ("buffer.bytes", "much"), ("intermediate.trim", "perhaps"), ("chunk.max-records", 0),
        ("chunk.max-records", "x"), ("chunk.max-records", 1.5), ("chunk.max-records", True), ("web.port", -1),
        ("watermark.idle-confirm", 0), ("watermark.idle-confirm", "x"), ("guarantee", "exactly"), ("placement", 5), ("error.retries", None),
    ],
)  # fmt: skip
def test_a_wrong_value_is_an_error_that_names_the_setting(name: str, value: object):
    with pytest.raises(SettingError, match=name):
        parse(name, value)


def test_the_strongest_source_wins_and_says_what_it_masks():
    """`headgate config get --origin`."""
    found = resolve(
        [
            ("flag", {"commit.interval": "1s"}),
            ("override", {"commit.interval": "2s", "streams.a.priority": 3}),
            ("file", {"commit.interval": "3s"}),
        ]
    )
    assert found["commit.interval"] == s.Resolved(1000, "flag", "1s", ("override", "file"))
    assert found["streams.a.priority"].origin == "override"
    assert found["session.timeout"] == s.Resolved(6000, "default", "6s")
    assert "streams.<name>.priority" not in found
    with pytest.raises(SettingError):
        resolve([("flag", {"comit.interval": "1s"})])


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch):
    assert shown("ssl.keystore.password", "x") == MASK
    assert shown("ssl.keystore.password", "") == ""
    assert shown("sasl.jaas.config", "x") == MASK
    assert shown("commit.interval", "1s") == "1s"
    secret = s.Setting("pin", "count", 0, s.DYNAMIC, s.JOB, "A pin.", (), True)
    monkeypatch.setattr(s, "SETTINGS", {"pin": secret})
    assert shown("pin", 1234) == MASK
    with pytest.raises(SettingError) as caught:
        parse("pin", "hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "ran", "why"),
    [
        ("commit.interval", "1s", True, ""), ("commit.interval", "soon", True, "not a duration"), ("grouper", "all", True, "immutable"),
        ("grouper", "all", False, "when a process starts"), ("session.timeout", "9s", True, "when a process starts"),
        ("buffer.bytes", "1MiB", True, ""), ("state.dir", "/x", True, "each worker"), ("comit.interval", "1s", True, "did you mean"),
        ("sasl.password", "x", True, "secret"),
    ],
)  # fmt: skip
def test_which_overrides_the_stream_takes(name: str, value: object, ran: bool, why: str):
    found = override_problem(name, value, ran=ran)
    assert (why in found) if why else found == ""


SECRETS = {
    ("spark.remote", "sc://spark:15002/;token=hunter2;user_id=ann"): "sc://spark:15002/;token=***;user_id=ann",
    ("spark.hadoop.fs.s3a.access.key", "hunter2"): "***",
    ("spark.executorEnv.PGPASS", "hunter2"): "***",
    ("spark.executorEnv.DB_PASS", "hunter2"): "***",
    ("spark.hadoop.fs.azure.account.key.x", "hunter2"): "***",
    ("spark.driver.extraJavaOptions", "-Dx.keyStorePassword=hunter2 -Dy=1"): "-Dx.keyStorePassword=*** -Dy=1",
    ("into", "s3a://me:hunter2@bucket/revenue"): "s3a://me:***@bucket/revenue",
    ("why", 'refused: {"password": "hunter2", "user": "ann"}'): 'refused: {"password": "***", "user": "ann"}',
    ("web.token", "hunter2"): "***",
    ("why", "mysql --password hunter2 --user ann"): "mysql --password *** --user ann",
    ("why", "mysql --db-password 'hunter2' x"): "mysql --db-password '***' x",
    (
        "into",
        "https://a.blob.core.windows.net/c?sv=2024&sig=hunter2",
    ): "https://a.blob.core.windows.net/c?sv=2024&sig=***",
    (
        "why",
        "Endpoint=sb://x;SharedAccessKeyName=r;SharedAccessSignature=hunter2",
    ): "Endpoint=sb://x;SharedAccessKeyName=***;SharedAccessSignature=***",
    ("spark.hadoop.fs.azure.sas.c.account.dfs.core.windows.net", "hunter2"): "***",
    ("spark.hadoop.fs.azure.sas.fixed.token.account", "hunter2"): "***",
    ("why", "curl -H 'Authorization: Bearer hunter2'"): "curl -H 'Authorization: Bearer ***'",
    ("why", '{"Authorization": "Basic hunter2"}'): '{"Authorization": "Basic ***"}',
    ("why", "sent Bearer hunter2"): "sent Bearer ***",
    ("why", "give it as a bearer token, or as a password"): "give it as a bearer token, or as a password",
    ("spark.jars.repositories", "https://hunter2@repo.example/x"): "https://***@repo.example/x",
    ("spark.jars.repositories", "https://hunter2@repo.example/x@1"): "https://***@repo.example/x@1",
    ("into", "abfss://container@account.dfs.core.windows.net/x"): "abfss://container@account.dfs.core.windows.net/x",
    ("into", "http://127.0.0.1:8080/users/ann@example.com"): "http://127.0.0.1:8080/users/ann@example.com",
    ("into", "https://repo.example/x@1"): "https://repo.example/x@1",
    ("spark.driver.extraJavaOptions", "-Dx.password='hunter2' -Dy=1"): "-Dx.password='***' -Dy=1",
    ("why", "the token"): "the token",
    ("why", "token: "): "token: ",
    ("why", "token=***"): "token=***",
    ("into", "s3a://bucket/revenue"): "s3a://bucket/revenue",
    ("spark.master", "spark://host:7077"): "spark://host:7077",
}


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_a_secret_is_masked_wherever_it_stands(name: str, value: str):
    """The token of a Spark Connect server stood in the coordinator stream and on the page."""
    assert shown(name, value) == SECRETS[name, value]
    assert ("hunter2" in s.secrets_in(name, value)) == ("hunter2" in value)
    if "hunter2" in value:
        assert not s.kept_in_run(name, value)
        assert "secret" in override_problem(name, value, ran=False)


def test_only_settings_of_the_job_that_hold_no_address_are_written_into_a_run():
    """The run's record is read by every client of the cluster that may read the topic."""
    kept = {name for name in SETTINGS if s.kept_in_run(name, SETTINGS[name].default)}
    assert {"commit.interval", "heartbeat.interval", "guarantee"} <= kept
    assert not kept & {"spark.remote", "spark.master", "spark.package", "bootstrap", "web.token", "state.dir"}
    assert not s.kept_in_run("spark.executor.memory", "1g")


def test_unset_needs_no_value():
    assert override_problem("commit.interval", None, ran=True, unset=True) == ""


@settings(deadline=None, max_examples=30)
@given(st.text(max_size=12))
def test_any_text_finds_a_nearest_name_or_none(name: str):
    assert nearest(name, SETTINGS) in ("", *SETTINGS)
    assert nearest(name, [name]) == name


def test_who_mistypes_is_offered_what_there_is():
    """The nearest name if one is near, else all of them, as far as a line of text goes; nothing when there is nothing."""
    names = [f"stream-{n}" for n in range(12)]
    assert offer("steam-3", names) == "did you mean 'stream-3'?"
    assert offer("Partition 9", ["Partition 0", "Partition 1"]) == "there are 'Partition 0', 'Partition 1'"
    assert offer("xyzzy", names, most=2) == "there are 'stream-0', 'stream-1' and 10 more"
    assert offer("xyzzy", ["b", "a", "b"]) == "there are 'a', 'b'"
    assert offer("xyzzy", ["only"]) == "there is 'only'"
    assert offer("xyzzy", []) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("streams.orders.priority", ""), ("commit.interval", ""), ("streams.eu.orders.priority", ""),
        ("streams.ordesr.priority", "the job has no input 'ordesr', so 'streams.ordesr.priority' has no effect; did you mean 'orders'?"),
    ],
)  # fmt: skip
def test_a_setting_of_a_stream_that_is_not_there_means_nothing(name: str, why: str):
    """It was acknowledged, and nothing came of it."""
    assert stream_problem(name, ["orders", "eu.orders"]) == why
