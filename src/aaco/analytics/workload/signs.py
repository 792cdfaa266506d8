"""What the facts of a workload are read from: names of kernels and calls with their counts, copies, launches, formats.

Each is summed over the trace a piece at a time, so memory does not grow with its length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from numpy.typing import NDArray

from aaco.analytics.bottleneck.work import Copied
from aaco.analytics.kernels import families
from aaco.analytics.kernels.families.terms import KernelName
from aaco.analytics.streaming.calls import ON_DEVICE, CallKind, call_kind
from aaco.analytics.streaming.stream_ids import integers
from aaco.analytics.workload.growth import NO_GROWTH, Growth
from aaco.core.arrays import Ints, summed
from aaco.core.distinct import combinations

# The waits that end what a device graph could hold, beside CallKind.SYNC and WAIT: copies that return when they are
# done (CUDA and HIP API references, memory management; hipMemcpyWithStream waits for its stream).
BLOCKING_COPIES = frozenset(("cudaMemcpy", "cudaMemcpy2D", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "hipMemcpy",
                             "hipMemcpyWithStream", "hipMemcpyDtoH", "hipMemcpyHtoD"))
WORTH_A_GRAPH = 10  # launches: what one launch of a graph costs the host is that of a few kernels
COMPARISONS = ("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge")  # PyTorch's, that make masks
LEAST_GRAPH = 3  # launches between two waits: a graph of as few made a recorded step 3.3 times as fast (policy_rollout)


class NameTally(Struct, frozen=True):
    """The kernels of one name: how many, and how long they took together. element_type: of their first input, where
    the source says it apart from the name."""

    name: str
    element_type: str | None
    count: int
    ns: int


class LaunchStretches(Struct, frozen=True):
    """The launches of kernels between two waits of the host. in_long: those in stretches of WORTH_A_GRAPH and more."""

    launches: int = 0
    in_long: int = 0
    waits: int = 0


class WorkloadSigns(Struct, frozen=True, dict=True):
    """All that facts are read from.

    calls: how many calls or ranges have a name. domains: how many are of a domain. from_graphs: kernels that calls
    which launch a graph started, of `launched` whose launch is known. providers: ONNX Runtime's, by kernels. growth: of
    tensors by concatenation. architectures: of the devices, as the captures name them. rates: which of the devices'
    arithmetic have a peak (`matrix_f8`); None if their ceilings are not known.
    """

    kernels: tuple[NameTally, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, int] = field(default_factory=dict)
    formats: frozenset[str] = frozenset()
    providers: Mapping[str, int] = field(default_factory=dict)
    copies: tuple[Copied, ...] | None = None
    launched: int = 0
    from_graphs: int = 0
    stretches: LaunchStretches = LaunchStretches()
    growth: Growth = NO_GROWTH
    operators: pa.Table | None = None
    architectures: tuple[str, ...] = ()
    on_device: bool = False
    rates: frozenset[str] | None = None

    @cached_property
    def decoded(self) -> tuple[tuple[KernelName, NameTally], ...]:
        """The kernels' names with what they say."""
        return tuple((families.decode(tally.name), tally) for tally in self.kernels)

    @cached_property
    def kernel_ns(self) -> int:
        """How long all kernels took together."""
        return sum(tally.ns for tally in self.kernels)


class KernelTallies:
    """Sums kernels by name and element type."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str | None], list[int]] = {}
        self.providers: Counter[str] = Counter()

    def feed(self, rows: pa.RecordBatch) -> None:
        """Take kernels: kernel_name, dtypes, dur_ns, provider."""
        lasted = np.maximum(integers(rows.column("dur_ns")), 0)
        (names, name), (types, kind) = _dictionary(rows.column("kernel_name")), _first_types(rows.column("dtypes"))
        pairs, pair = combinations(name, kind)
        spent = summed(pair, lasted, len(pairs))
        counts = np.bincount(pair, minlength=len(pairs))
        for (named, of_type), count, ns in zip(pairs, counts.tolist(), spent.tolist(), strict=True):
            key = names[named] if named >= 0 else "", types[of_type] if of_type >= 0 else None
            tally = self._tallies.setdefault(key, [0, 0])
            tally[0], tally[1] = tally[0] + count, tally[1] + ns
        providers = _counted(*_dictionary(rows.column("provider")))
        self.providers.update({name: count for name, count in providers.items() if name})

    def tallies(self) -> tuple[NameTally, ...]:
        """Return the sums, the longest first."""
        found = (NameTally(name, kind, count, ns) for (name, kind), (count, ns) in self._tallies.items())
        return tuple(sorted(found, key=lambda tally: (-tally.ns, tally.name, tally.element_type or "")))


class CallTallies:
    """Counts calls by name and domain, and the launches between the host's waits, process by process."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._copied: Counter[str] = Counter()
        self.domains: Counter[str] = Counter()
        self._open: Counter[tuple[int, ...]] = Counter()
        self._launches, self._in_long, self._waits = 0, 0, 0

    def feed(self, rows: pa.RecordBatch) -> None:
        """Take calls in order of their start: name, domain, capture, process_id."""
        names, codes = _dictionary(rows.column("name"))
        domains, domain_codes = _dictionary(rows.column("domain"))
        on_device = np.array([domain == ON_DEVICE for domain in domains] + [False])[domain_codes]
        self._calls.update(_counted(names, codes[~on_device]))
        self._copied.update(_counted(names, codes[on_device]))
        self.domains.update(_counted(domains, domain_codes))
        roles = np.array([_role(name) for name in names] + [0], np.int8)[codes]
        capture, process = (integers(rows.column(name)) for name in ("capture", "process_id"))
        processes, process_of = combinations(capture, process)
        for number, key in enumerate(processes):
            self._take(key, roles[(process_of == number) & (roles != 0)])

    @property
    def calls(self) -> dict[str, int]:
        """Return how often each name was called. What a profiler copies of the host's ranges onto the device's streams
        counts only where the host's were not recorded."""
        return {**self._copied, **self._calls}

    def _take(self, process: tuple[int, ...], roles: NDArray[np.int8]) -> None:
        """Take the launches and waits of one process, in their order."""
        before = np.cumsum(roles == _LAUNCHES)
        at_waits = before[roles == _WAITS] + self._open[process]
        self._waits += len(at_waits)
        self._close(np.diff(at_waits, prepend=0))
        launched = self._open[process] + (int(before[-1]) if len(before) else 0)
        self._open[process] = launched - (int(at_waits[-1]) if len(at_waits) else 0)

    def _close(self, launches: Ints) -> None:
        """Count stretches by the launches in each."""
        self._launches += int(launches.sum())
        self._in_long += int(launches[launches >= WORTH_A_GRAPH].sum())

    def stretches(self) -> LaunchStretches:
        """Return the launches between waits, those after the last wait included."""
        self._close(np.array(list(self._open.values()), np.int64))
        self._open.clear()
        return LaunchStretches(self._launches, self._in_long, self._waits)


_LAUNCHES, _WAITS = 1, 2


@lru_cache(1 << 16)
def _role(name: str) -> int:
    kind = call_kind(name)
    if kind == CallKind.LAUNCH:
        return _LAUNCHES
    return _WAITS if kind in (CallKind.SYNC, CallKind.WAIT) or name in BLOCKING_COPIES else 0


def _dictionary(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """Return the names of a dictionary column, and the code of each row; -1 for none."""
    return [str(name) for name in column.dictionary.to_pylist()], np.asarray(column.indices.fill_null(-1), np.int64)


def _counted(names: Sequence[str], codes: Ints) -> dict[str, int]:
    """Return how often each name occurs by its code; those that do not are left out."""
    counts = np.bincount(codes[codes >= 0], minlength=len(names)).tolist()
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _first_types(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """Return the first types of lists as `_dictionary` does."""
    if column.null_count == len(column):
        return [], np.full(len(column), -1)
    firsts = pa.array([types[0] if types else None for types in column.to_pylist()], pa.string())
    return _dictionary(firsts.dictionary_encode())
