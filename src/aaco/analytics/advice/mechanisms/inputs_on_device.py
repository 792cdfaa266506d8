"""Inputs that are on the device when the step begins: copies from the host are gone, with the host's work on them."""

from __future__ import annotations

from msgspec.structs import replace

from aaco.analytics.advice.action import (
    ACTS_ON,
    NOT_SERVING,
    ORT,
    OWN_CODE,
    PYTORCH,
    USUAL,
    Action,
    Values,
    of_own_work,
    of_targets,
)
from aaco.analytics.advice.least import without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import without_rows
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Reals


def _from_host(work: StepWork) -> Flags:
    return work.copies("h2d")


def _inputs_there(work: StepWork, least: Reals) -> Response:
    copied = _from_host(work)
    return replace(without_rows(work, copied, float(work.ns[copied].sum()) / work.steps), hands_over=True,
                   only_less=True)


def _with_own_work(values: Values) -> float:
    """Return the time of the copies, and of the host's own work, which goes where it makes what they copy. A profiler
    stretches that work: it counts in a step that was timed without one, or where recorded changes say what it gains.
    """
    copies = of_targets("inputs_on_device")(values)
    known = {ACTS_ON + "host_work", USUAL + "inputs_on_device"} & values.keys()
    try:
        return min(100.0, copies + of_own_work(values)) if copies and known else copies
    except KeyError:
        return copies


INPUTS_ON_DEVICE = Mechanism("inputs_on_device", "Have the inputs on the device", "D - copies from the host",
                             lambda work: without(work, _from_host(work)), respond=_inputs_there)
ACTIONS = (Action(
    "inputs_on_device", "Keep inputs on the device", _with_own_work,
    "the step copies from the host, or waits for the host's own work, which goes if it makes these inputs",
    "medium", (Step("make or load the inputs on the device, once for many steps: torch.empty(..., device=device)",
                    (PYTORCH, OWN_CODE)),
               Step("ONNX Runtime: session.io_binding() with inputs that lie on the device", (ORT,))),
    "transfer_limited_pct", applies_if=(NOT_SERVING,), already_done_if=(fact_is("copies", "none"),),
    memory="the inputs stay on the device", mechanism="inputs_on_device", or_confirm=("host_pause_pct",)),)
