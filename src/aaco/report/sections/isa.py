"""What code objects and assembler text say of their kernels, and the occupancy that follows: a document, and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.analytics.roofline import occupancy
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.profiler.formats.code_object.assembly import FunctionText
from aaco.profiler.formats.code_object.code_object import UNIFIED, CodeObject, CompiledKernel
from aaco.report import format

SCHEMA_VERSION = 1
NO_TEXT = "machine code is not disassembled: give the assembler text (.amdgcn) for the mix of instructions"
STATIC = "local memory that is sized at launch is not in the file: with it the occupancy may be lower"
MNEMONICS = 12  # of a kernel that are listed
NAME = 60


def document(objects: Sequence[CodeObject], texts: Mapping[str, FunctionText] | None) -> dict[str, Any]:
    """The answer of `aaco isa`. texts: of assembler text, every function's instructions; None of machine code."""
    return {"schema_version": SCHEMA_VERSION, "notes": [STATIC, *([] if texts is not None else [NO_TEXT])],
            "code_objects": [{"target": one.target, "arch": one.arch, "features": list(one.features),
                              "kernels": [_kernel(one.arch, kernel, texts) for kernel in one.kernels]}
                             for one in objects]}


def _kernel(arch: str | None, kernel: CompiledKernel, texts: Mapping[str, FunctionText] | None) -> dict[str, Any]:
    text = (texts or {}).get(kernel.name)
    return {**as_dict(kernel), "occupancy": _occupancy(arch, kernel),
            "instructions": dict(text.kinds.most_common()) if text else None,
            "mnemonics": dict(text.mnemonics.most_common(MNEMONICS)) if text else None,
            "code_bytes": text.code_bytes if text else None,
            "compiler_occupancy": text.occupancy if text else None}


def _occupancy(arch: str | None, kernel: CompiledKernel) -> dict[str, Any]:
    """The note's vector registers are the total where accumulation registers share their file, else the greater count.
    """
    total = {"total": kernel.vgpr} if arch in UNIFIED else {"vgpr": kernel.vgpr, "agpr": kernel.agpr}
    needs = occupancy.Kernel(wave_size=kernel.wave_size, sgpr=kernel.sgpr, lds_bytes=kernel.lds_bytes,
                             workgroup_size=kernel.workgroup_size, **total)
    try:
        found = occupancy.occupancy(arch, needs)
    except Absent as reason:
        return {"waves_per_simd": None, "why_absent": str(reason)}
    return {"waves_per_simd": found.waves_per_simd, "waves": found.waves, "most": found.most, "pct": found.pct,
            "limits": dict(found.limits), "limited_by": list(found.limited_by), "why_absent": None}


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The document as text."""
    for one in found["code_objects"]:
        features = f", {', '.join(map(format.clean, one['features']))}" if one["features"] else ""
        yield f"{format.clean(one['arch'] or 'unknown target')}{features} ({format.clean(one['target'])})"
        for kernel in one["kernels"]:
            yield from _lines(kernel)
    yield from (f"note: {note}" for note in found["notes"])


def _lines(kernel: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {format.kernel(kernel['name'], NAME)}"
    yield f"    registers    {_registers(kernel)}"
    yield f"    memory       {_memory(kernel)}"
    yield f"    arguments    {_count(kernel['kernarg_bytes'], 'byte')} in {len(kernel['arguments'])}"
    yield f"    occupancy    {_occupied(kernel)}"
    if kernel["instructions"]:
        total = sum(kernel["instructions"].values())
        mix = ", ".join(f"{name} {format.percent(count / total)}" for name, count in kernel["instructions"].items())
        for number, line in enumerate(format.wrap(f"{total:,} instructions: {mix}", 80)):
            yield f"    {'code' if not number else '':<12} {line}"


def _registers(kernel: Mapping[str, Any]) -> str:
    spills = [f"{kernel[key]} {kind} spilt" for key, kind in (("vgpr_spills", "vector"), ("sgpr_spills", "scalar"))
              if kernel[key]]
    agpr = f" ({kernel['agpr']} of accumulation)" if kernel["agpr"] else ""
    return ", ".join([f"{_known(kernel['vgpr'])} vector{agpr}", f"{_known(kernel['sgpr'])} scalar", *spills])


def _memory(kernel: Mapping[str, Any]) -> str:
    lds, scratch = (_count(kernel[key], "byte") for key in ("lds_bytes", "scratch_bytes"))
    dynamic = ", dynamic stack" if kernel["dynamic_stack"] else ""
    return f"{lds} local per workgroup, {scratch} scratch per work-item{dynamic}"


def _occupied(kernel: Mapping[str, Any]) -> str:
    found = kernel["occupancy"]
    if found["why_absent"]:
        return format.unavailable(found["why_absent"])
    per_simd = f"{format.plural(found['waves_per_simd'], 'wave')} per SIMD by registers"
    if found["waves"] is None:
        return per_simd
    limited = f", limited by {' and '.join(found['limited_by'])}" if found["limited_by"] else ""
    group = f"workgroups of {kernel['workgroup_size']:,} in waves of {kernel['wave_size']}"
    return f"{per_simd}; {found['waves']} of {found['most']} waves with {group}{limited}"


def _known(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _count(value: int | None, noun: str) -> str:
    return "unknown" if value is None else format.plural(value, noun)
