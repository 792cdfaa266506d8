"""What a recorded run was: the plan to make it again, how long it loads, and the versions it depends on."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from aaco import __version__
from aaco.core.errors import UsageError
from aaco.core.plan import Plan
from aaco.core.session import Session
from aaco.tracelake import documents, layout

AS_RECORDED = ("model", "backend", "batch", "io", "seed", "inputs", "shapes", "custom_ops")
RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-migraphx", "onnxruntime-openvino")


def plan_fields(session: Session) -> dict[str, Any]:
    """Return the fields of Plan that make the same workload again. Raise UsageError for what is no run of a model."""
    planned = session.record.planned
    if session.record.is_import or planned.command:
        what = "an import" if session.record.is_import else "a command"
        raise UsageError(f"session {session.id} is {what}: changes are tried on models that ONNX Runtime runs here",
                         "aaco run MODEL, then aaco try")
    if session.status != "complete":
        raise UsageError(f"session {session.id} is {session.status}", "aaco run MODEL, then aaco try")
    fields = planned.model_dump(include=set(AS_RECORDED))
    defaults = Plan(model=planned.model).model_dump(include=set(AS_RECORDED))
    return {name: value for name, value in fields.items() if name in ("model", "backend", "batch")
            or value != defaults[name]}


def load_s(session: Session) -> float:
    """Return how long a process took to load the model, s; 0 where that was not recorded."""
    passes = documents.read(session, layout.ORT_CONFIG).get("passes") or ()
    loads = [timed["load_ms"] for timed in passes if timed.get("load_ms") is not None]
    return median(loads) / 1e3 if loads else 0.0


def versions() -> dict[str, str]:
    """Return the versions that a measurement depends on: that of AACO, and ONNX Runtime's by the wheel that has it."""
    return {"aaco": __version__} | {
        name: installed for name in RUNTIMES if (installed := _version(name))}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
