"""Attention, norms and activations of a transformer fused in the model file, further than at load time."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import Candidate, Inapplicable, unless
from aaco.core.providers import CPU
from aaco.optimize.situation import Situation

FUSES = (CPU, "CUDAExecutionProvider")  # the fused operators are ONNX Runtime's own, which others lack
FUSED = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "SkipLayerNormalization", "EmbedLayerNormalization")
NORMS = (("LayerNormalization",), ("ReduceMean", "Pow", "Sqrt"))  # as one operator, or written out


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield the change, or why it is not there to try."""
    has = situation.operators.get
    attends = bool(has("MatMul") and has("Softmax"))
    yield unless(Candidate("fused_transformer", "Fuse attention, norms and activations with onnxruntime.transformers",
                        advice=("fuse_nodes",), rewrite="transformers"),
                 (situation.provider not in FUSES, f"{situation.provider} has no operators that are fused so"),
                 (any(map(has, FUSED)), "the model has fused operators already"),
                 (not attends or not any(all(map(has, norm)) for norm in NORMS),
                  "the model has not both attention and norms"))
