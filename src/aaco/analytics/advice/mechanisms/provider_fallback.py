"""Nodes of ONNX Runtime that its provider has no kernel for, and that run on the CPU in between: run by the device.

What they compute then takes time on the device, so their share of the time is a bound.
"""

from __future__ import annotations

from aaco.analytics.advice.action import AMD, NVIDIA, ORT, Action, of_metric
from aaco.core.advice import Step

ACTIONS = (Action(
    "nodes_on_device", "Run on the device what falls back to the CPU", of_metric("cpu_node_pct"),
    "the device waits for nodes that run on the CPU", "medium", (
        Step("operators that the provider has a kernel for, in place of these: it may have one for other types or a "
             "newer opset; SessionOptions.log_severity_level = 0 lists the nodes of each provider", (ORT,)),
        Step("onnxruntime's docs/OperatorKernels.md says what the CUDA provider has", (ORT, NVIDIA)),
        Step("migraphx-driver read MODEL.onnx names an operator that MIGraphX cannot parse", (ORT, AMD))),
    "cpu_node_pct", applies_if=(ORT,),
    why_feasible="the device computes them, which takes time there, too: a bound"),)
