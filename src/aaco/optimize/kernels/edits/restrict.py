"""Promise the compiler that pointer parameters do not reach the same memory: it may then keep and reorder loads.

The capture proves it of this launch: each pointer lies in an allocation of its own. Other launches of the program are
not proved by it; the replays of all captured shapes compare what they compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import Inapplicable
from aaco.optimize.kernels import guards
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.source import ASM, RESTRICT, RESTRICTS, KernelParameter
from aaco.optimize.kernels.variants import Proposal

PERMITS = frozenset((RESTRICT,))
NUMBERS = frozenset((b"const", b"float", b"double", b"int", b"unsigned", b"long", b"short", b"char", b"signed",
                     b"__half", b"half", b"__nv_bfloat16", b"__hip_bfloat16", b"float2", b"float4", b"int2", b"int4",
                     b"uint32_t", b"int32_t", b"uint64_t", b"int64_t", b"uint8_t", b"int8_t", b"size_t", b"__half2"))


def proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield the one edit of all pointers, or why it cannot be proved."""
    pointers = [parameter for parameter in situation.kernel.parameters if parameter.is_pointer]
    title = "Promise that pointers do not overlap"
    if why := _against(situation, pointers):
        yield Inapplicable("restrict", title, why)
        return
    edits = [(parameter.star, parameter.star, b" __restrict__ ") for parameter in pointers
             if parameter.star is not None and not _is_restricted(parameter)]
    yield Proposal("__restrict__ on all pointers", "restrict", situation.kernel.replaced(*edits))


def _against(situation: KernelSituation, pointers: list[KernelParameter]) -> str:
    """Return why it cannot be proved that the pointers do not overlap; empty if it can."""
    if all(map(_is_restricted, pointers)):
        return "every pointer has it already" if pointers else "it has no pointers"
    if situation.no_arguments:
        return situation.no_arguments
    if strange := next((one for one in pointers if not NUMBERS.issuperset(_pointee(one))), None):
        return (f"{guards.shown(strange.name)} points to {guards.shown(b' '.join(_pointee(strange)))}, in which there "
                "may be further pointers")
    if b"volatile" in situation.kernel.words or any(b"volatile" in one.kind for one in pointers):
        return "volatile says that others write this memory"
    if word := guards.any_of(guards.reached(situation.kernel), ASM):
        return f"{guards.shown(word)} may reach memory that the compiler does not see"
    if lost := next((one for one in pointers if one.name not in situation.targets), None):
        return f"{guards.shown(lost.name)} points into no captured allocation"
    owners: dict[int, bytes] = {}
    for pointer in pointers:
        base = situation.targets[pointer.name].base
        if base in owners:
            return (f"{guards.shown(owners[base])} and {guards.shown(pointer.name)} lie in one allocation, so they may "
                    "overlap")
        owners[base] = pointer.name
    return ""


def _is_restricted(parameter: KernelParameter) -> bool:
    return any(word in parameter.kind for word in RESTRICTS)


def _pointee(parameter: KernelParameter) -> tuple[bytes, ...]:
    return tuple(word for word in parameter.kind if word != b"*" and word not in RESTRICTS)
