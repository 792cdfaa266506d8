"""What the program does: its phase, data loader, optimizer, compiler; by ranges and operators of frameworks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc

from aaco.analytics.attribution.phases import BACKWARD_PREFIX, OPTIMIZER_PREFIX
from aaco.analytics.costs.torch.norms import written_norms
from aaco.analytics.kernels.families import POINTWISE
from aaco.analytics.serving.annotations import step_family
from aaco.analytics.workload.facts import WorkloadFact, absent
from aaco.analytics.workload.platform import ENGINES, framework, is_inductor
from aaco.analytics.workload.signs import WorkloadSigns
from aaco.core.words import plural

LOADER = "enumerate(DataLoader)#"  # PyTorch's range around each batch: the class of the iterator follows
COMPILED = re.compile(r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|TorchDynamo Cache")
FUSED, FOREACH = re.compile(r"aten::_fused_(?:adamw?|sgd|adagrad)_"), re.compile(r"aten::_foreach_")
FUSED_KERNEL = re.compile(r"FusedAdam|FusedSgd|FusedSGD|FusedAdagrad|multi_tensor_adam|fused_adam")
OF_LISTS = "multi_tensor_apply"  # of kernels for lists of tensors, such as those of an optimizer
PYTHON_FRAME = re.compile(r"\.py\(\d+\): ")  # of PyTorch's profiler: the file, the line, the function
NO_RANGES = "no ranges or operators of a framework were recorded"


def _count(signs: WorkloadSigns, pattern: re.Pattern[str] | str) -> int:
    """Return how many calls have a name that begins so."""
    if isinstance(pattern, str):
        return sum(count for name, count in signs.calls.items() if name.startswith(pattern))
    return sum(count for name, count in signs.calls.items() if pattern.match(name))


def _has_operators(signs: WorkloadSigns) -> bool:
    return any(name.startswith("aten::") for name in signs.calls)


def phase(signs: WorkloadSigns) -> WorkloadFact:
    """Return the phase: training, serving (steps of an engine), or inference (operators, none of a way back)."""
    backward = _count(signs, BACKWARD_PREFIX)
    steps = _count(signs, OPTIMIZER_PREFIX + "step")
    serving = sum(count for name, count in signs.calls.items() if step_family(name))
    engine = next((name for name in ENGINES if name in framework(signs).values), None)
    back_kernels = sum(tally.count for kernel, tally in signs.decoded if kernel.direction == "backward")
    parts = {"backward operators": backward, "optimizer steps": steps, "kernels of a backward pass": back_kernels,
             "ranges of engine steps": serving}
    shown = {name: count for name, count in parts.items() if count}
    if backward or steps or (back_kernels and not serving):
        told = next(iter(shown.items()))
        return WorkloadFact("phase", "training", (), shown, source="names", evidence=f"{told[1]:,} {told[0]}")
    if serving:
        return WorkloadFact("phase", "serving", (), shown, source="ranges",
                            evidence=f"{plural(serving, 'range')} around steps of an engine")
    if engine:
        return WorkloadFact("phase", "serving", source="framework", evidence=f"{engine} is an engine that serves")
    if _has_operators(signs) or signs.providers:
        return WorkloadFact("phase", "inference", source="names", evidence="operators, and none of a backward pass")
    return absent("phase", NO_RANGES)


def data_loader(signs: WorkloadSigns) -> WorkloadFact:
    """Return how a PyTorch DataLoader loads: single_process, workers, or none where none shows."""
    ranges = {name: count for name, count in signs.calls.items() if name.startswith(LOADER)}
    if not ranges:
        if not _has_operators(signs):
            return absent("data_loader", NO_RANGES)
        return WorkloadFact("data_loader", "none", source="ranges", evidence=f"no range {LOADER}.. among the operators")
    workers = any("MultiProcessing" in name for name in ranges)
    return WorkloadFact("data_loader", "workers" if workers else "single_process", (), ranges, source="ranges",
                        evidence=f"{plural(sum(ranges.values()), 'range')} around the next batch")


def optimizer(signs: WorkloadSigns) -> WorkloadFact:
    """Return how the optimizer updates: fused, foreach (a kernel for many tensors), loop, or none where none ran."""
    fused, foreach, steps = (_count(signs, pattern) for pattern in (FUSED, FOREACH, OPTIMIZER_PREFIX + "step"))
    fused_kernels = sum(tally.count for tally in signs.kernels if FUSED_KERNEL.search(tally.name))
    parts = {"fused": fused + fused_kernels, "foreach": foreach, "steps": steps}
    if fused or fused_kernels:
        value = "fused"
    elif steps:
        value = "foreach" if foreach >= steps else "loop"
    elif _has_operators(signs):
        return WorkloadFact("optimizer", "none", source="ranges", evidence="no step of an optimizer was recorded")
    else:
        return absent("optimizer", NO_RANGES)
    return WorkloadFact("optimizer", value, (), parts, source="operators",
                        evidence=f"{plural(steps, 'step')}, {fused:,} fused and {foreach:,} foreach operators")


def execution(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether a compiler made the program's kernels: compiled (Inductor, XLA, MIGraphX), partly_compiled where
    more time of passes over memory is in PyTorch's own kernels than in the compiler's, or eager.
    """
    regions = _count(signs, COMPILED)
    made = [tally for kernel, tally in signs.decoded
            if kernel.library in ("xla", "migraphx") or is_inductor(tally.name)]
    count, ns = sum(tally.count for tally in made), sum(tally.ns for tally in made)
    if regions or count:
        share = ns / signs.kernel_ns if signs.kernel_ns else None
        left_ns = _left_to_compile_ns(signs)
        evidence = f"{plural(count, 'kernel')} of a compiler, {plural(regions, 'compiled region')}"
        value, left = ("compiled", "") if ns >= left_ns else (
            "partly_compiled", f"; PyTorch's own passes over memory take {100 * left_ns / signs.kernel_ns:.0f} % of "
                               f"kernel time, the compiler's kernels {100 * ns / signs.kernel_ns:.0f} %")
        return WorkloadFact("execution", value, (), {"regions": regions, "kernels": count}, share_ratio=share,
                            source="kernels" if count else "ranges", evidence=evidence + left)
    if _has_operators(signs) or any(kernel.library == "aten" for kernel, _ in signs.decoded):
        return WorkloadFact("execution", "eager", source="names", evidence="no kernel and no range of a compiler")
    return absent("execution", NO_RANGES)


def _left_to_compile_ns(signs: WorkloadSigns) -> int:
    """Return the time of PyTorch's own passes over memory; 0 where they may be those of an optimizer that loops."""
    if optimizer(signs).value == "loop":
        return 0
    return sum(tally.ns for kernel, tally in signs.decoded
               if kernel.library == "aten" and kernel.family in POINTWISE and OF_LISTS not in tally.name)


def attention(signs: WorkloadSigns) -> WorkloadFact:
    """Return how attention is computed: fused in one kernel, written_out as products and a softmax, or none."""
    fused = [tally for kernel, tally in signs.decoded if kernel.family == "attention"]
    softmax = [tally for kernel, tally in signs.decoded if kernel.family == "softmax"]
    parts = {"attention kernels": sum(tally.count for tally in fused),
             "softmax kernels": sum(tally.count for tally in softmax)}
    if not signs.kernels:
        return absent("attention", "no kernels were recorded")
    share = sum(tally.ns for tally in fused) / signs.kernel_ns if signs.kernel_ns else None
    if fused:
        return WorkloadFact("attention", "fused", (), parts, share_ratio=share, source="kernels",
                            evidence=f"{plural(parts['attention kernels'], 'kernel')} of fused attention")
    batched = sum(signs.calls.get(name, 0) for name in ("aten::bmm", "aten::baddbmm"))
    if softmax and batched and _over_keys(signs, parts["softmax kernels"], batched):
        return WorkloadFact("attention", "written_out", (), parts | {"batched products": batched},
                            source="operators", evidence=f"{plural(batched, 'batched product')} next to a softmax")
    return WorkloadFact("attention", "none", (), parts, source="kernels", evidence="no kernel of attention")


def _over_keys(signs: WorkloadSigns, softmax_kernels: int, batched: int) -> bool:
    """Return whether a softmax normalises scores of attention: over batch, queries and keys, three dimensions and more;
    without shapes, whether there are two batched products for each softmax."""
    ranks = [rank for operator, rank in first_ranks(signs) if "softmax" in operator]
    return max(ranks) >= 3 if ranks else batched >= 2 * softmax_kernels


def norms(signs: WorkloadSigns) -> WorkloadFact:
    """Return how norms are computed: fused in one kernel each, written_out, or none."""
    count = sum(tally.count for kernel, tally in signs.decoded if kernel.family == "norm")
    written = written_norms(signs.calls)
    if count > written:
        return WorkloadFact("norms", "fused", (), {"norm kernels": count}, source="kernels",
                            evidence=f"{plural(count, 'kernel')} of norms")
    if written:
        return WorkloadFact("norms", "written_out", (), {"operators": written}, source="operators",
                            evidence=f"{plural(written, 'operator')} that norms are written of")
    if not signs.kernels:
        return absent("norms", "no kernels were recorded")
    return WorkloadFact("norms", "none", source="kernels", evidence="no kernel of a norm")


def first_ranks(signs: WorkloadSigns) -> Iterator[tuple[str, int]]:
    """Yield the name of each operator whose shapes were recorded, with how many dimensions its first input has."""
    if signs.operators is None:
        return
    rows = signs.operators.filter(pc.is_valid(signs.operators["shapes"]))
    for name, shapes in zip(rows["operator"].to_pylist(), rows["shapes"].to_pylist(), strict=True):
        listed = listed_json(shapes)
        if name and listed and isinstance(listed[0], list):
            yield name, len(listed[0])


def shapes(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether the operators' shapes were recorded: recorded, or none."""
    if signs.operators is None or not _has_operators(signs):
        return absent("shapes", "no operators of a framework were recorded")
    count = sum(1 for _ in first_ranks(signs))
    return WorkloadFact("shapes", "recorded" if count else "none", (), {"operators": count}, source="operators",
                        evidence=f"{plural(count, 'operator')} with shapes")


def python_frames(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether the functions of Python that ran were recorded: recorded, or none."""
    if not _has_operators(signs):
        return absent("python_frames", "no operators of a framework were recorded")
    count = sum(many for name, many in signs.calls.items() if PYTHON_FRAME.search(name))
    return WorkloadFact("python_frames", "recorded" if count else "none", (), {"calls": count}, source="calls",
                        evidence=f"{plural(count, 'call')} of a function of Python")


def listed_json(text: str | None) -> list[Any]:
    """Return a list that a column holds as JSON; empty where it holds none."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []
