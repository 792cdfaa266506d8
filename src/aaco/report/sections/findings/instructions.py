"""What happened inside kernels, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.analytics.instructions.inside import InstructionPart, InstructionTraces, KernelInstructions, Loads
from aaco.core.documents import decode
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

KERNELS = 4  # shown one by one
SHOWN = 5  # categories, lines, reasons
NAME = 60  # columns of a kernel's name
NOT_RUN_TIME = "cycles of traced waves rank instructions; a traced kernel is slower, they are no run time"


@finding_view("instructions", "instructions, waits and occupancy of traced or sampled kernels", place=1,
              title="Inside kernels", form=InstructionTraces)
def _rows(traces: InstructionTraces) -> Iterator[Row]:
    found = traces.kernels
    yield from (row for one in found[:KERNELS] for row in of_kernel(one))
    if len(found) > KERNELS:
        yield Row("", f"{format.plural(len(found) - KERNELS, 'more kernel')}: aaco instructions SESSION")
    if any(one.whole.cycles for one in found):
        yield Row("Note", NOT_RUN_TIME)


def of_kernel(one: KernelInstructions, shown: int = SHOWN) -> Iterator[Row]:
    """What is known of one kernel."""
    yield Row("Kernel", format.kernel(one.kernel or "a kernel without a name", NAME))
    whole = (f"{format.plural(one.whole.samples, 'sample')} of the program counter" if one.evidence == "samples" else
             f"{format.plural(one.whole.hits, 'instruction')} by the traced waves")
    yield Row("Executed", whole)
    yield from _cycles(one)
    yield Row("Mix", _mix(one, shown))
    if one.whole.rank:
        yield Row("Cycles by kind", _listed(one.mix, one.whole, shown))
    yield from (Row("Waits", _waits(loads, one.whole)) for loads in one.loads[:shown])
    if one.unmatched_waits:
        yield Row("", f"{one.unmatched_waits:,} waits match no execution and are left out")
    if one.stall_reasons:
        total = one.whole.samples or 1
        yield Row("Not issuing", ", ".join(f"{name} {format.percent(count / total)}" for name, count in
                                           list(one.stall_reasons.items())[:shown]))
    if one.issued_samples is not None and one.whole.samples:
        yield Row("Issuing", f"{format.percent(one.issued_samples / one.whole.samples)} of the samples")
    if one.lines:
        yield Row("Hot lines", _listed(one.lines, one.whole, shown, "; "))
    yield from _waves(one)


def _mix(one: KernelInstructions, shown: int) -> str:
    """Return the kinds of instructions by how often they were executed, or sampled where executions are not counted."""
    counts = {part.name: part.hits if one.whole.hits else part.samples for part in one.mix}
    total = sum(counts.values()) or 1
    kinds = sorted(counts.items(), key=lambda kind: -kind[1])[:shown]
    return ", ".join(f"{format.clean(name)} {format.percent(count / total)}" for name, count in kinds)


def _cycles(one: KernelInstructions) -> Iterator[Row]:
    if one.stall_share is not None and one.idle_share is not None and one.instructions_per_cycle is not None:
        yield Row("Cycles", f"{format.percent(one.stall_share)} stalled, {format.percent(one.idle_share)} idle, "
                            f"{one.instructions_per_cycle:.3f} instructions a cycle of a wave")
    elif one.why_no_stalls:
        yield Row("Cycles", f"stalls unknown: {one.why_no_stalls}")


def _waits(loads: Loads, whole: InstructionPart) -> str:
    if loads.stall_cycles is None or loads.stalled_waits is None:
        return f"{loads.waits:,} for {loads.category}; their cycles are not split by what was waited for"
    share = f" ({format.percent(loads.stall_cycles / whole.cycles)} of all)" if whole.cycles else ""
    text = (f"{loads.stalled_waits:,} of {loads.waits:,} for {loads.category} stalled, "
            f"{loads.stall_cycles:,} cycles{share}")
    if loads.mean_latency_cycles is None or loads.p50_latency_cycles is None:
        return text
    return f"{text}; latency {loads.mean_latency_cycles:,.0f} cycles (median {loads.p50_latency_cycles:,.0f})"


def _listed(parts: Sequence[InstructionPart], whole: InstructionPart, shown: int, between: str = ", ") -> str:
    return between.join(f"{format.clean(part.name)} {share(part, whole)}" for part in parts[:shown])


def share(part: InstructionPart, whole: InstructionPart) -> str:
    """A part of the whole, by what both have: cycles, else samples, else executions."""
    for mine, all_ in ((part.rank, whole.rank), (part.samples, whole.samples), (part.hits, whole.hits)):
        if all_:
            return format.percent(mine / all_)
    return format.percent(0)


def _waves(one: KernelInstructions) -> Iterator[Row]:
    if one.states:
        total = sum(one.states.values()) or 1
        yield Row("Wave states", ", ".join(f"{format.clean(name)} {format.percent(cycles / total)}"
                                           for name, cycles in one.states.items()))
    if found := one.occupancy:
        unpaired = f"; {found.unpaired} events without a partner left out" if found.unpaired else ""
        yield Row("Occupancy", f"{found.mean_waves:.1f} waves on each of {found.compute_units} compute units on "
                               f"average, {found.peak_waves} at most{unpaired}")
    elif one.mean_active_waves is not None:
        yield Row("Occupancy", f"{one.mean_active_waves:.1f} waves on the compute unit at a sample, on average")


def render(document: Mapping[str, Any], by: str) -> str:
    """The text of the whole document, with the hottest lines, instructions or categories of each kernel."""
    lines: list[str] = []
    for one in decode(document, InstructionTraces).kernels:
        lines += ["", *(f"{row.label:<15}{row.text}" for row in of_kernel(one) if row.label != "Hot lines")]
        parts = {"line": one.lines, "instruction": one.instructions, "category": one.mix}[by]
        lines += ["", f"  {'share':>7}{'stalled':>14}{'latency':>14}{'idle':>12}{'executed':>12}{'samples':>9}  {by}"]
        lines += [f"  {share(part, one.whole):>7}{_cell(part.stall_cycles):>14}{_cell(part.latency_cycles):>14}"
                  f"{_cell(part.idle_cycles):>12}{part.hits:>12,}{part.samples:>9,}  {format.clean(part.name)}"
                  for part in parts]
        if not parts:
            lines.append(f"  the capture names no {by}")
    return "\n".join([*lines[1:], "", NOT_RUN_TIME, ""])


def _cell(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
