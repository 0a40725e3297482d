"""The configuration of a worker's two machines, its member and its leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.coordination.leader.plan import REJOIN, STANDBY, LeaderConfig, Plan, Timing, grace
from ...core.coordination.member.plan import MemberConfig
from ...core.graph.fingerprint import digest
from ...core.settings import find, kept_in_run, parse
from ..job.derive.plans import grouper, parts, placer, seconds
from .options import WorkerOptions


def deployment(options: WorkerOptions, settings: Mapping[str, Any]) -> str:
    """The given deployment id, or the fingerprint of graph, state and immutable settings."""
    return options.deployment or digest(parts(options.declared, settings))


def leader_config(options: WorkerOptions, settings: Mapping[str, Any]) -> LeaderConfig:
    """The configuration with which this process would lead."""
    graph = options.declared.graph
    bounded = any(one.until is not None or one.start != "oldest" for one in graph.inputs)
    plan = Plan(
        deployment=deployment(options, settings),
        fingerprint=parts(options.declared, settings),
        graph=graph,
        resolve=bounded,
        ends=tuple(sorted(one.stream for one in graph.counted)),
        grouper=grouper(settings),
        grouper_name=str(settings.get("grouper", find("grouper").default)),
        placer=placer(settings),
        placer_name=str(settings.get("placement", find("placement").default)),
        settings={name: value for name, value in settings.items() if kept_in_run(name, value)},
        wider=(lambda topics: options.declared.joined(topics).graph) if options.declared.patterns else None,
    )
    timing = Timing(
        beat_s=seconds(settings, "heartbeat.interval"),
        session_s=seconds(settings, "session.timeout"),
        stall_s=seconds(settings, "stall.timeout"),
        debounce_s=seconds(settings, "placement.debounce"),
        release_s=seconds(settings, "release.timeout"),
        prepare_s=seconds(settings, "placement.prepare"),
        work_on_s=seconds(settings, "stop.prepare"),
        standby=parse(STANDBY, settings.get(STANDBY, find(STANDBY).default)),
        **grace(parse(REJOIN, settings.get(REJOIN, find(REJOIN).default))),
        fence_deadline_s=seconds(settings, "fence.timeout"),
        jitter_s=options.jitter_s,
        answer_kept_ms=int(seconds(settings, "answers.keep") * 1000),
    )
    job = str(options.declared.app.job)
    masked = frozenset(options.flags)
    return LeaderConfig(options.processor, options.process, options.job_uuid, plan, timing, job, masked)


def member_config(options: WorkerOptions, settings: Mapping[str, Any]) -> MemberConfig:
    """The configuration of this process as a member."""
    return MemberConfig(
        processor=options.processor,
        process=options.process,
        job=str(options.declared.app.job),
        token=options.token,
        location=options.location,
        url=options.url,
        pid=options.pid,
        version=options.version,
        deployment=deployment(options, settings),
        fingerprint=parts(options.declared, settings),
        run_id=options.run_id,
        lock_free=options.lock_free,
        forerunners=options.forerunners,
        supervised=options.supervised,
        since_ms=options.since_ms,
        no_wait=options.no_wait,
        bounded=options.bounded,
        follows=True,
        beat_s=seconds(settings, "heartbeat.interval"),
        session_s=seconds(settings, "session.timeout"),
    )
