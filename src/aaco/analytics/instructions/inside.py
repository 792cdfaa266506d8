"""Inside each traced or sampled kernel: its instruction mix, where cycles went, what loads cost, what is hot.

Cycles come from the listing of the trace decoder where it has them all (rocprofv3 of ROCm 7), else from the executions
of the traced waves if these are all that the listing counts. Where neither holds, only the listing's latencies rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.instructions import presence
from aaco.analytics.instructions.execution import Executed, Waits, executed, waits
from aaco.analytics.instructions.presence import WaveOccupancy
from aaco.core import documents
from aaco.core.arrays import Ints
from aaco.tracelake import layout

HOT = 10
FEASIBLE = 0.8  # of the stall share can be gained, as a rule
FEWEST_FOR_P99 = 100
COLUMNS: Mapping[str, tuple[str, ...]] = {  # what is read, by table
    "wave_instructions": ("instruction", "category", "source_line", "hits", "latency_cycles", "stall_cycles",
                          "idle_cycles", "samples", "stall_reason", "instruction_id", "kernel_name", "issued",
                          "active_waves", "capture"),
    "wave_trace": ("wave_id", "cycle", "instruction_id", "stall_cycles", "latency_cycles", "capture"),
    "wave_waits": ("wave_id", "wait", "instruction_id", "waited_for", "capture"),
    "wave_states": ("state", "cycles", "capture"),
    "occupancy": ("shader_engine", "cycle", "cu", "simd", "slot", "begins", "kernel_name", "capture")}
NO_STALLS = "this trace decoder does not say how long an instruction stalled"
NO_CYCLES = "program-counter samples count no cycles"
ONLY_LATENCY = "the listing sums latency alone, and the capture has no traced waves to tell stalls from the rest"
FEWER = "the listing sums {listed:,} executions without their stalls; the capture has {executed:,} of them one by one"


class InstructionPart(Struct, frozen=True):
    """Of a category, an instruction or a source line, summed over the traced waves; None: not known.

    latency_cycles: stalled or issuing, of which stall_cycles; idle_cycles: until the wave's next instruction.
    """

    name: str
    hits: int
    latency_cycles: int | None
    stall_cycles: int | None
    idle_cycles: int | None
    samples: int

    @property
    def cycles(self) -> int | None:
        """Return all that it owns."""
        is_complete = self.latency_cycles is not None and self.idle_cycles is not None
        return (self.latency_cycles or 0) + (self.idle_cycles or 0) if is_complete else None

    @property
    def rank(self) -> int:
        """Return what it costs, as far as that is known."""
        return (self.latency_cycles or 0) + (self.idle_cycles or 0)


class Loads(Struct, frozen=True):
    """What waited-for instructions of one category cost: waits bound by them, of those the ones that stalled, for how
    long, and the time from their issue to the end of a wait that stalled, which is when the last value was there."""

    category: str
    waits: int
    stalled_waits: int | None  # this and what follows: None where the decoder does not say what stalled
    stall_cycles: int | None
    mean_latency_cycles: float | None
    p50_latency_cycles: float | None
    p99_latency_cycles: float | None  # absent with fewer than FEWEST_FOR_P99


class KernelInstructions(Struct, frozen=True):
    """One kernel of one capture. evidence: thread_trace or samples. why_no_stalls: why parts have no stall cycles."""

    capture: int | None
    kernel: str | None
    evidence: str
    why_no_stalls: str | None
    whole: InstructionPart
    mix: tuple[InstructionPart, ...]
    lines: tuple[InstructionPart, ...]
    instructions: tuple[InstructionPart, ...]
    loads: tuple[Loads, ...]
    unmatched_waits: int
    stall_reasons: Mapping[str, int]
    issued_samples: int | None
    mean_active_waves: float | None
    states: Mapping[str, int]
    occupancy: WaveOccupancy | None
    # Of the cycles that its traced waves spent; instructions_per_cycle: of one wave's life.
    stall_share: float | None = None
    idle_share: float | None = None
    instructions_per_cycle: float | None = None
    headroom: float | None = None  # FEASIBLE of the stall share: what can be gained, as a rule


@documents.document(layout.finding("instructions"), version=1)
class InstructionTraces(Struct, frozen=True):
    """instructions.json."""

    kernels: tuple[KernelInstructions, ...]


def document(kernels: Sequence[KernelInstructions]) -> dict[str, Any]:
    """Return the content of metrics/instructions.json."""
    return documents.encode(InstructionTraces(tuple(kernels)))


def inside(tables: Mapping[str, pa.Table]) -> tuple[KernelInstructions, ...]:
    """Return every traced or sampled kernel, from those of COLUMNS that the session has; most cycles or samples first.
    """
    listing = tables.get("wave_instructions")
    if listing is None:
        return ()
    kernels = [kernel for capture in pc.unique(listing["capture"]).to_pylist()
               for kernel in _of_capture(capture, {name: _only(table, capture) for name, table in tables.items()})]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.whole.rank, -kernel.whole.samples, str(kernel.kernel))))


def _only(table: pa.Table, capture: int | None) -> pa.Table:
    column = table["capture"]
    return table.filter(pc.is_null(column) if capture is None else pc.equal(column, capture))


def _of_capture(capture: int | None, tables: Mapping[str, pa.Table]) -> Iterator[KernelInstructions]:
    listing = _Listing(tables["wave_instructions"])
    ran = executed(tables["wave_trace"]) if "wave_trace" in tables else None
    if ran is not None and len(ran):
        listing.take_in(ran)
    alone = len(listing.kernels) == 1
    for code, kernel in enumerate(listing.kernels):
        rows = np.flatnonzero((listing.kernel == code) & ((listing.hits > 0) | (listing.samples > 0)))
        if not len(rows):
            continue
        sampled = listing.is_sampled
        loads, unmatched = _loads(listing, code, ran, tables.get("wave_waits"))
        whole = listing.part(kernel or "", rows)
        yield KernelInstructions(
            capture, kernel, "samples" if sampled else "thread_trace",
            NO_CYCLES if sampled else listing.why_no_stalls, whole,
            listing.parts(listing.category, listing.categories, rows),
            listing.parts(listing.line, listing.lines, rows, HOT),
            listing.parts(listing.text, listing.texts, rows, HOT),
            loads, unmatched, listing.reasons(rows), listing.issued(rows), listing.active_waves(rows),
            presence.states(tables["wave_states"]) if alone and "wave_states" in tables else {},
            presence.occupancy(_of_kernel(tables["occupancy"], alone, kernel)) if "occupancy" in tables else None,
            **_shares(whole))


def _of_kernel(events: pa.Table, alone: bool, kernel: str | None) -> pa.Table:
    """Return the waves of a kernel; of all if the capture lists one kernel, under any name."""
    return events if alone else events.filter(pc.equal(events["kernel_name"].cast(pa.string()), kernel or ""))


class _Listing:
    """The listing's rows as columns: codes of names, and numbers with 0 where the capture has none."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.kernel, self.kernels = _coded(table["kernel_name"])
        self.category, self.categories = _coded(table["category"])
        self.line, self.lines = _coded(table["source_line"])
        self.text, self.texts = _coded(table["instruction"])
        self.hits, self.samples = _numbers(table, "hits"), _numbers(table, "samples")
        instruction = _numbers(table, "instruction_id", -1)
        self._order = np.argsort(instruction, kind="stable")
        self._sorted = instruction[self._order]
        self.is_sampled = table["hits"].null_count == len(table) and table["samples"].null_count < len(table)
        self._cycles: dict[str, Ints | None] = {
            name: None if table[f"{name}_cycles"].null_count else _numbers(table, f"{name}_cycles")
            for name in ("latency", "stall", "idle")}
        self.why_no_stalls = ONLY_LATENCY if self._lacks() else None

    def _lacks(self) -> bool:
        return any(values is None for values in self._cycles.values())

    def take_in(self, ran: Executed) -> None:
        """Add the cycles of the executions if the listing itself does not have them all and counts no others."""
        if not self._lacks():
            return
        listed = int(self.hits.sum())
        if listed != len(ran):
            self.why_no_stalls = FEWER.format(listed=listed, executed=len(ran))
            return
        row = self.row_of(ran.instruction)
        is_listed = row >= 0
        for name in self._cycles:
            values = getattr(ran, name)
            self._cycles[name] = None if values is None else np.bincount(
                row[is_listed], values[is_listed], len(self.hits)).astype(np.int64)
        self.why_no_stalls = None if ran.stall is not None else NO_STALLS

    def row_of(self, instruction: Ints) -> Ints:
        """Return the listing's row of each instruction, -1 where it lists none."""
        at = np.minimum(np.searchsorted(self._sorted, instruction), len(self._order) - 1)
        return np.where(self._sorted[at] == instruction, self._order[at], -1)

    def part(self, name: str, rows: Ints) -> InstructionPart:
        """Return the sum of some rows."""
        cycles = {f"{kind}_cycles": None if values is None else int(values[rows].sum())
                  for kind, values in self._cycles.items()}
        return InstructionPart(name, int(self.hits[rows].sum()), **cycles, samples=int(self.samples[rows].sum()))

    def parts(self, codes: Ints, names: list[str | None], rows: Ints,
              most: int | None = None) -> tuple[InstructionPart, ...]:
        """Return the rows summed by code, what costs most first; those without a name are left out of a list of the
        hottest."""
        order = rows[np.argsort(codes[rows], kind="stable")]
        borders = np.flatnonzero(np.diff(codes[order])) + 1
        groups = [group for group in np.split(order, borders) if len(group)]
        made = [self.part(names[codes[group[0]]] or "unknown", group) for group in groups
                if most is None or names[codes[group[0]]]]
        made.sort(key=lambda part: (-part.rank, -part.samples, -part.hits, part.name))
        return tuple(made[:most])

    def reasons(self, rows: Ints) -> dict[str, int]:
        """Return the samples by the reason why nothing issued, most first."""
        sampled = self._table.take(rows).select(["stall_reason", "samples"])
        sampled = sampled.filter(pc.is_valid(sampled["stall_reason"]))
        summed = sampled.group_by("stall_reason").aggregate([("samples", "sum")])
        pairs = zip(summed["stall_reason"].to_pylist(), summed["samples_sum"].to_pylist(), strict=True)
        counts = [(str(name), int(count or 0)) for name, count in pairs]
        return dict(sorted(counts, key=lambda pair: (-pair[1], pair[0])))

    def issued(self, rows: Ints) -> int | None:
        """Return the samples that found the wave issuing; None if samples do not record it."""
        sampled = self._table.take(rows).select(["issued", "samples"])
        sampled = sampled.filter(pc.is_valid(sampled["issued"]))
        return int(pc.sum(sampled.filter(sampled["issued"])["samples"]).as_py() or 0) if len(sampled) else None

    def active_waves(self, rows: Ints) -> float | None:
        """Return the waves running on the compute unit, mean over the samples that say it."""
        sampled = self._table.take(rows).select(["active_waves", "samples"])
        sampled = sampled.filter(pc.is_valid(sampled["active_waves"]))
        return _ratio(pc.sum(sampled["active_waves"]).as_py(), pc.sum(sampled["samples"]).as_py())


def _loads(listing: _Listing, kernel: int, ran: Executed | None, links: pa.Table | None
           ) -> tuple[tuple[Loads, ...], int]:
    """Return what the kernel's waits were bound by, by category, the longest stalls first; and waits that match
    nothing."""
    if ran is None or links is None or not len(links) or not len(ran):
        return (), 0
    bound = waits(ran, links)
    row = listing.row_of(ran.instruction[bound.row])
    mine = (row >= 0) & (listing.kernel[row] == kernel)
    return tuple(_by_category(listing, ran, Waits(bound.row[mine], bound.load[mine], 0))), bound.unmatched


def _by_category(listing: _Listing, ran: Executed, bound: Waits) -> list[Loads]:
    target = listing.row_of(ran.instruction[np.maximum(bound.load, 0)])
    category = np.where((bound.load >= 0) & (target >= 0), listing.category[target], -1)
    latency = ran.end[bound.row] - ran.begin[np.maximum(bound.load, 0)]
    stall = None if ran.stall is None else ran.stall[bound.row]
    made = [_cost("nothing in flight" if code < 0 else listing.categories[code] or "unknown", category == code, stall,
                  latency if code >= 0 else None) for code in np.unique(category).tolist()]
    return sorted(made, key=lambda loads: (-(loads.stall_cycles or 0), -loads.waits, loads.category))


def _cost(name: str, mask: NDArray[np.bool_], stall: Ints | None, latency: Ints | None) -> Loads:
    if stall is None:
        return Loads(name, int(mask.sum()), None, None, None, None, None)
    stalled = mask & (stall > 0)
    long = latency[stalled] if latency is not None else stall[:0]
    return Loads(name, int(mask.sum()), int(stalled.sum()), int(stall[mask].sum()),
                 float(long.mean()) if len(long) else None, float(np.median(long)) if len(long) else None,
                 float(np.quantile(long, 0.99)) if len(long) >= FEWEST_FOR_P99 else None)


def _coded(column: pa.ChunkedArray) -> tuple[Ints, list[str | None]]:
    """Return a code for each value and the values by code; null has a code too, if there are any."""
    encoded = pc.dictionary_encode(column.cast(pa.string()), null_encoding="encode").combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    return np.asarray(encoded.indices.cast(pa.int64())), encoded.dictionary.to_pylist()


def _numbers(table: pa.Table, name: str, missing: int = 0) -> Ints:
    return np.asarray(pc.fill_null(table[name], missing).to_numpy())


def _shares(whole: InstructionPart) -> dict[str, float | None]:
    """Return by field name what a kernel's cycles went to."""
    stalled = _ratio(whole.stall_cycles, whole.cycles)
    return {"stall_share": stalled, "idle_share": _ratio(whole.idle_cycles, whole.cycles),
            "instructions_per_cycle": _ratio(whole.hits, whole.cycles),
            "headroom": None if stalled is None else FEASIBLE * stalled}


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
