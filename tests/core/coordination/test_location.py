"""Where a worker is: each provider's answer, and the error of each that has none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.coordination.location import MAX_LOCATION, PROVIDERS, built_in, checked, provided
from headgate.core.errors import SettingError

POD = {"NODE_NAME": "node-7", "POD_NAME": "shop-12", "RACK": "eu/rack:3"}


@pytest.mark.parametrize(
    ("provider", "location"),
    [
        ("host", "box"),
        ("kubernetes-node", "node-7"),
        ("kubernetes-pod", "shop-12"),
        ("kubernetes-ordinal", "ordinal-12"),
        ("env:RACK", "eu/rack:3"),
    ],
)
def test_each_provider_answers_with_what_it_names(provider: str, location: str) -> None:
    """The environment and the host name are arguments, so the same worker always gets the same answer."""
    assert built_in(provider)
    assert provided(provider, "box", POD) == location


@pytest.mark.parametrize(
    ("provider", "environment", "what", "remedy"),
    [
        ("host", {}, "this machine's host name is empty", "env:NAME"),
        ("kubernetes-node", {}, "NODE_NAME, which is not set", "fieldPath: spec.nodeName"),
        ("kubernetes-pod", {}, "POD_NAME, which is not set", "fieldPath: metadata.name"),
        ("kubernetes-ordinal", {}, "POD_NAME, which is not set", "fieldPath: metadata.name"),
        ("kubernetes-ordinal", {"POD_NAME": "shop-7d9f-xk2"}, "a number at the end of POD_NAME, and it is 'shop-7d9f-xk2'", "StatefulSet"),
        ("kubernetes-node", {"NODE_NAME": ""}, "NODE_NAME is empty", "spec.nodeName"),
        ("env:RACK", {}, "RACK, which is not set", "RACK=rack-1"),
        ("env:RACK", {"RACK": "rack 3"}, "'rack 3': an id has no spaces", "RACK=rack-1"),
        ("env:RACK", {"RACK": "rack\x1b3"}, "no control characters", "RACK=rack-1"),
        ("env:", {}, "does not name a variable", "env:RACK"),
        ("env:A-B", {"A-B": "x"}, "does not name a variable", "env:RACK"),
    ],
)  # fmt: skip
def test_a_provider_without_a_usable_answer_says_what_where_and_what_helps(
    provider: str, environment: dict[str, str], what: str, remedy: str
) -> None:
    """The worker does not start at a place that nobody meant: its tasks' stores would be looked for on the wrong disks."""
    with pytest.raises(SettingError) as raised:
        provided(provider, "", environment)
    assert what in raised.value.what
    assert f"'{provider}'" in raised.value.what
    assert remedy in raised.value.remedy


def test_the_default_and_import_paths_are_answered_elsewhere() -> None:
    """The first lies in the state directory, the second is code; `PROVIDERS` names all that are built in."""
    assert [one for one in PROVIDERS if not built_in(one)] == ["default"]
    assert not built_in("kubernetes_node")
    assert not built_in("racks:mine")


@given(st.one_of(st.text(max_size=300), st.none(), st.integers(), st.binary()))
def test_an_id_is_taken_as_it_is_or_refused_with_a_reason(found: object) -> None:
    """Never changed, so that two workers that say the same are at the same location, and others are not."""
    usable = isinstance(found, str) and 0 < len(found) <= MAX_LOCATION and found.isprintable() and not found.count(" ")
    if usable:
        assert checked("racks:mine", found, "what it returned", "return a name") == found
        return
    with pytest.raises(SettingError) as raised:
        checked("racks:mine", found, "what it returned", "return a name")
    assert raised.value.what.startswith("location.provider 'racks:mine': what it returned is ")
    assert raised.value.remedy == "return a name"


@pytest.mark.parametrize("length", [MAX_LOCATION, MAX_LOCATION + 1])
def test_an_id_is_not_longer_than_people_read(length: int) -> None:
    """It stands in the coordinator stream for each worker and each task."""
    if length == MAX_LOCATION:
        assert checked("host", "x" * length, "it", "no") == "x" * length
    else:
        with pytest.raises(SettingError, match="of 201 characters, and 200 are allowed"):
            checked("host", "x" * length, "it", "no")
