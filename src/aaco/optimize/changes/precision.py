"""Arithmetic in fewer bits: float16 and bfloat16 on devices, 8-bit integers on CPUs. Each has an error to accept."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.core.providers import CPU, MIGRAPHX
from aaco.optimize.situation import Situation

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
# These convert by a switch of their own (runner/registry.py), the others compute in what the model has.
PREFIXES = {MIGRAPHX: "migraphx_", TENSORRT: "trt_"}
MATRICES = ("MatMul", "Gemm")


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield a change for each type, or why it is not there to try."""
    yield _sixteen_bits(situation, "float16", "fp16_enable")
    yield _sixteen_bits(situation, "bfloat16", "bf16_enable")
    yield unless(Candidate("dynamic_int8", "Compute products in 8-bit integers, with scales measured in each inference",
                        advice=("int8_nodes",), rewrite="dynamic_int8", precisions=("int8",)),
                 (situation.provider != CPU, f"{situation.provider} has no such products"),
                 (not any(situation.operators.get(name) for name in MATRICES), "no matrix product takes part"),
                 *wide(situation))


def wide(situation: Situation) -> Iterator[tuple[bool, str]]:
    """Yield the reasons against fewer bits: products that are not in float32."""
    types = situation.product_types
    yield not types, "which types its products compute in is not known"
    yield "float32" not in types, f"its products compute in {' and '.join(sorted(types))} already"


def _sixteen_bits(situation: Situation, kind: str, switch: str) -> Candidate | Inapplicable:
    """Return the change to a type: by the provider's switch, or by a model in this type where there is none."""
    provider, prefix = situation.provider, PREFIXES.get(situation.provider, "")
    by_model = provider == CUDA
    change = Candidate(kind, f"Compute in {kind}", {f"option.{switch}": "true"} if prefix else {}, ("narrower_types",),
                    "" if prefix else kind, (kind,))
    return unless(change,
                  (not prefix and not by_model, f"{provider} has few operators in {kind}"),
                  (bool(prefix) and situation.has(f"option.{prefix}{switch}", "1"), ALREADY),
                  (by_model and kind != "float16", "ONNX Runtime's tools convert models to float16 alone"),
                  *wide(situation))
