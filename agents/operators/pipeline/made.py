"""Makes the operator that runs a step.

A step may not import what runs it, so it names it (`Step.operator`), and the operator is imported here: a job loads what its steps need,
and Spark's side only if it uses Spark. A step that names none cannot run: no step passes rows on because it was forgotten.
"""

from __future__ import annotations

import importlib

from ...job.steps.step import Step
from ..base.stateless import Env, Operator


def operator_of(step: Step, env: Env) -> Operator:
    """The operator that runs a step."""
    return operator_class(step.operator)(step, env)


def operator_class(path: str) -> type[Operator]:
    """The class at this path below `agents/operators`: its file, and its name."""
    file, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"..{file}", __package__), name)
