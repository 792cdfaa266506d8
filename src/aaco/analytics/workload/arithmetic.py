"""In which types a workload computes, and how its tensors lie: by the kernels' names, else by operators' types."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aaco.analytics.kernels.families.terms import KernelName
from aaco.analytics.workload.facts import WorkloadFact, absent
from aaco.analytics.workload.program import listed_json
from aaco.analytics.workload.signs import NameTally, WorkloadSigns

PRODUCTS = ("gemm", "conv", "attention", "recurrent")
WIDE = ("fp64", "fp32", "tf32")
NARROW = ("fp16", "bf16", "fp8", "fp4", "int8", "int4")
LEAST_KNOWN = 0.5  # of the time: with less of it known the type is not
LEAST_SHOWN_PCT = 0.5  # of the time: what is less is printed as 0 %
CONVERSIONS = 0.01  # of kernel time: conversions of layout that are worth a word
# From the narrowest: a product of narrow weights and wide activations is counted under its narrow operand.
_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("int4", ("int4", "q4_", "iq4", "q5_", "q3_", "q2_")), ("fp4", ("float4",)),
    ("int8", ("int8", "uint8", "q8_", "q6_", "signed char", "unsigned char")), ("fp8", ("float8",)),
    ("bf16", ("bfloat16", "bf16")), ("fp16", ("float16", "half")), ("tf32", ("tfloat32",)),
    ("fp32", ("float32", "complex64")), ("fp64", ("float64", "double", "complex128")))


def type_of(names: Iterable[str]) -> str | None:
    """Return the type of arithmetic of operands with these element types, the narrowest of them; None if unknown."""
    listed = ["float32" if name == "float" else name.lower().removeprefix("c10::") for name in names]
    for kind, beginnings in _TYPES:
        if any(name.startswith(beginnings) for name in listed):
            return kind
    return None


def product_type(signs: WorkloadSigns) -> WorkloadFact:
    """Return the type that most time of matrix products, convolutions and attention is computed in."""
    return _type_fact(signs, "product_type", "product time", lambda family: family in PRODUCTS)


def product_kind(signs: WorkloadSigns) -> WorkloadFact:
    """Return which products take most time: gemm, conv, attention or recurrent."""
    by_family = {family: sum(tally.ns for kernel, tally in signs.decoded if kernel.family == family)
                 for family in PRODUCTS}
    total = sum(by_family.values())
    if not total:
        return absent("product_kind", "no kernel is a product, a convolution or attention")
    kind = max(PRODUCTS, key=lambda family: by_family[family])
    return WorkloadFact("product_kind", kind, (), by_family, "ns", by_family[kind] / total, "names of kernels",
                        f"{100 * by_family[kind] / total:.0f} % of the product time")


def element_type(signs: WorkloadSigns) -> WorkloadFact:
    """Return the type of most of the time in kernels that are no products: what passes over memory."""
    return _type_fact(signs, "element_type", "time of other kernels", lambda family: family not in PRODUCTS)


def _type_fact(signs: WorkloadSigns, name: str, of: str, is_meant: Callable[[str | None], bool]) -> WorkloadFact:
    """Return the type of the kernels of some families by their names; by their operators where those tell more."""
    tallies = [(kernel, tally) for kernel, tally in signs.decoded if is_meant(kernel.family)]
    if not tallies:
        return absent(name, f"no kernel was recorded that has {of}")
    by_type, by_operators = _time_by_type(tallies), _of_operators(signs, is_meant)
    if _known(by_type) < LEAST_KNOWN <= _known(by_operators):
        return _majority(name, by_operators, "types of operators", of)
    return _majority(name, by_type, "names of kernels", of)


def _known(by_type: dict[str, int]) -> float:
    total = sum(by_type.values())
    return 1 - by_type.get("unknown", 0) / total if total else 0.0


def _time_by_type(tallies: Iterable[tuple[KernelName, NameTally]]) -> dict[str, int]:
    by_type: dict[str, int] = {}
    for kernel, tally in tallies:
        read = type_of([tally.element_type] if tally.element_type else [])
        kind = _type_of_name(kernel, read) or read or "unknown"
        by_type[kind] = by_type.get(kind, 0) + tally.ns
    return by_type


def _type_of_name(kernel: KernelName, read: str | None) -> str | None:
    """Return the type that a kernel's name says. cuDNN's attention says f16 of bf16, too: what it reads tells which."""
    kind = type_of(kernel.dtypes)
    return "bf16" if (kind, read, kernel.library, kernel.family) == ("fp16", "bf16", "cudnn", "attention") else kind


def _of_operators(signs: WorkloadSigns, is_meant: Callable[[str | None], bool]) -> dict[str, int]:
    """Return the device time of operators by the narrowest type of their inputs."""
    by_type: dict[str, int] = {}
    if signs.operators is None:
        return by_type
    columns = (signs.operators[name].to_pylist() for name in ("family", "dtypes", "device_ns"))
    for family, dtypes, ns in zip(*columns, strict=True):
        if ns and is_meant(family):
            kind = type_of(map(str, listed_json(dtypes))) or "unknown"
            by_type[kind] = by_type.get(kind, 0) + ns
    return by_type


def _majority(name: str, by_type: dict[str, int], source: str, of: str) -> WorkloadFact:
    """Return the type with most time on the side, wide or narrow, that has most; absent where most is not known."""
    total = sum(by_type.values())
    known = total - by_type.get("unknown", 0)
    if not total or known < LEAST_KNOWN * total:
        return absent(name, f"{100 * (1 - known / total) if total else 100:.0f} % of the {of} is in kernels whose "
                            "names tell no type")
    sides = {side: sum(by_type.get(kind, 0) for kind in side) for side in (WIDE, NARROW)}
    side = max(sides, key=lambda kinds: sides[kinds])
    value = max(side, key=lambda kind: by_type.get(kind, 0))
    listed = ", ".join(f"{kind} {100 * ns / total:.0f} %" for kind, ns in
                       sorted(by_type.items(), key=lambda part: -part[1]) if 100 * ns > LEAST_SHOWN_PCT * total)
    return WorkloadFact(name, value, (), by_type, "ns", by_type[value] / total, source, f"{of}: {listed}")


def eight_bit_units(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether the matrix units compute in eight-bit floating point: yes or no."""
    return _units(signs, "eight_bit_units", "matrix_f8")


def tf32_units(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether the matrix units compute in TF32: yes or no. AMD's gfx942 has it, too (XF32 of its instructions).
    """
    return _units(signs, "tf32_units", "matrix_tf32")


def _units(signs: WorkloadSigns, name: str, rate: str) -> WorkloadFact:
    if signs.rates is None:
        return absent(name, "the device's ceilings are not known here")
    return WorkloadFact(name, "yes" if rate in signs.rates else "no", source="data sheet",
                        evidence=f"data sheet of {', '.join(dict.fromkeys(signs.architectures)) or 'the device'}")


def layout(signs: WorkloadSigns) -> WorkloadFact:
    """Return how tensors of convolutions lie: nhwc, nchw (also where they are converted for a kernel), or none."""
    convolutions = [(kernel, tally) for kernel, tally in signs.decoded if kernel.family == "conv"]
    if not signs.kernels:
        return absent("layout", "no kernels were recorded")
    if not convolutions:
        return WorkloadFact("layout", "none", source="names of kernels", evidence="no kernel is a convolution")
    parts = {"nhwc": 0, "nchw": 0, "unknown": 0}
    for kernel, tally in convolutions:
        parts[_LAYOUTS.get((kernel.layout or "").lower(), "unknown")] += tally.ns
    parts["conversions"] = sum(tally.ns for tally in signs.kernels if _converts(tally.name))
    converted = parts["conversions"] / signs.kernel_ns if signs.kernel_ns else 0.0
    value = "nchw" if converted >= CONVERSIONS or parts["nchw"] > parts["nhwc"] else "nhwc" if parts["nhwc"] else None
    evidence = f"conversions between NCHW and NHWC take {100 * converted:.1f} % of kernel time"
    if value is None:
        return absent("layout", "the names of convolutions tell no layout")
    return WorkloadFact("layout", value, (), parts, "ns", converted, "names of kernels", evidence)


_LAYOUTS = {"nhwc": "nhwc", "ndhwc": "nhwc", "nchw": "nchw", "ncdhw": "nchw"}


def _converts(name: str) -> bool:
    lower = name[:400].lower()
    return "nchwtonhwc" in lower or "nhwctonchw" in lower or "batched_transpose" in lower
