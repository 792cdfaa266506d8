"""`aaco calibrate` on a real GPU: how far three rounds differ, and whether PyTorch's kernels stay below the roofs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from aaco.calibration.card import MachineCard
from aaco.steps import calibrate
from benchmarks.claims import Claim
from benchmarks.gpu import _device

ROUNDS = 3
SPREADS = {"dram_bytes_per_s": 0.002, "matrix_": 0.02, "launch_ns": 0.1}  # by the beginning of a ceiling's name
BEYOND = 1.005  # of a roof: what two measurements by events may differ
REPEATS, INNER = 21, 10
ELEMENTS, EDGE = 1 << 30, 8192
Kernel = tuple[str, str, float, Callable[[], object]]  # ceiling, kernel, what a call does, and the call


def claims(captures: Path) -> list[Claim]:
    """Measures for about two minutes. Raises Missing without a GPU."""
    found, _ = calibrate.calibrate(_device.settings(), "gpu", ROUNDS)
    return [*_spreads(found), *_achieved(found), _guarded(found)]


def _spreads(found: MachineCard) -> Iterator[Claim]:
    for item in found.ceilings:
        bar = next((bar for name, bar in SPREADS.items() if item.name.startswith(name)), None)
        if item.spread is not None:
            yield Claim(f"{item.name}: (max - min) / median of {ROUNDS} rounds", f"<= {100 * bar:g} %" if bar else "",
                        f"{100 * item.spread:.2f} % of {item.value:.4g} {item.unit}",
                        None if bar is None else item.spread <= bar)
    for name, why in found.absent.items():
        yield Claim(f"{name} is measured", "measured", f"absent: {why}", False)


def _achieved(found: MachineCard) -> Iterator[Claim]:
    """Kernels of another's make under the roofs. A type that this PyTorch cannot multiply is said to be so."""
    try:
        import torch
    except ImportError as reason:
        yield Claim("PyTorch's kernels stay below the roofs", f"<= {100 * BEYOND:g} %", f"not tried: {reason}", None)
        return
    value = {item.name: item.value for item in found.ceilings}
    for name, kernel, work, run in itertools.chain(_memory(torch), _products(torch)):
        if name not in value:
            continue
        claim = f"{kernel} stays below {name}"
        try:
            reached = work / _seconds(torch, run)
        except (RuntimeError, AttributeError, NotImplementedError) as reason:
            yield Claim(claim, f"<= {100 * BEYOND:g} %", f"not tried: {str(reason).splitlines()[0][:60]}", None)
            continue
        yield Claim(claim, f"<= {100 * BEYOND:g} %", f"{100 * reached / value[name]:.1f} % ({reached:.4g})",
                    reached <= BEYOND * value[name])


def _memory(torch: Any) -> Iterator[Kernel]:
    a, b, c = (torch.ones(ELEMENTS, device="cuda") for _ in range(3))
    size = 4.0 * ELEMENTS
    yield "dram_bytes_per_s", "copy_ of 4 GiB", 2 * size, lambda: b.copy_(a)
    yield "dram_bytes_per_s", "add of 4 GiB", 3 * size, lambda: torch.add(a, b, out=c)
    yield "dram_bytes_per_s", "fill_ of 4 GiB", size, lambda: c.fill_(2.0)
    yield "dram_bytes_per_s", "sum of 4 GiB", size, a.sum


def _products(torch: Any) -> Iterator[Kernel]:
    for name, dtype, tf32 in (("vector_f32_flops", torch.float32, False), ("matrix_tf32_flops", torch.float32, True),
                              ("matrix_f64_flops", torch.float64, False), ("matrix_f16_flops", torch.float16, False),
                              ("matrix_bf16_flops", torch.bfloat16, False)):
        for edge in (EDGE // 2, EDGE):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            x, y = (torch.randn(edge, edge, device="cuda").to(dtype) for _ in range(2))
            yield name, f"matmul {edge} {dtype}", 2.0 * edge**3, lambda x=x, y=y: x @ y
    edge, one = EDGE // 2, torch.ones((), device="cuda")
    x8, y8 = (torch.randint(-127, 128, (edge, edge), device="cuda", dtype=torch.int8) for _ in range(2))
    yield "matrix_i8_flops", f"_int_mm {edge}", 2.0 * edge**3, lambda: torch._int_mm(x8, y8.t())
    if hasattr(torch, "float8_e4m3fn"):
        xf, yf = (torch.rand(edge, edge, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        yield ("matrix_f8_flops", f"_scaled_mm {edge}", 2.0 * edge**3,
               lambda: torch._scaled_mm(xf, yf.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True))


def _seconds(torch: Any, run: Callable[[], object]) -> float:
    """The median over repeats of a call's time, by the device's events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(REPEATS):
        start.record()
        for _ in range(INNER):
            run()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1e3 / INNER)
    return median(found[1:])


def _guarded(found: MachineCard) -> Claim:
    seen = [item for item in found.ceilings if item.conditions.device_samples]
    notes = sorted(set(calibrate.guard(found)))
    return Claim("every ceiling is kept with clocks, power and temperature", "all",
                 f"{len(seen)} of {len(found.ceilings)}; {len(notes)} notes: {'; '.join(notes)[:200]}",
                 len(seen) == len(found.ceilings))
