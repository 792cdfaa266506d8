"""A narrower type and a device graph together: products in 16 bits, or in TF32, leave the device so little to do that
the step waits for the host, which a graph takes out of it. Either alone gains what the other path leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import (
    ACTS_ON,
    INFERENCE,
    NARROW,
    NVIDIA,
    OWN_CODE,
    PYTORCH,
    TRAINING,
    Action,
    Values,
    of_launches,
    of_targets,
)
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.graph import GRAPH, replayed
from aaco.analytics.advice.mechanisms.narrower_types import NARROWER_TYPES
from aaco.analytics.advice.mechanisms.tf32 import TF32
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals


def _launched_once(narrow: Mechanism, name: str, title: str) -> Mechanism:
    """Return the kind of change that is a narrower type with a device graph of what it leaves."""
    def respond(work: StepWork, least: Reals) -> Response:
        narrowed = narrow.respond(work, least).device_ns if narrow.respond else least
        return replace(replayed(work, least), device_ns=np.minimum(narrowed, work.sure_ns))

    return Mechanism(name, title, narrow.formula, narrow.least_ns, respond=respond, parts=(narrow.name, GRAPH.name))


def _at_most(mechanism: Mechanism) -> Callable[[Values], float]:
    """Return the time of launches and of what becomes narrower: the host's own work stays."""
    return lambda values: min(100.0, of_launches(values) + values[ACTS_ON + mechanism.name])


NARROW_GRAPH = _launched_once(NARROWER_TYPES, "narrow_graph", "Compute in 16 bits, launched by a device graph")
TF32_GRAPH = _launched_once(TF32, "tf32_graph", "Compute in TF32, launched by a device graph")
CAPTURED = Step('torch.compile(model, mode="reduce-overhead") or torch.cuda.CUDAGraph of the step, after the type is '
                "changed", (PYTORCH, OWN_CODE))
POSSIBLE = fact_is("graph_capture", "possible", "too_short")
ALREADY_GRAPH = fact_is("device_graph", "replayed", "captured")
ACTIONS = (
    Action("narrow_graph", NARROW_GRAPH.title, of_targets(NARROW_GRAPH.name),
           "kernels compute or move 32 bits, behind which the host's launches hide", "medium",
           (Step("model.to(torch.bfloat16), and inputs of that type", (PYTORCH, OWN_CODE, INFERENCE)),
            Step("torch.autocast(dtype=torch.bfloat16, cache_enabled=False)", (PYTORCH, OWN_CODE, TRAINING)), CAPTURED),
           "launch_tax_pct", applies_if=(PYTORCH, fact_is("product_type", "fp32", "tf32"), POSSIBLE),
           already_done_if=(NARROW, ALREADY_GRAPH), accuracy="8 bits of mantissa (bf16): check the outputs",
           memory="a graph keeps its own buffers, for each shape", mechanism=NARROW_GRAPH.name,
           or_confirm=("compute_limited_pct",), combines=("narrower_types", "device_graph"),
           at_most=_at_most(NARROW_GRAPH)),
    Action("tf32_graph", TF32_GRAPH.title, of_targets(TF32_GRAPH.name),
           "kernels compute products in fp32, behind which the host's launches hide", "low",
           (Step('torch.set_float32_matmul_precision("high")', (PYTORCH, OWN_CODE)), CAPTURED),
           "launch_tax_pct", applies_if=(PYTORCH, NVIDIA, fact_is("product_type", "fp32"), POSSIBLE),
           already_done_if=(fact_is("product_type", "tf32"), NARROW, ALREADY_GRAPH),
           accuracy="10 bits of mantissa in place of 23: check the outputs",
           memory="a graph keeps its own buffers, for each shape", mechanism=TF32_GRAPH.name,
           or_confirm=("compute_limited_pct",), combines=("allow_tf32", "device_graph"), at_most=_at_most(TF32_GRAPH)))
