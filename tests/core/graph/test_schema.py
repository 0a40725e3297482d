"""What a change of a table's declaration does to what is stored: kept by name, refused with the difference, or made by a function."""

from __future__ import annotations

import doctest

import msgpack
import pytest

from headgate.core.errors import CheckpointError
from headgate.core.graph import schema as module
from headgate.core.graph.schema import (
    MOST_TEXT,
    Field,
    History,
    Schema,
    SchemaRefused,
    Version,
    adopt,
    digest,
    pack_history,
    state_parts,
    unpack_history,
)

N, TOTAL = Field("n", "count"), Field("total", "sum", of="x")


def states(*fields, key="text"):
    return Schema("aggregate", key, "states", fields, by_position=True)


def table(*fields, value="json", key="text"):
    return Schema("table", key, value, fields)


def history(*schemas, migrates=()):
    """What a log holds after these declarations, one after the other."""
    found = None
    for number, schema in enumerate(schemas):
        found = adopt("t", found, schema, migrates=number in migrates).history
    return found


def refused(before, now, **how):
    with pytest.raises(SchemaRefused) as error:
        adopt("t", before, now, **how)
    return error.value


def test_what_has_not_changed_is_the_same_history():
    found = history(states(N, TOTAL))
    assert adopt("t", found, states(N, TOTAL)) == (found, ())


def test_swapped_fields_keep_their_numbers():
    """Two keyword arguments in another order: rows are read by name, or users would see one number under the other's name."""
    found = history(states(N, TOTAL), states(TOTAL, N))
    assert (found.number, found.places(0), found.places(1)) == (1, (1, 0), (0, 1))


def test_fields_come_and_go_and_what_comes_back_begins_anew():
    """What was dropped and is added again does not rise from old rows: rows that were written meanwhile have lost it."""
    found = history(states(N, TOTAL), states(N), states(N, TOTAL))
    assert [found.places(number) for number in (0, 1, 2)] == [(0, None), (0, None), (0, 1)]
    assert adopt("t", history(states(N, TOTAL)), states(N)).news == ("'total' was removed, and its values are deleted",)
    assert adopt("t", history(states(N)), states(N, TOTAL)).news == (
        "'total' is new and starts with its initial value",
    )


def test_of_what_a_field_is_may_change_and_that_is_said():
    """A misspelt field is corrected: the kind is what is stored, so the state stays, and the rows look the same."""
    found = adopt("t", history(states(TOTAL)), states(Field("total", "sum", of="y")))
    assert found.news == ("'total' was of x, and is of y; its value is kept",)
    assert found.history.number == 0
    more = adopt("t", found.history, states(Field("total", "sum")))
    assert more.news == ("'total' was of y, and is of a function; its value is kept",)


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (states(N), states(Field("n", "sum")), "'n' was count, and would become sum"),
        (
            states(Field("a", "aggregate", "int")),
            states(Field("a", "aggregate", "str")),
            "'a' was of type int, and would become str",
        ),
        (table(), table(value="msgpack"), "its values are json, and would become msgpack"),
        (
            table(Field("a", "field", "int")),
            table(Field("a", "field", "int"), Field("b", "field", "int", required=True)),
            "'b' is new and has no default",
        ),
        (
            table(Field("a", "field", "int")),
            table(Field("a", "field", "int", required=True)),
            "'a' no longer has a default",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_difference_and_the_ways_out(before, now, says):
    error = refused(history(before), now)
    assert "the table 't' does not fit" in error.what
    assert says in error.differences[0]
    for way in ("run the old code", "another name", "migrate=", "headgate tables clear JOB", "headgate reset"):
        assert way in error.remedy
    made = adopt("t", history(before), now, migrates=True).history
    assert (made.number, made.needs_function(0), made.migrating) == (1, True, True)


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (table(), table(key="json"), "its keys are text, and would become json"),
        (states(N), table(), "it belongs to an aggregate, not to a table"),
        (
            Schema("window tumbling-10s", "text", "states", (N,), by_position=True),
            Schema("window hopping-10s-every-5s", "text", "states", (N,), by_position=True),
            "it belongs to a window tumbling-10s, not to a window hopping-10s-every-5s",
        ),
    ],
)
def test_other_keys_and_another_kind_are_beyond_a_function(before, now, says):
    error = refused(history(before), now, migrates=True)
    assert error.differences[0] == says
    assert "migrate" not in error.remedy


@pytest.mark.parametrize(
    ("was", "now"),
    [("int", "float"), ("int", "int | none"), ("int | none", "none | int"), ("int", "any"), ("str", "str")],
)
def test_a_type_that_takes_every_stored_value_fits(was, now):
    found = adopt("t", history(table(Field("a", "field", was))), table(Field("a", "field", now)))
    assert found.history.number == 0


def test_values_of_a_declared_type_and_of_none():
    """JSON stays JSON: a type that comes is checked as rows are read, one that goes takes nothing away."""
    typed = table(Field("a", "field", "int", required=True))
    assert history(table(), typed).number == 0
    assert adopt("t", history(typed), table()).news == ()


def test_a_function_stays_until_every_row_was_written_again():
    """Or rows that nobody can read would be found one day, in the middle of a run."""
    changed = states(Field("n", "sum"))
    found = history(states(N), changed, migrates={1})
    error = refused(found, changed)
    assert "some rows can be read only" in error.what
    assert "keep migrate=" in error.remedy
    assert adopt("t", found, changed, migrates=True) == (found, ())
    again = refused(found, states(Field("n", "max")), migrates=True)
    assert "has not rewritten every row yet" in again.what
    done = found.finished()
    assert (done.migrating, adopt("t", done, changed)) == (False, (done, ()))
    assert adopt("t", done, states(Field("n", "max")), migrates=True).history.migrating


def test_what_is_said_of_a_migrated_table_by_name():
    """A change that fits is no migration, though there is a function; and it does not end one that is under way."""
    found = history(table(), table(value="text"), migrates={1})
    more = adopt("t", found, table(Field("a", "field"), value="text"), migrates=True).history
    assert (more.number, more.migrating) == (1, True)


def test_partial_states_name_their_schema():
    found = history(states(N, TOTAL), states(TOTAL, N), states(TOTAL))
    assert [found.find(digest(one)) for one in ((N, TOTAL), (TOTAL, N), (TOTAL,), (N,))] == [0, 1, 2, None]


def test_a_type_that_grew_keeps_the_digest_of_those_on_the_way():
    was, now = Field("a", "aggregate", "int"), Field("a", "aggregate", "float")
    found = history(states(was), states(now))
    assert (found.find(digest((was,))), found.places(0)) == (0, (0,))


def test_the_number_of_a_row_takes_two_bytes():
    full = History("aggregate", "text", (Version("states", (N,), (0,)),) * 65_536)
    assert "65536 times" in refused(full, states(N, TOTAL)).what


GOLDEN = (
    "85a17601a46b696e64a9616767726567617465a36b6579a474657874a972657772697474656e00a876657273696f6e739293a6737461746573c29196"
    "00a16ea5636f756e74a3616e79a0c293a6737461746573c3929600a16ea373756da3616e79a0c29601a5746f74616ca373756da3616e79a178c2"
)


def test_golden_bytes():
    found = history(states(N), states(Field("n", "sum"), TOTAL), migrates={1})
    packed = pack_history(found)
    assert packed.hex() == GOLDEN
    assert unpack_history("t", packed) == found


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x90", msgpack.packb({"v": "x"}), msgpack.packb({"v": 1, "kind": "", "key": "", "rewritten": 0})]
    + [
        msgpack.packb({"v": 1, "kind": "", "key": "", "rewritten": 0, "versions": bad})
        for bad in ([], [1], [["", False, [1]]])
    ],
)
def test_bytes_that_are_no_history(data):
    with pytest.raises(CheckpointError, match="table 't' cannot be read"):
        unpack_history("t", data)


def test_a_newer_history_is_named():
    with pytest.raises(CheckpointError, match="format version 2; this headgate reads up to 1"):
        unpack_history("t", msgpack.packb({"v": 2}))


def test_two_codes_in_one_run_are_told_apart_by_what_they_keep():
    """Not by the order of fields, nor by of what they are: that is corrected while a run is stopped."""
    parts = [state_parts({"t": one}) for one in (states(N, TOTAL), states(Field("total", "sum"), N), states(N))]
    assert parts[0] == parts[1] != parts[2]
    windows = [state_parts({"t": Schema(f"{kind}tumbling-1m", "msgpack", "v")}) for kind in ("window ", "batches of ")]
    assert windows[0] == windows[1] == {"state:t": '{"keys": "msgpack", "values": "v", "windows": "tumbling-1m"}'}
    long = state_parts({"t": states(*(Field(f"field-{n}", "count") for n in range(100)))})
    assert len(long["state:t"]) < MOST_TEXT


def test_its_examples_are_true():
    assert doctest.testmod(module).failed == 0
