"""The words that people bring from Faust, Kafka Streams, Quix, Spark and pandas, and what headgate says in their place.

One table. A name that a stream, an app, a table or an expression does not have is looked up here, so that the error names the verb that
does the work and its page. A word stands here only if nothing of headgate has this name; a test holds that, that the verbs exist, and that
the pages do. `docs/words.md` is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .errors import UnknownName

APP, ROWS, COLUMNS, WINDOW, VIEW = (
    "an app",
    "a stream of rows",
    "a stream of columns",
    "a window",
    "a table of a stream",
)
TABLE, CONTEXT, BATCHES, EXPRESSION, PACKAGE = "a table", "a context", "batches", "an expression", "the package"
STREAMS = (ROWS, COLUMNS)
FAUST, STREAMS_API, QUIX, SPARK, PANDAS, FLINK = "Faust", "Kafka Streams", "Quix", "Spark", "pandas", "Flink"


@dataclass(frozen=True, slots=True)
class Word:
    """Names of others for one thing: who has them, on what they are looked for, what headgate says, and the page that explains it."""

    names: tuple[str, ...]
    of: tuple[str, ...]
    on: tuple[str, ...]
    instead: str
    page: str


def _word(names: str, of: str | tuple[str, ...], on: str | tuple[str, ...], instead: str, page: str) -> Word:
    return Word(
        tuple(names.split()),
        (of,) if isinstance(of, str) else of,
        (on,) if isinstance(on, str) else on,
        instead,
        f"docs/{page}",
    )


_AGGREGATES = "count reduce fold aggregate sum mean avg min max first last collect collect_list nunique"
_COUNTED = "tumbling_count_window hopping_count_window sliding_count_window"
_WINDOWS = (
    f"tumbling_window hopping_window session_window sliding_window {_COUNTED} windowed_by windowedBy window_by windowBy"
)
_SELECTS = "select drop rename selectExpr with_column_renamed withColumnRenamed withColumnsRenamed toDF reindex"
_ASSIGNS = "with_column withColumn withColumns assign eval"
_FRAMES = "map_in_pandas mapInPandas map_in_arrow mapInArrow map_partitions mapPartitions map_batches pipe"
WORDS = (
    # keys and partitions
    _word("group_by groupBy groupby key_by keyBy", (FAUST, STREAMS_API, QUIX, SPARK, PANDAS, FLINK), (*STREAMS, BATCHES),
          '.repartition("field") brings equal keys into one task; .agg(…) or .window(…) follows', "keys.md#bringing-equal-keys-together"),
    _word("group_by_key groupByKey", (STREAMS_API, SPARK), STREAMS,
          ".agg(…) and .window(…) go by the key as it is; .repartition(…) sets another one", "keys.md#bringing-equal-keys-together"),
    _word("select_key selectKey set_key with_key", STREAMS_API, STREAMS,
          '.repartition("field") if equal keys must meet, else .rekey("field") of rows, or .to(topic, key="field")',
          "keys.md#bringing-equal-keys-together"),
    _word("through repartition_by partition_by", (FAUST, STREAMS_API), STREAMS,
          '.repartition("field") goes through a stream of the job\'s own; .to(topic) and app.input(topic) of another job through yours',
          "keys.md#bringing-equal-keys-together"),
    _word("coalesce", SPARK, STREAMS, ".repartition(…, partitions=n)", "keys.md#bringing-equal-keys-together"),
    # merging and branching
    _word("union unionAll unionByName union_by_name combine concat append cogroup", (FAUST, STREAMS_API, QUIX, SPARK, PANDAS), STREAMS,
          ".merge(other)", "steps.md#merging"),
    _word("split", STREAMS_API, STREAMS, "big, small = orders.branch(is_big, is_small)", "steps.md#branching"),
    _word("echo clone tee", FAUST, STREAMS, "use the stream twice: a verb never changes the stream that it is called on",
          "steps.md#branching"),
    # one row at a time
    _word("set_headers with_headers", QUIX, STREAMS, ".map(fn, with_record=True) of rows returns a record with headers",
          "steps.md#headers"),
    _word("map_values mapValues apply transform transform_values transformValues assign_value", (STREAMS_API, QUIX, SPARK, PANDAS), STREAMS,
          ".map(fn) of rows gets and returns values; .map(fn, with_record=True) gets records", "steps.md#one-row-at-a-time"),
    _word("flat_map_values flatMapValues flatMap expand", (STREAMS_API, QUIX, SPARK, PANDAS), STREAMS,
          '.flat_map(fn) of rows; .explode("items") of columns', "steps.md#one-row-at-a-time"),
    _word("explode", (SPARK, PANDAS), ROWS, '.flat_map(fn), or .columns().explode("items")', "columns.md#lists"),
    _word("filter_not filterNot where query", (STREAMS_API, SPARK, PANDAS), STREAMS,
          ".filter(fn), or .filter(hg.col(…) > 0) where the values have a declared type", "steps.md#one-row-at-a-time"),
    _word("update", QUIX, STREAMS, ".map(fn) returns the new value, .peek(fn) is for effects", "steps.md#one-row-at-a-time"),
    _word("process_values processValues", STREAMS_API, STREAMS, ".process(MyActor) of rows", "actors.md"),
    _word("join_lookup lookup_join async_lookup", (QUIX, FLINK), STREAMS,
          '.lookup(fn, on="field", cache="5m", into=joined) of rows', "async.md"),
    _word("async_map mapAsync map_unordered ordered_wait", FLINK, STREAMS, ".map_async(fn, concurrency=16) of rows", "async.md"),
    _word("items noack noack_take enumerate", FAUST, (*STREAMS, BATCHES),
          "a batch of an agent gives records with key, value, timestamp and headers: async for batch in batches", "actors.md#agents"),
    _word("events", FAUST, (*STREAMS, BATCHES), ".map(fn, with_record=True), or the records of an agent's batch", "actors.md#agents"),
    _word("take take_events take_with_timestamp buffer", FAUST, (*STREAMS, BATCHES),
          "an agent gets batches; .batch(max_rows=…, max_age=…) makes bounded ones for Spark, .window(…).process(MyActor) those of a time",
          "actors.md#agents"),
    # columns
    _word(_SELECTS, (SPARK, PANDAS), ROWS, ".map(fn) returns the fields that go on; of columns .frame(fn, like=…, schema=…)",
          "columns.md#functions-of-frames"),
    _word(_SELECTS.removeprefix("select "), (SPARK, PANDAS), COLUMNS, '.select("user", new=hg.col("old")) keeps columns and renames them',
          "columns.md#expressions"),
    _word("[…]", (QUIX, SPARK, PANDAS), ROWS,
          ".filter(fn) keeps rows, and .map(fn) takes fields or sets them", "steps.md#one-row-at-a-time"),
    _word("[…]", (QUIX, SPARK, PANDAS), COLUMNS,
          '.filter(hg.col("a") > 1) keeps rows, and .with_columns(total=hg.col("a") * 1.2) sets fields', "columns.md#expressions"),
    _word(_ASSIGNS, (SPARK, PANDAS), ROWS, '.columns().with_columns(total=hg.col("amount") * 1.2), or .map(fn)', "columns.md#expressions"),
    _word(_ASSIGNS, (SPARK, PANDAS), COLUMNS, '.with_columns(total=hg.col("amount") * 1.2)', "columns.md#expressions"),
    _word(_FRAMES, (SPARK, PANDAS), ROWS, ".columns().frame(fn, like=…, schema=…)", "columns.md#functions-of-frames"),
    _word(_FRAMES, (SPARK, PANDAS), COLUMNS, ".frame(fn, like=…, schema=…)", "columns.md#functions-of-frames"),
    _word("fillna dropna fill na", (SPARK, PANDAS, QUIX), ROWS, ".filter(fn) or .map(fn)", "steps.md#one-row-at-a-time"),
    _word("fillna dropna fill na", (SPARK, PANDAS, QUIX), COLUMNS, ".filter(~hg.col(…).is_null()), or .frame(fn, like=…, schema=…)",
          "columns.md#expressions"),
    _word("sort sort_values orderBy order_by limit head tail", (SPARK, PANDAS), STREAMS,
          "a stream has no end to sort at: .window(…).process(MyActor), or .batch(…).spark(fn, schema=…)",
          "windows.md#the-rows-of-a-window"),
    # state
    _word(_AGGREGATES, (FAUST, STREAMS_API, QUIX, SPARK, PANDAS), (*STREAMS, WINDOW),
          '.agg(n=hg.count(), x=hg.reduce("field", fn)); your own: .agg(x=hg.aggregate(init, add, merge))', "reference/api/windows.md"),
    _word("distinct drop_duplicates dropDuplicates drop_duplicates_within_watermark dropDuplicatesWithinWatermark dedup",
          (SPARK, PANDAS), STREAMS, '.dedupe(ttl="1d")', "tables.md#dropping-duplicates"),
    _word("to_table toTable", (STREAMS_API, SPARK), STREAMS, '.table("name") follows the stream; .to(topic) writes it', "tables.md"),
    _word("inner_join innerJoin", FAUST, STREAMS, ".join(other, into=fn)", "joins.md"),
    _word("left_join leftJoin outer_join outerJoin", (FAUST, STREAMS_API), STREAMS, '.join(other, how="left", into=fn)', "joins.md"),
    _word("foreign_key_join foreignKeyJoin left_foreign_key_join leftForeignKeyJoin", STREAMS_API, STREAMS,
          '.repartition("customer").join(customers, into=fn), or .join(rates, on="currency", into=fn) with a broadcast table; a row of the '
          "table that changes later changes no result", "tables.md#joining-a-table"),
    _word("join_latest join_asof merge_asof", (QUIX, PANDAS), STREAMS,
          '.join(app.input(topic).table("name"), into=fn)', "tables.md#joining-a-table"),
    _word("join_interval interval_join", (QUIX, FLINK), STREAMS, '.join(other, within=("1s", "10s"), into=fn)', "joins.md"),
    _word("map_with_state mapGroupsWithState flatMapGroupsWithState apply_in_pandas_with_state applyInPandasWithState transformWithState",
          SPARK, STREAMS, ".repartition(…).process(MyActor) with a table and timers", "actors.md"),
    # time
    _word(f"{_WINDOWS} tumbling hopping", (FAUST, STREAMS_API, QUIX), STREAMS,
          '.window(hg.tumbling("1m")), hg.hopping(…), hg.session(…) or hg.sliding(…)', "windows.md#the-windows"),
    _word("suppress", STREAMS_API, (*STREAMS, WINDOW),
          "nothing: a window gives one final result when it closes; .window(…, emit=…) gives early ones, too",
          "windows.md#when-a-window-closes"),
    _word("final", QUIX, WINDOW, ".agg(…) gives one final result for each window", "windows.md#when-a-window-closes"),
    _word("current", QUIX, WINDOW, '.window(…, emit="10s") gives early results', "windows.md#results-before-a-window-closes"),
    _word("emit_on_window_close emitStrategy", STREAMS_API, WINDOW, '.window(…, emit="final"), which is the default',
          "windows.md#results-before-a-window-closes"),
    _word("with_watermark withWatermark set_timestamp assign_timestamps_and_watermarks", (SPARK, QUIX, FLINK), STREAMS,
          'app.input(topic, timestamp="ts", max_out_of_order="10s")', "windows.md#when-a-window-closes"),
    # results
    _word("foreach for_each forEach", (STREAMS_API, SPARK), STREAMS,
          ".sink(fn) of batches, at least once, at the end; .peek(fn) of rows on the way", "async.md#sinks"),
    _word("foreach_batch foreachBatch foreach_partition foreachPartition", SPARK, STREAMS,
          ".sink(fn) of batches, or .batch(…).spark(fn, schema=…).write(fn)",
          "async.md#sinks"),
    _word("to_topic to_kafka produce send write_stream writeStream write_to_kafka", (QUIX, FAUST, SPARK), STREAMS, ".to(topic)",
          "quickstart.md"),
    _word("print show print_table explain", (STREAMS_API, QUIX, SPARK, PANDAS), STREAMS,
          ".peek(print) of rows; `headgate tail TOPIC` and `headgate plan MODULE:app` show topics and steps", "steps.md#looking-at-rows"),
    _word("ack", FAUST, (*STREAMS, BATCHES), "nothing: positions are committed with the results", "promises.md"),
    _word("to_pandas toPandas toArrow to_arrow", SPARK, STREAMS,
          ".columns().sink(fn) gets Arrow batches, .columns().frame(fn, like=…) frames",
          "columns.md#sinks"),
    _word("cache persist checkpoint", SPARK, STREAMS, "nothing: a stream may be used twice", "steps.md#branching"),
    # an app
    _word("topic stream dataframe source add_source read_stream readStream from_topic subscribe channel", (FAUST, STREAMS_API, QUIX, SPARK),
          APP, "app.input(topic)", "reference/api/app.md"),
    _word("global_table globalTable GlobalTable SetGlobalTable", (FAUST, STREAMS_API), APP,
          'app.input(topic).table("name", broadcast=True)', "tables.md#tables-that-follow-a-topic"),
    _word("set_table SetTable Table register_store add_state_store addStateStore", (FAUST, STREAMS_API), APP,
          'app.table("name")', "tables.md"),
    _word("schedule every periodic", FAUST, APP,
          '@app.timer("10s"), once in the job; ctx.timer(name, after="10s") of an actor, in each task', "actors.md#once-in-the-job"),
    _word("crontab cron", FAUST, APP,
          '@app.timer("1d"), or ctx.timer(name, after=…) of an actor, until the next time of the calendar, and again in on_timer',
          "actors.md#once-in-the-job"),
    _word("task on_start on_started service", FAUST, APP, "the hooks on_start and on_stop of an actor", "actors.md#the-life-of-an-actor"),
    _word("page web_view route table_route", FAUST, APP,
          "a worker's pages show tables (`/api/tables/NAME`); a web server of your own is another process",
          "tables.md#reading-a-table-from-outside"),
    _word("on_stop on_rebalance_start is_leader", FAUST, APP, "the hooks on_start and on_stop of an actor, in each task",
          "actors.md#the-life-of-an-actor"),
    _word("conf config", (FAUST, QUIX), APP, "App(settings=…), headgate.toml and `headgate config`", "operations.md#configuration"),
    _word("discover autodiscover", FAUST, APP, "App(include=[…])", "reference/api/app.md"),
    _word("command", FAUST, APP, "a program of your own, with hg.metadata, hg.drain and so on",
          "operations.md#controlling-a-job-from-a-program"),
    _word("main run start stop close", (FAUST, STREAMS_API, QUIX), APP, "`headgate run MODULE:app`", "operations.md"),
    _word("sink to_sink", QUIX, APP, ".sink(fn) of a stream", "async.md#sinks"),
    _word("send get_producer producer", (FAUST, QUIX), APP, "ctx.emit(topic, value) in a hook of an actor, or .to(topic) of a stream",
          "actors.md#what-a-hook-can-do"),
    # tables
    _word("join left_join leftJoin outer_join outerJoin", STREAMS_API, VIEW,
          "stream.join(table, into=fn); two tables meet in a function that reads both", "tables.md#two-tables"),
    _word("foreign_key_join foreignKeyJoin left_foreign_key_join leftForeignKeyJoin", STREAMS_API, VIEW,
          'the stream before .table(…) joins by its foreign key: stream.repartition("customer").join(customers, into=fn); two tables meet '
          "in a function that reads both", "tables.md#two-tables"),
    _word("agg window tumbling hopping session dedupe", (SPARK, FLINK), VIEW,
          "nothing that was emitted is taken back: the stream before .table(…) takes .agg(…), .window(…) and .dedupe(…)",
          "from-kafka-streams.md#counting-a-table"),
    _word("aggregate count reduce", STREAMS_API, VIEW,
          "nothing that was emitted is taken back: .agg(…) on the stream before .table(…), or a function with a table of the app",
          "from-kafka-streams.md#counting-a-table"),
    _word("filter map map_values mapValues transform_values transformValues", STREAMS_API, VIEW,
          'a step before the table: stream.map(fn).table("name")', "tables.md#tables-that-follow-a-topic"),
    _word("to_stream toStream to group_by groupBy", STREAMS_API, VIEW, "the stream before .table(…), which may be used twice",
          "tables.md#tables-that-follow-a-topic"),
    _word("put set update delete remove pop put_all putAll setdefault", (FAUST, STREAMS_API, QUIX), VIEW,
          "a table of a stream follows its topic: write to the topic; one that functions write is app.table(…)",
          "tables.md#tables-that-follow-a-topic"),
    _word("get items values keys", (FAUST, STREAMS_API), VIEW, "a table of app.table(…) is a mapping; a table of a stream is for .join(…)",
          "tables.md#tables-that-follow-a-topic"),
    _word("join left_join leftJoin outer_join outerJoin foreign_key_join foreignKeyJoin left_foreign_key_join leftForeignKeyJoin",
          (STREAMS_API, FAUST), TABLE, 'stream.join(table, into=fn) takes a table that follows a stream, app.input(topic).table("name"); '
          "one of app.table(…) is read by functions, and two of them in one function", "tables.md#two-tables"),
    _word("agg aggregate count reduce", (STREAMS_API, SPARK), TABLE,
          'stream.repartition("field").agg(…), whose results .table("name") follows; a function counts by table[key] = …',
          "tables.md"),
    _word("filter map map_values mapValues to_stream toStream to", STREAMS_API, TABLE,
          "a function reads the table and returns what goes on; the changes of a table are a stream before .table(…) only", "tables.md"),
    _word("tumbling hopping using_window relativeto relative_to_field relative_to_now", FAUST, TABLE,
          'stream.window(hg.tumbling("1m")).agg(…)', "windows.md"),
    _word("put set put_if_absent putIfAbsent", (STREAMS_API, QUIX), TABLE, "table[key] = value, or .setdefault(key, value)", "tables.md"),
    _word("put_all putAll", STREAMS_API, TABLE, ".update({…})", "tables.md"),
    _word("delete remove", (STREAMS_API, QUIX), TABLE, "del table[key], or .pop(key, None)", "tables.md"),
    _word("all iterator scan prefix_scan prefixScan", STREAMS_API, TABLE, ".range(start, end), or .items()", "tables.md#ranges"),
    _word("exists", QUIX, TABLE, "key in table", "tables.md"),
    # actors
    _word("set_timer register_timer register_event_time_timer schedule call_later", (FLINK, STREAMS_API), CONTEXT,
          'ctx.timer(name, at=…) of event time, ctx.timer(name, after="10s") of the clock', "actors.md#timers"),
    _word("send produce output collect", (FAUST, FLINK), CONTEXT, "ctx.emit(topic, value) to a topic, ctx.forward(value) to the next step",
          "actors.md#what-a-hook-can-do"),
    _word("state get_state get_state_store getStateStore store", (STREAMS_API, QUIX, FLINK), CONTEXT, 'ctx.table("name")',
          "actors.md#what-a-hook-can-do"),
    _word("timestamp current_stream_time_ms currentStreamTimeMs current_system_time_ms current_watermark stream_time", (STREAMS_API, FLINK),
          CONTEXT, "ctx.watermark and ctx.now_ms; a record has its own timestamp", "actors.md#what-a-hook-can-do"),
    # expressions
    _word("isin", (SPARK, PANDAS), EXPRESSION, ".is_in([…])", "columns.md#expressions"),
    _word("isNull isna isnull", (SPARK, PANDAS), EXPRESSION, ".is_null()", "columns.md#expressions"),
    _word("isNotNull notna notnull is_not_null", (SPARK, PANDAS), EXPRESSION, "~hg.col(…).is_null()", "columns.md#expressions"),
    _word("startswith startsWith", (SPARK, PANDAS), EXPRESSION, ".starts_with(…)", "columns.md#expressions"),
    _word("astype", PANDAS, EXPRESSION, ".cast(float)", "columns.md#expressions"),
    _word("alias", SPARK, EXPRESSION, ".with_columns(name=…) gives the name", "columns.md#expressions"),
    _word("between", (SPARK, PANDAS), EXPRESSION, "(hg.col(…) >= a) & (hg.col(…) <= b)", "columns.md#expressions"),
    _word("when otherwise mask where", (SPARK, PANDAS), EXPRESSION, "hg.when(condition), and what it is then and otherwise",
          "columns.md#one-of-several-values"),
    _word("dayofweek dayofmonth dayofyear date_format to_timestamp dt", (SPARK, PANDAS), EXPRESSION,
          ".weekday(), .day(), .strftime(…), .strptime(…)", "columns.md#times"),
    _word("substr substring left", SPARK, EXPRESSION, ".slice(start, stop)", "columns.md#text"),
    _word("rlike regexp match fullmatch", (SPARK, PANDAS), EXPRESSION, ".matches(…)", "columns.md#text"),
    _word("trim", SPARK, EXPRESSION, ".strip()", "columns.md#text"),
    _word("fillna fill_null combine_first ifnull nvl", (SPARK, PANDAS), EXPRESSION, "hg.coalesce(hg.col(…), 0)",
          "columns.md#one-of-several-values"),
    # the package
    _word("Application StreamsBuilder KafkaStreams", (FAUST, QUIX, STREAMS_API), PACKAGE, 'hg.App("name")', "reference/api/app.md"),
    _word("TumblingWindow TumblingWindows TimeWindows tumbling_window", (FAUST, STREAMS_API), PACKAGE, 'hg.tumbling("1m")', "windows.md"),
    _word("HoppingWindow HoppingWindows", FAUST, PACKAGE, 'hg.hopping("1m", every="10s")', "windows.md"),
    _word("SessionWindows SessionWindow", STREAMS_API, PACKAGE, 'hg.session("30m")', "windows.md"),
    _word("SlidingWindow SlidingWindows", (FAUST, STREAMS_API), PACKAGE, 'hg.sliding("1m"), with a result for each record',
          "windows.md#sliding-windows"),
    _word("avg average", SPARK, PACKAGE, "hg.mean(…)", "reference/api/windows.md"),
    _word("max_by maxBy argmax", (SPARK, FLINK), PACKAGE, 'hg.arg_max("item", by="price")', "columns.md#conditions-ranks-and-estimates"),
    _word("min_by minBy argmin", (SPARK, FLINK), PACKAGE, 'hg.arg_min("item", by="price")', "columns.md#conditions-ranks-and-estimates"),
    _word("approx_count_distinct countDistinct n_unique", SPARK, PACKAGE, 'hg.count_distinct("user")',
          "columns.md#conditions-ranks-and-estimates"),
    _word("percentile percentile_approx approx_percentile median", SPARK, PACKAGE, 'hg.quantile("latency", 0.99)',
          "columns.md#conditions-ranks-and-estimates"),
    _word("Topic", (FAUST, QUIX), PACKAGE, "app.input(topic)", "reference/api/app.md"),
    _word("lit", SPARK, PACKAGE, 'nothing: hg.col("amount") * 1.2 takes plain values', "columns.md#expressions"),
)  # fmt: skip
"""Every word, once for each kind of thing that it is looked for on."""


@cache
def _table() -> dict[tuple[str, str], Word]:
    return {(name, on): word for word in WORDS for on in word.on for name in word.names}


def brought(name: str, on: str) -> UnknownName | None:
    """The error of a name that others have, looked for on this kind of thing; None for a name that no one brings.

    >>> print(brought("group_by", "a stream of rows").what)
    a stream of rows has no 'group_by', which Faust, Kafka Streams, Quix, Spark, pandas, Flink have
    """
    word = _table().get((name, on))
    if word is None:
        return None
    has = "has" if len(word.of) == 1 else "have"
    return UnknownName(
        f"{on} has no '{name}', which {', '.join(word.of)} {has}", remedy=f"{word.instead} ({word.page})"
    )
