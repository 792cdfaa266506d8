"""Nodes joined: tensors between them are not written and read again, and their overhead goes."""

from __future__ import annotations

from aaco.analytics.advice.action import Action, of_metric
from aaco.core.advice import Step

ACTIONS = (Action(
    "fuse_nodes", "Join nodes that could be one", of_metric("node_fusible_pct"), "nodes run that could be one",
    "medium",
    (Step("onnxruntime.transformers.optimizer, fused operators on export; the report lists which nodes"),),
    "node_memory_pct",
    why_feasible="tensors between them are not written and read again, and their overhead goes: a bound"),)
