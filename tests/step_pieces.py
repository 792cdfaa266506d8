"""Steps of a few kernels and copies, to compute floors of by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aaco.analytics.advice.floor import floor
from aaco.analytics.advice.limits import DeviceLimits
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.work import COPY, StepOperator, StepWork, WorkName
from aaco.analytics.costs.torch.arguments import OperatorArguments

# Round figures. FLOPs in units of 1e9 and bytes of 1e7 make us.
LIMITS = DeviceLimits({"matrix_bf16": 1e15, "matrix_f16": 1e15, "matrix_tf32": 5e14, "vector_f32": 5e13}, 2e12,
                      50_000_000, 1e13, 0.5, 50e9)
BF16 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_execute_kernel"
FP32 = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_ffma_aligna4_execute_kernel"
CONV = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
US = 1000
Piece = dict[str, Any]


def kernel(us: float, family: str = "elementwise", operator: StepOperator | None = None, name: str = "", lane: int = 0,
           types: tuple[str, ...] = (), blocks: int = 0, blocks_x: int = 0) -> Piece:
    """A kernel that takes so long."""
    return {"us": us, "name": WorkName(name or family, family, types), "operator": operator, "lane": lane,
            "blocks": blocks, "blocks_x": blocks_x or blocks, "copied": 0}


def product(us: float, flops: float | None, name: str = BF16, operator: str = "aten::mm", **more: Any) -> Piece:
    """A matrix product with an operator of its own."""
    types = ("f32",) if name == FP32 else ("bf16",)
    called = StepOperator(operator, types=types, flops=flops, **more)
    return kernel(us, "conv" if name == CONV else "gemm", called, name, types=types)


def gradient_sum(us: float) -> Piece:
    """What adds a weight's gradient to the one that it has."""
    return kernel(us, operator=StepOperator("aten::add_", "evaluate_function: torch::autograd::AccumulateGrad",
                                            "backward"))


def copy(us: float, kind: str, copied: int = 0, pinned: bool | None = None) -> Piece:
    """A copy or fill that takes so long."""
    return kernel(us) | {"name": WorkName(f"{COPY} {kind} {pinned}", COPY, (), kind, pinned), "copied": copied}


def step(*pieces: Piece, steps: int = 1, limits: DeviceLimits = LIMITS, waited_us: int = 0, **more: Any) -> StepWork:
    """The pieces one after the other, as the work of so many steps."""
    names = list(dict.fromkeys(piece["name"] for piece in pieces))
    operators = [piece["operator"] for piece in pieces if piece["operator"] is not None]
    numbers = {id(operator): number for number, operator in enumerate(operators)}
    columns = {key: np.array([piece[key] for piece in pieces], np.int64)
               for key in ("lane", "blocks", "blocks_x", "copied")}
    return StepWork(ns=np.array([round(US * piece["us"]) for piece in pieces], np.int64),
                    label=np.array([names.index(piece["name"]) for piece in pieces], np.int64),
                    operator=np.array([numbers.get(id(piece["operator"]), -1) for piece in pieces], np.int64),
                    names=names, operators=operators, steps=steps, limits=limits, waited_ns=US * waited_us,
                    **columns, **more)


def gathered(rows: int, columns: int, phase: str = "forward", gather: str = "aten::index") -> StepWork:
    """So many rows of a table of 1000 x 64, 9 us; a product of them, 50 us; a pass over the result, 20 us; one over two
    such results, 7 us; another kernel, 30 us.
    """
    def operator(name: str, *shapes: list[int]) -> StepOperator:
        return StepOperator(name, phase=phase, types=("f32",), arguments=OperatorArguments(
            list(shapes), ["float"] * len(shapes), [""] * len(shapes)))
    made = [rows, columns]
    return step(kernel(9, "embedding", operator(gather, [1000, 64], [rows]), blocks=4000,
                       name="vectorized_gather_kernel<16, long>"),
                copy(1, "memset"), kernel(50, "gemm", operator("aten::mm", [rows, 64], [64, columns]), FP32),
                kernel(20, operator=operator("aten::relu", made)),
                kernel(7, operator=operator("aten::mul", made, made)), kernel(30, "embedding"))


def floor_us(work: StepWork, *names: str) -> Any:
    """The floor of these mechanisms in us. Fails where it is absent."""
    found = floor(work, [MECHANISMS[name] for name in names])
    assert found.floor_ns is not None, found.why_absent
    return pytest.approx(found.floor_ns / 1000)
