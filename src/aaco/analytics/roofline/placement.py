"""Kernels under the ceilings of their device: what each did by its counters, and how much of each ceiling that was.

For W operations and B bytes at a level, the ceilings allow a kernel no less than W / peak and B / bandwidth (Williams,
Waterman and Patterson 2009; per level: Yang, Kurth and Williams 2020). Operations of several types share a unit, so
their times on it add up; the vector and the matrix unit work beside each other. The greatest of all these times is the
ideal time, its ceiling is the bound, and ideal / measured is the share of the roof that was reached.

A share of a theoretical ceiling beyond 1 cannot be: the counters, the time or the ceiling is wrong. Such a kernel has
no place, and what contradicts is told. A memory behind a cache of its own may be asked for more than it can deliver: up
to what the cache delivers, that is its ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.roofline import formulas
from aaco.analytics.roofline.counted import Work
from aaco.analytics.roofline.devices.ceilings import DRAM, L1, L2, LDS, SIDE, Ceilings
from aaco.core.arrays import Flags, Reals
from aaco.core.tables import KERNEL_ROOFLINE
from aaco.tracelake.document_schemas.devices import Ceiling, ImpossibleWork

FLOATS = (*(f"vector_{kind}" for kind in ("f64", "f32", "f16")), *(f"matrix_{kind}" for kind in formulas.FLOATS))
INTS = ("vector_int", "matrix_i8")
RATES = (*FLOATS, *INTS)
COMPUTED = (*FLOATS, "matrix_i8")  # what counts as work: the vector unit's integers are mostly addresses
ALWAYS = "vector_f32"  # the type that any kernel may use: without it a sum over types says little
COMPUTE = "compute"
LEVELS = {DRAM: (formulas.READ, formulas.WRITTEN), L2: (formulas.L2,), L1: (formulas.L1,), LDS: (formulas.LDS,)}
QUANTITIES = tuple(name for names in LEVELS.values() for name in names)
BOUNDS = (COMPUTE, *LEVELS)
# Near a ceiling, and far from every one (ours; from the former on utilisation is good).
OPTIMAL, LATENCY = 0.6, 0.1
NO_TIME = "the capture has no time of it"
NO_COUNTERS = "no counters were recorded of it"
UNKNOWN_MATRIX = "it ran matrix instructions of a type that was not counted"
CONTRADICTED = "its counters contradict each other"


class Kernels(Struct, frozen=True):
    """The kernels to place, all of one device: columns of the kernels table. Times that are not known are NaN.

    occupancy: of each, as `occupancy.of_kernels` gives it.
    """

    kernel_id: pa.Array
    kernel_name: pa.Array
    capture: int | None
    device_id: int | None
    time_ns: Reals
    occupancy: tuple[pa.Array, pa.Array] | None = None


class Notes:
    """A text for some of many rows, the first that was noted of each."""

    def __init__(self, count: int) -> None:
        self.codes, self.texts = np.full(count, -1, np.int32), list[str]()

    def note(self, rows: Flags, text: str) -> None:
        """Note a text of those rows that have none."""
        new = rows & (self.codes < 0)
        if new.any():
            self.codes[new] = len(self.texts)
            self.texts.append(text)

    @property
    def there(self) -> Flags:
        """Rows that have a text."""
        return np.asarray(self.codes >= 0)

    def column(self) -> pa.Array:
        """Return the texts as a NAME column; null where there is none."""
        codes = pa.array(self.codes, mask=self.codes < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(self.texts, pa.string()))


def place(kernels: Kernels, work: Work, theory: Ceilings, measured: Ceilings) -> tuple[pa.Table, list[ImpossibleWork]]:
    """Return the kernels as rows of kernel_roofline, and what cannot be. The work's rows are those of the kernels."""
    did = _Done(work, np.where(kernels.time_ns > 0, kernels.time_ns, np.nan))
    shares = did.shares(theory)
    wrong = Notes(did.count)
    impossible = [_impossible(name, values, did, theory, kernels) for name, values in shares.items()
                  if (np.nan_to_num(values) > 1).any()]
    for one in impossible:
        text = f"beyond the theoretical ceiling of {one.ceiling}: {one.quantities}"
        wrong.note(np.nan_to_num(shares[one.ceiling]) > 1, text)
    shares[COMPUTE] = _where(np.isfinite(did.flops), shares[COMPUTE])  # of a part of the work it would say little
    why = _why_absent(did, shares, theory, wrong)
    roof, reached = _Roof(shares, ~why.there), _Roof(did.shares(measured), ~why.there)
    judged = reached if reached.bound.there.any() else roof
    occupancy_pct, limited_by = kernels.occupancy or (None, None)
    table = KERNEL_ROOFLINE.build(
        kernel_id=kernels.kernel_id, kernel_name=kernels.kernel_name, capture=[kernels.capture] * did.count,
        device_id=[kernels.device_id] * did.count, dur_ns=_whole(kernels.time_ns),
        **{_column(name): _real(did.quantity(name)) for name in (*RATES, *QUANTITIES)},
        flops=_real(did.flops), uncounted=did.uncounted.column(), dominant=did.dominant(theory).column(),
        **{f"{level}_intensity": _real(did.intensity(level)) for level in LEVELS},
        flops_per_s=_real(_where(~wrong.there, 1e9 * did.flops / did.time_ns)),
        dram_bytes_per_s=_real(_where(~wrong.there, 1e9 * did.moved(DRAM) / did.time_ns)),
        **{f"{name}_share": _real(_where(~wrong.there, values)) for name, values in shares.items()},
        bound=roof.bound.column(), roof_share=_real(roof.share), measured_bound=reached.bound.column(),
        measured_roof_share=_real(reached.share), region=_regions(judged).column(),
        memory_wait_share=_real(did.memory_wait_share()), occupancy_limit_pct=occupancy_pct,
        occupancy_limited_by=limited_by, why_absent=why.column(), error=wrong.column())
    return table, impossible


class _Done:
    """What each kernel did, by its counters. NaN is unknown."""

    def __init__(self, work: Work, time_ns: Reals) -> None:
        self.work, self.time_ns, self.count = work, time_ns, len(time_ns)
        found = [work.quantities[name] for name in FLOATS if name in work.quantities]
        total = np.sum(found, axis=0) if ALWAYS in work.quantities else np.full(self.count, np.nan)
        self.flops: Reals = np.where(work.unknown_matrix, np.nan, total)
        self.uncounted = Notes(self.count)
        if lacking := [name for name in FLOATS if name in work.absent]:
            self.uncounted.note(np.isfinite(self.flops), ", ".join(lacking))

    def quantity(self, name: str) -> Reals:
        """Return a quantity of every kernel."""
        found = self.work.quantities.get(name)
        return np.full(self.count, np.nan) if found is None else found

    def moved(self, level: str) -> Reals:
        """Bytes moved at a level."""
        return np.asarray(np.sum([self.quantity(name) for name in LEVELS[level]], axis=0))

    def memory_wait_share(self) -> Reals:
        """Of the counted waits those for memory; unknown where there are none."""
        waits = self.quantity(formulas.MEMORY_WAIT)
        every = waits + self.quantity(formulas.OWN_WAIT)
        return np.asarray(waits / np.where(every > 0, every, np.nan))

    def intensity(self, level: str) -> Reals:
        """Operations per byte of a level; unknown where none moved."""
        moved = self.moved(level)
        with np.errstate(over="ignore"):
            return np.asarray(self.flops / np.where(moved > 0, moved, np.nan))

    def shares(self, ceilings: Ceilings) -> dict[str, Reals]:
        """Of each ceiling the share of the kernel's time that it needs at least; NaN where that is unknown."""
        needed = {level: 1e9 * self.moved(level) / self._bandwidth(level, ceilings) for level in LEVELS}
        return {name: ns / self.time_ns for name, ns in ({COMPUTE: self._compute_ns(ceilings)} | needed).items()}

    def _bandwidth(self, level: str, ceilings: Ceilings) -> Reals:
        """Return the ceiling of each kernel's traffic: of the memory's the cache's before it, where it asked for
        more.
        """
        peak = ceilings.bandwidths.get(level, np.nan)
        behind = max(peak, ceilings.bandwidths.get(SIDE, 0.0)) if level == DRAM else peak
        return np.where(1e9 * self.moved(level) / self.time_ns > peak, behind, peak)

    def _compute_ns(self, ceilings: Ceilings) -> Reals:
        """Return the time that the busier of the two units needs for what was counted; unknown where a type that was
        used has no peak.
        """
        counted = np.isfinite([self.quantity(name) for name in COMPUTED]).any(axis=0)
        units = {unit: np.where(counted, 0.0, np.nan) for unit in ("vector", "matrix")}
        for name in COMPUTED:
            if name in self.work.quantities:
                done = self.work.quantities[name]
                peak = ceilings.rates.get(name, np.nan)
                units[name.partition("_")[0]] += np.where(np.nan_to_num(done) > 0, 1e9 * done / peak, 0.0)
        return np.asarray(np.maximum(units["vector"], units["matrix"]))

    def dominant(self, ceilings: Ceilings) -> Notes:
        """Return the rate that takes most of a kernel's compute time; by operations where no peaks are known."""
        found = Notes(self.count)
        names = [name for name in COMPUTED if name in self.work.quantities]
        weights = np.array([np.nan_to_num(self.quantity(name)) / ceilings.rates.get(name, 1.0) for name in names])
        for at, name in enumerate(names):
            found.note((weights[at] > 0) & (weights.argmax(axis=0) == at), name)
        return found


class _Roof:
    """Of each kernel the ceiling that needs most of its time, and that share; none where operations, bytes of memory or
    their ceilings are unknown."""

    def __init__(self, shares: Mapping[str, Reals], possible: Flags) -> None:
        ready = possible & np.isfinite(shares[COMPUTE]) & np.isfinite(shares[DRAM])
        stacked = np.array([np.nan_to_num(shares[name], nan=-1.0) for name in BOUNDS])
        self.share = _where(ready, stacked.max(axis=0))
        self.bound = Notes(len(ready))
        for at, name in enumerate(BOUNDS):
            self.bound.note(ready & (stacked.argmax(axis=0) == at), name)


def _impossible(name: str, shares: Reals, did: _Done, theory: Ceilings, kernels: Kernels) -> ImpossibleWork:
    """Return what contradicts a ceiling, with the worst kernel."""
    worst = int(np.nanargmax(shares))
    if name == COMPUTE:
        used = {rate: float(did.quantity(rate)[worst]) for rate in COMPUTED if did.quantity(rate)[worst] > 0}
        most = max(used, key=lambda rate: used[rate] / theory.rates[rate])
        done, peak, names = used[most], theory.rates[most], ", ".join(used)
    else:
        done, names = float(did.moved(name)[worst]), ", ".join(LEVELS[name])
        peak = max(theory.bandwidths[name], theory.bandwidths.get(SIDE, 0.0) if name == DRAM else 0.0)
    return ImpossibleWork(
        ceiling=cast(Ceiling, name), quantities=names, kernels=int((np.nan_to_num(shares) > 1).sum()),
        kernel_name=str(kernels.kernel_name[worst].as_py() or ""), factor=float(shares[worst]),
        achieved=1e9 * done / float(did.time_ns[worst]), peak=float(peak))


def _why_absent(did: _Done, shares: Mapping[str, Reals], theory: Ceilings, wrong: Notes) -> Notes:
    """Return why a kernel has no place, the first reason that holds."""
    absent, why = did.work.absent, Notes(did.count)
    counted = np.logical_or.reduce([np.isfinite(values) for values in did.work.quantities.values()]
                                   or [np.zeros(did.count, bool)])
    uncounted = absent.get("flops") or absent.get(ALWAYS, CONTRADICTED)
    unread = next((absent[name] for name in LEVELS[DRAM] if name in absent), CONTRADICTED)
    for text in wrong.texts:
        why.note(wrong.codes == wrong.texts.index(text), text)
    why.note(~counted, NO_COUNTERS)
    why.note(~np.isfinite(did.time_ns), NO_TIME)
    why.note(did.work.unknown_matrix, UNKNOWN_MATRIX)
    why.note(~np.isfinite(did.flops), uncounted)
    why.note(~np.isfinite(did.moved(DRAM)), unread)
    why.note(~np.isfinite(shares[COMPUTE]), theory.absent.get("rates", "the peak of a type that it used is not known"))
    why.note(~np.isfinite(shares[DRAM]), theory.absent.get(DRAM, "the memory's bandwidth is not known"))
    return why


def _regions(roof: _Roof) -> Notes:
    """Where in the envelope each kernel is: at its ceiling, below the one that bounds it, or far below every one."""
    found = Notes(len(roof.share))
    share = np.nan_to_num(roof.share, nan=-1.0)
    found.note(share >= OPTIMAL, "optimal")
    found.note((share >= 0) & (share < LATENCY), "latency_bound")
    computing = roof.bound.codes == (roof.bound.texts.index(COMPUTE) if COMPUTE in roof.bound.texts else -2)
    found.note((share >= 0) & computing, "compute_bound")
    found.note(share >= 0, "memory_bound")
    return found


def _where(rows: Flags, values: Reals) -> Reals:
    return np.where(rows, values, np.nan)


def _real(values: Reals) -> pa.Array:
    return pa.array(values, pa.float64(), mask=~np.isfinite(values))


def _whole(values: Reals) -> pa.Array:
    return pa.array(np.nan_to_num(values, nan=0.0).astype(np.int64), mask=~np.isfinite(values))


def _column(quantity: str) -> str:
    return f"{quantity}_ops" if quantity in INTS else f"{quantity}_flops" if quantity in FLOATS else quantity
