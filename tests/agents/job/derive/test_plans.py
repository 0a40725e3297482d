"""What the machines are configured with: the rules that settings name are the rules that the leader follows."""

from __future__ import annotations

import pytest

from headgate.agents.job.derive.plans import grouper, immutable, placer
from headgate.core.coordination.placement import place
from headgate.core.errors import SettingError
from headgate.core.graph.grouping import all_in_one, by_partition, by_stream_partition


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ({}, by_partition),
        ({"grouper": "partition"}, by_partition),
        ({"grouper": "stream-partition"}, by_stream_partition),
        ({"grouper": "all"}, all_in_one),
        ({"grouper": "headgate.core.graph.grouping:all_in_one"}, all_in_one),
    ],
)
def test_the_grouper_that_a_setting_names(setting, rule):
    assert grouper(setting) is rule


def test_the_placement_that_a_setting_names():
    assert placer({}) is place
    assert placer({"placement": "default"}) is place
    assert placer({"placement": "headgate.core.coordination.placement.place"}) is place


@pytest.mark.parametrize(("rule", "name"), [(grouper, "grouper"), (placer, "placement")])
def test_what_cannot_be_imported_is_named_with_what_may_stand_there(rule, name):
    with pytest.raises(SettingError, match=f"the {name} 'nowhere.at_all' cannot be imported"):
        rule({name: "nowhere.at_all"})


def test_a_setting_at_its_default_does_not_tell_two_codes_apart():
    """A rolling upgrade to a version that knows one more setting joins the run; a setting that was changed does not."""
    assert immutable({}) == immutable({"grouper": "partition"}) == {}
    assert immutable({"grouper": "all"}) == {"grouper": "all"}
