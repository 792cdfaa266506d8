"""A kernel's counters turned into work: operations by type, bytes by level, and every reason why one is not known.

Counters come from separate executions of the same kernel, so two of them may contradict each other. Nothing is clamped:
a contradiction is reported, and what comes out negative is absent. A counter that is zero on every kernel was either
not counted, a known fault of several devices and drivers, or counted what did not happen; it is believed where a
counter of the same block counted something, and otherwise its quantities are absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from numpy.typing import NDArray

from aaco.analytics.roofline.formulas import Formulas, plain
from aaco.core.arrays import Reals, find_sorted
from aaco.tracelake.document_schemas.devices import Contradicted

AGREE = 1e-9  # relative; what two passes counted of a deterministic kernel is the same number or it is not
MOST_NAMED = 4
_INSTANCE = re.compile(r"(.+)\[\d{1,4}\]", re.ASCII)


class Work(Struct, frozen=True):
    """Of each kernel (rows in the order given) every quantity, NaN where it is not known, and why.

    absent: quantity -> why it is known of no kernel. unknown_matrix: kernels that ran matrix instructions none of whose
    counted types counted any.
    """

    quantities: Mapping[str, Reals]
    absent: Mapping[str, str]
    unknown_matrix: NDArray[np.bool_]
    contradictions: tuple[Contradicted, ...] = ()


class Counted(Struct):
    """The counters of kernels 0..count-1 as columns, of those that any formula wants; NaN where it was not counted."""

    count: int
    wanted: Formulas
    values: dict[str, Reals] = field(default_factory=dict)
    summed: dict[str, Reals] = field(default_factory=dict)  # over instances, where no total is given
    instances: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # by full name: kernels it was added for
    differing: dict[str, set[int]] = field(default_factory=dict)  # kernels of which two passes counted differently
    nonzero: set[str] = field(default_factory=set)  # prefixes of `alive` of which a counter counted something

    def add(self, kernels: NDArray[np.int64], counters: pa.DictionaryArray, values: Reals) -> None:
        """Enter rows of the counters table; `kernels` are positions, negative for those of no interest here."""
        names = counters.dictionary.to_pylist()
        codes = counters.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code in np.unique(codes[kernels >= 0]).tolist():
            if code >= 0:
                rows = (codes == code) & (kernels >= 0) & np.isfinite(values)
                self._enter(str(names[code]), kernels[rows], values[rows])

    def _enter(self, name: str, kernels: NDArray[np.int64], values: Reals) -> None:
        instance = _INSTANCE.fullmatch(name)
        counter = plain(instance[1] if instance else name)
        if values.any():
            self.nonzero |= {prefix for prefix in self.wanted.alive if counter.startswith(prefix)}
        if counter not in self.wanted.counters:
            return
        first = np.unique(kernels, return_index=True)[1]
        if instance:
            self._sum_up(name, counter, kernels[first], values[first])
            return
        column = self.values.setdefault(counter, np.full(self.count, np.nan))
        new = first[np.isnan(column[kernels[first]])]
        column[kernels[new]] = values[new]
        differ = np.abs(column[kernels] - values) > AGREE * np.abs(values)
        if differ.any():
            self.differing.setdefault(counter, set()).update(kernels[differ].tolist())

    def _sum_up(self, name: str, counter: str, kernels: NDArray[np.int64], values: Reals) -> None:
        """Add one instance of a counter to its sum, once per kernel."""
        seen = self.instances.setdefault(name, np.zeros(self.count, bool))
        total = self.summed.setdefault(counter, np.full(self.count, np.nan))
        new = ~seen[kernels]
        seen[kernels] = True
        total[kernels[new]] = np.nan_to_num(total[kernels[new]]) + values[new]

    def column(self, counter: str) -> Reals | None:
        """Return what each kernel counted: the total as given, else the sum over instances, else a rate times its
        cycles; None where it never was.
        """
        found = self.values.get(counter)
        found = self.summed.get(counter) if found is None else found
        if found is None and counter in self.wanted.rates:
            rate, cycles = (self.values.get(name) for name in self.wanted.rates[counter])
            return None if rate is None or cycles is None else rate * cycles
        return found


def read(batches: Iterable[pa.RecordBatch], kernels: NDArray[np.int64], wanted: Formulas) -> Counted:
    """Return the counters of these kernels (ids in rising order) from batches of (kernel_id, counter, value)."""
    found = Counted(len(kernels), wanted)
    for batch in batches:
        table = pa.Table.from_batches([batch]).filter(pc.is_valid(batch.column("value")))
        ids = table["kernel_id"].combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)
        at = find_sorted(kernels, ids)
        names = table["counter"].combine_chunks()
        encoded = names if isinstance(names, pa.DictionaryArray) else names.dictionary_encode()
        found.add(at, encoded, table["value"].to_numpy())
    return found


def work(counted: Counted) -> Work:
    """Return the quantities of every kernel, by the formulas of its architecture."""
    dead = set(_dead(counted))
    quantities, absent = {}, dict(counted.wanted.absent)
    for formula in counted.wanted.quantities:
        if formula.quantity in quantities:
            continue
        missing = [name for name in formula.weights if counted.column(name) is None]
        if missing:
            absent.setdefault(formula.quantity, f"{_named(missing)} not recorded{_bounds(missing, counted)}")
        elif lost := sorted(dead & formula.weights.keys()):
            absent[formula.quantity] = f"{_named(lost)} zero on every kernel, and so is all of its block: not counted"
        else:
            values = sum(weight * _column(counted, name) for name, weight in formula.weights.items())
            quantities[formula.quantity] = np.where(np.asarray(values) < 0, np.nan, values)
            absent.pop(formula.quantity, None)
    return Work(quantities, absent, _unknown_matrix(counted, quantities), tuple(_contradictions(counted)))


def _column(counted: Counted, name: str) -> Reals:
    found = counted.column(name)
    return np.full(counted.count, np.nan) if found is None else found


def _is_zero(column: Reals | None) -> bool:
    return column is not None and bool(np.isfinite(column).any()) and not np.nan_to_num(column).any()


def _dead(counted: Counted) -> Iterator[str]:
    """Counters that are zero on every kernel while nothing of their block counted anything."""
    for name in counted.wanted.counters:
        if _is_zero(counted.column(name)):
            blocks = {prefix for prefix in counted.wanted.alive if name.startswith(prefix)}
            if not blocks & counted.nonzero and not _idle_block(name, counted):
                yield name


def _idle_block(name: str, counted: Counted) -> bool:
    """Return whether nothing can have been counted: a kernel without local memory has no accesses to it."""
    return name.startswith("SQ_LDS_") and "SQ_WAVES" in counted.nonzero


def _unknown_matrix(counted: Counted, quantities: Mapping[str, Reals]) -> NDArray[np.bool_]:
    """Kernels with matrix instructions of a type that was not counted."""
    ran = np.zeros(counted.count, bool)
    for name, beyond in counted.wanted.matrix_work.items():
        ran |= np.nan_to_num(_column(counted, name)) > beyond
    known = np.zeros(counted.count)
    for name, values in quantities.items():
        if name.startswith("matrix_"):
            known += np.nan_to_num(values)
    return ran & (known == 0)


def _contradictions(counted: Counted) -> Iterator[Contradicted]:
    for law in counted.wanted.laws:
        columns = [counted.column(name) for name in (*law.parts, law.whole)]
        if any(column is None for column in columns):
            continue
        *parts, whole = [column for column in columns if column is not None]
        total = np.sum(parts, axis=0)
        excess = total - whole
        wrong = excess > 0
        if wrong.any():
            worst = int(np.nanargmax(np.where(wrong, excess, -np.inf)))
            yield Contradicted(what=f"{' + '.join(law.parts)} is a part of {law.whole}", kernels=int(wrong.sum()),
                               of=counted.count, example=f"{total[worst]:,.0f} of {whole[worst]:,.0f}")
    for name, kernels in sorted(counted.differing.items()):
        yield Contradicted(what=f"passes disagree on {name}; the first is used", kernels=len(kernels),
                           of=counted.count, example="")


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _bounds(missing: list[str], counted: Counted) -> str:
    """Lower and upper bound of reads of which the number was counted and not the sizes."""
    if "TCC_EA0_RDREQ_128B" not in missing:
        return ""
    requests, small = counted.column("TCC_EA0_RDREQ"), counted.column("TCC_EA0_RDREQ_32B")
    if requests is None or small is None:
        return ""
    others, least = np.nansum(requests - small), 32 * np.nansum(small)
    return (f": all kernels together read between {least + 64 * others:,.0f} and {least + 128 * others:,.0f} bytes, "
            "as the requests were of 64 or of 128 bytes")
