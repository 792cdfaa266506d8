"""A device graph: the host launches once, the kernels stay as they are.

A host that reads on the way launches a graph after each read.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import (
    ACTS_ON,
    AMD,
    LLAMA_GRAPHS,
    NO_FRAMEWORK,
    NVIDIA,
    ORT,
    OWN_CODE,
    PYTORCH,
    SGLANG,
    VLLM,
    Action,
    Values,
    of_launches,
)
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.work import OPTIMIZER, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

# An Adam that updates in a loop must be capturable in a graph. Then it computes its step and both bias corrections on
# the device: 12 more kernels of one element for each parameter (PyTorch 2.11, torch/optim/adam.py), of the shortest
# that an H100's traces show with the gap between two nodes of a graph, 2 us.
CAPTURABLE_NS = 12 * 2000.0
ADAM_UPDATE, CORRECTION = "aten::addcdiv_", "aten::reciprocal"  # one for each parameter; of bias corrections there


def replayed(work: StepWork, least: Reals) -> Response:
    """Return the step launched once; of an Adam that updates in a loop with what makes it capturable."""
    updates, corrections = (float(work.operator_calls[:-1][[operator.name == name and operator.phase == OPTIMIZER
                                                            for operator in work.operators]].sum())
                            for name in (ADAM_UPDATE, CORRECTION))
    more_ns = CAPTURABLE_NS * updates / work.steps if not corrections else 0.0
    return Response(own_time(work), np.zeros(len(least)), replayed=True, added_ns=more_ns)


GRAPH = Mechanism("graph", "Launch once for many kernels: a device graph", "D", own_time,
                  respond=replayed)


def _launching_between_waits(values: Values) -> float:
    """Return the time that launches take.

    A graph hastens no copy and holds no wait: raise KeyError where more time goes to them, unless a step without a
    profiler shows what they leave to gain.
    """
    if ACTS_ON + "graph" in values:
        return min(values[ACTS_ON + "graph"], of_launches(values))
    if values.get("sync_limited_pct", 0.0) > values["launch_tax_pct"]:
        raise KeyError("sync_limited_pct")
    if values.get("transfer_limited_pct", 0.0) > values.get("host_limited_pct", 100.0):
        raise KeyError("transfer_limited_pct")
    return min(values["launch_tax_pct"], of_launches(values))


ACTIONS = (Action(
    "device_graph", "Launch once for many kernels", _launching_between_waits, "the device waits for the host", "low", (
        Step('torch.compile(model, mode="reduce-overhead"), torch.cuda.CUDAGraph', (PYTORCH, OWN_CODE)),
        Step("a graph for what lies between two reads of the host; the fewer reads, the more it gains",
             (OWN_CODE, fact_is("graph_capture", "too_short"))),
        Step("for Adam capturable=True, with fused=True", (PYTORCH, OWN_CODE, fact_is("optimizer", "loop", "foreach"))),
        Step("ONNX Runtime: enable_cuda_graph=1", (ORT, NVIDIA)),
        Step("vLLM: without --enforce-eager", (VLLM,)),
        Step("SGLang: without --disable-cuda-graph", (SGLANG,)),
        *LLAMA_GRAPHS,
        Step("hipStreamBeginCapture, then hipGraphLaunch", (AMD, NO_FRAMEWORK)),
        Step("cudaStreamBeginCapture, then cudaGraphLaunch", (NVIDIA, NO_FRAMEWORK))),
    "launch_tax_pct", applies_if=(fact_is("graph_capture", "possible", "too_short"),),
    already_done_if=(fact_is("device_graph", "replayed", "captured"),),
    memory="a graph keeps its own buffers, for each shape", mechanism="graph",
    at_most=of_launches, of_limit="the device waits for launches"),)
