"""Derives from a declaration and its settings the values that configure the machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.coordination.placement import Placer, place
from ....core.graph.fingerprint import parts as graph_parts
from ....core.graph.grouping import GROUPERS, Grouper
from ....core.graph.schema import state_parts
from ....core.settings import IMMUTABLE, SETTINGS, find, parse
from ....core.task.plan import TaskSettings
from ...by_name import imported
from .declaration import Declared


def immutable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide where state is stored, without those that have their defaults.

    A newer headgate that knows one such setting more, or one less, must be able to join a run that an older one began.

    >>> immutable({"grouper": "all", "placement": "default"})
    {'grouper': 'all'}
    """
    found: dict[str, Any] = {}
    for name, row in SETTINGS.items():
        if row.kind == IMMUTABLE:
            default = parse(name, row.default)
            value = parse(name, settings.get(name, row.default))
            if value != default:
                found[name] = value
    return found


def parts(declared: Declared, settings: Mapping[str, Any]) -> dict[str, str]:
    """What may not differ in a live run: part → its value as text, so that people can read a difference."""
    return {
        **graph_parts(declared.graph, immutable(settings)),
        **state_parts({t.name: t.schema for t in declared.every_table()}),
    }


def seconds(settings: Mapping[str, Any], name: str) -> float:
    """A duration setting, in seconds."""
    return parse(name, settings.get(name, find(name).default)) / 1000


def grouper(settings: Mapping[str, Any]) -> Grouper:
    """The function that groups partitions into tasks: the one that the setting `grouper` names."""
    name = str(settings.get("grouper", find("grouper").default))
    return GROUPERS[name] if name in GROUPERS else imported("grouper", name, GROUPERS)


def placer(settings: Mapping[str, Any]) -> Placer:
    """The function that places tasks on workers: the one that the setting `placement` names."""
    name = str(settings.get("placement", find("placement").default))
    return place if name == "default" else imported("placement", name, ["default"])


def task_settings(settings: Mapping[str, Any]) -> TaskSettings:
    """The settings that a task's machine needs."""

    def value(name: str) -> Any:
        return parse(name, settings.get(name, find(name).default))

    return TaskSettings(
        watermark_interval_s=seconds(settings, "commit.interval"),
        idle_timeout_s=seconds(settings, "watermark.idle-timeout"),
        idle_confirm_s=seconds(settings, "watermark.idle-confirm"),
        aggregate_above=value("control.aggregate-above"),
        error_retries=value("error.retries"),
        restate_s=seconds(settings, "share.restate"),
        intermediate_max_lag=value("intermediate.max-lag"),
    )
