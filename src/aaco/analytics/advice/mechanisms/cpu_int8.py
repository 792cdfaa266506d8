"""Products in 8-bit integers, by the machine's measured int8 and fp32 roofs."""

from __future__ import annotations

from aaco.analytics.advice.action import Action, Values, of_metric
from aaco.core.advice import Step


def _narrowed(values: Values) -> float:
    """Return the part of the products that 8-bit integers save, by the machine's measured roofs."""
    return values["int8_saving_pct"] / values["node_compute_pct"] if values["node_compute_pct"] else 0.0


ACTIONS = (Action(
    "int8_nodes", "Compute products in 8-bit integers", of_metric("node_compute_pct"), "nodes compute products",
    "medium", (Step("onnxruntime.quantization.quantize_static or quantize_dynamic"),), "node_compute_pct",
    feasible=_narrowed, why_feasible="the measured int8 and fp32 roofs of this machine; only of what computes in fp32",
    accuracy="eight bits with scales: check the outputs"),)
