"""What a fault may change: each symptom is one number formed from the signals of two sides, 0 where nothing changed.

Symptoms are logarithms of ratios, differences of shares, or distances between what the graphs consist of, so that the
size of the model and the speed of the machine fall out. Times that were added are given as a part of the slowdown, so
that a weak fault looks like a strong one. A floor keeps a ratio of two small numbers from meaning anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct, field
from msgspec.structs import replace

from aaco.analytics.root_cause.signals import Signals
from aaco.core.readings import Absent

LEAST_SLOWDOWN = 0.03  # of the baseline's time: parts of less are parts of noise


class Side(Struct, frozen=True):
    """One side of the question: its signals, and what its graph consists of, as given and as executed."""

    signals: Signals
    source: Mapping[str, int] = field(default_factory=dict)  # operator -> nodes
    executed: Mapping[str, int] = field(default_factory=dict)
    dtypes: Mapping[str, int] = field(default_factory=dict)  # element type -> nodes

    def __getitem__(self, name: str) -> float:
        """Return a signal. Raise Absent where it was not recorded."""
        if name not in self.signals:
            raise Absent(f"{name} was not recorded")
        return self.signals[name]


Formula = Callable[[Side, Side], float]  # baseline, current


class Symptom(Struct, frozen=True):
    """signal: what it is read from, for the evidence's value; source: the file and column of that; group: symptoms that
    tell of the same thing and are tempered together; floor: the least width of a law, because smaller shifts than that
    mean nothing on any machine; shared: it is a part of a whole, and two faults at once take from each other."""

    name: str
    meaning: str
    group: str
    signal: str
    source: str
    formula: Formula
    floor: float = 0.05
    shared: bool = False


class Evidence(Struct, frozen=True):
    """One symptom of one comparison. shift, value and baseline are None together with a reason why they are missing.

    z: the shift in units of the spread that sound runs show.
    """

    name: str
    meaning: str
    group: str
    source: str
    window: str
    value: float | None = None
    baseline: float | None = None
    shift: float | None = None
    z: float | None = None
    why_missing: str = ""

    @property
    def missing(self) -> bool:
        """Whether nothing was recorded that could speak."""
        return self.shift is None


def _ratio(name: str, floor: float = 0.0) -> Formula:
    def formula(baseline: Side, current: Side) -> float:
        before, after = baseline[name] + floor, current[name] + floor
        if before <= 0 or after <= 0:
            raise Absent(f"{name} is {current[name]:g} against {baseline[name]:g}: no ratio")
        return math.log(after / before)

    return formula


def _part(time: Callable[[Side], float]) -> Formula:
    """Time that was added to an iteration, as a part of the slowdown; between -1 and 2."""
    def formula(baseline: Side, current: Side) -> float:
        sound = baseline["period_ns"]
        slower = max(current["period_ns"] - sound, LEAST_SLOWDOWN * sound)
        return min(2.0, max(-1.0, (time(current) - time(baseline)) / slower))

    return formula


def _spread(baseline: Side, current: Side) -> float:
    before, after = (math.log(side["latency_p90_ns"] / side["latency_median_ns"]) for side in (baseline, current))
    return math.log((after + 0.02) / (before + 0.02))


def _others(side: Side) -> float:
    """Share of the CPUs' time that went to anybody else."""
    return max(0.0, side["allowed_busy_ratio"] - side["cpu_ratio"]) / side["cpus_allowed"]


def _times(share: str) -> Callable[[Side], float]:
    return lambda side: side[share] * side["period_ns"]


def _nodes(which: Callable[[Side], Mapping[str, int]]) -> Formula:
    def formula(baseline: Side, current: Side) -> float:
        return math.log(_count(which(current)) / _count(which(baseline)))

    return formula


def _unfused(baseline: Side, current: Side) -> float:
    """Return how many more nodes are executed for each that was given."""
    before, after = (_count(side.executed) / _count(side.source) for side in (baseline, current))
    return math.log(after / before)


def _distance(which: Callable[[Side], Mapping[str, int]]) -> Formula:
    """Total variation between two mixtures: 0 the same, 1 nothing in common."""
    def formula(baseline: Side, current: Side) -> float:
        before, after = which(baseline), which(current)
        sizes = _count(before), _count(after)
        names = {*before, *after}
        return sum(abs(before.get(name, 0) / sizes[0] - after.get(name, 0) / sizes[1]) for name in names) / 2

    return formula


def _count(mixture: Mapping[str, int]) -> int:
    count = sum(mixture.values())
    if not count:
        raise Absent("the graph was not recorded")
    return count


_ITERS, _ACCOUNT = "metrics/inference_iters.parquet", "telemetry/account.parquet"
_EVENTS, _PROBES = "telemetry/system_events.parquet kind=", "runtime/ort_config.json passes[].probes."
_SOURCE, _EXECUTED = "model/graph_nodes.parquet", "model/executed_nodes.parquet"
SYMPTOMS: tuple[Symptom, ...] = (
    Symptom("slowdown", "time from one inference to the next", "time", "period_ns", _ITERS, _ratio("period_ns")),
    Symptom("between_inferences", "part of the slowdown that lies between inferences", "place", "gap_ns", _ITERS,
            _part(itemgetter("gap_ns")), 0.1, shared=True),
    Symptom("unsteadiness", "p90 of latency over its median", "unsteady", "latency_p90_ns", _ITERS, _spread, 0.2,
            shared=True),
    Symptom("parallelism", "CPU time over wall time", "processor", "cpu_ratio", _EVENTS + "cpu_time",
            _ratio("cpu_ratio"), 0.08, shared=True),
    Symptom("kernel_time", "part of the slowdown that the kernel spent on its behalf", "kernel", "system_ratio",
            _EVENTS + "cpu_time_system", _part(_times("system_ratio")), 0.15, shared=True),
    Symptom("run_queue_wait", "its threads' time in the run queue over wall time", "contention", "wait_ratio",
            _ACCOUNT + " run_queue_wait_ns", _ratio("wait_ratio", 0.005), 0.3),
    Symptom("waiting_part", "part of the slowdown spent in the run queue", "contention", "wait_ratio",
            _ACCOUNT + " run_queue_wait_ns", _part(_times("wait_ratio")), 0.1, shared=True),
    Symptom("preemptions", "preemptions in an iteration", "contention", "switches_involuntary",
            _ACCOUNT + " switches_involuntary", _ratio("switches_involuntary", 0.1), 0.3),
    Symptom("others_at_work", "share of its CPUs' time that others took", "contention", "allowed_busy_ratio",
            _EVENTS + "allowed_busy", lambda baseline, current: _others(current) - _others(baseline), 0.05,
            shared=True),
    Symptom("long_holes", "known work interrupted for long: other tasks", "probe_processor", "probe_long_holes_ratio",
            _PROBES + "long_holes_ratio", _ratio("probe_long_holes_ratio", 0.01), 0.3),
    Symptom("known_work", "mean time of a counting loop", "probe_processor", "probe_core_mean_ns",
            _PROBES + "core_mean_ns", _ratio("probe_core_mean_ns"), 0.1),
    Symptom("clock", "fastest time of a counting loop", "clock", "probe_core_fastest_ns", _PROBES + "core_fastest_ns",
            _ratio("probe_core_fastest_ns"), 0.1),
    Symptom("cpus_allowed", "CPUs that it may use", "placement", "cpus_allowed", _EVENTS + "cpus_allowed",
            _ratio("cpus_allowed")),
    Symptom("throttled", "time in which a CPU quota stopped it", "quota", "throttled_ratio",
            _EVENTS + "cgroup_throttled", _ratio("throttled_ratio", 0.01), 0.3),
    Symptom("interrupts", "interrupts of the host a second", "interrupts", "host_interrupts_per_s",
            _EVENTS + "host_interrupts", _ratio("host_interrupts_per_s", 100.0), 0.2),
    Symptom("short_holes", "known work interrupted for short: interrupts", "interrupts", "probe_short_holes_ratio",
            _PROBES + "short_holes_ratio", _ratio("probe_short_holes_ratio", 0.01), 0.2),
    Symptom("memory_copy", "time of a copy larger than caches", "bandwidth", "probe_copy_fastest_ns",
            _PROBES + "copy_fastest_ns", _ratio("probe_copy_fastest_ns"), 0.1),
    Symptom("page_faults", "page faults in an iteration", "paging", "faults_minor", _ACCOUNT + " faults_minor",
            _ratio("faults_minor", 2.0), 0.3),
    Symptom("reads", "bytes read from devices a second", "reading", "read_bytes_per_s", _EVENTS + "io_read",
            _ratio("read_bytes_per_s", 2e5), 0.3),
    Symptom("writes", "bytes written to devices a second", "writing", "written_bytes_per_s", _EVENTS + "io_write",
            _ratio("written_bytes_per_s", 2e5), 0.3),
    Symptom("blocked", "times an iteration gave up the CPU by itself", "blocking", "switches_voluntary",
            _ACCOUNT + " switches_voluntary", _ratio("switches_voluntary", 1.0), 0.2),
    Symptom("io_pressure", "share of time in which somebody waited for I/O", "blocking", "psi_io_ratio",
            _EVENTS + "psi_io", _ratio("psi_io_ratio", 0.01), 0.3, shared=True),
    Symptom("threads", "threads of the process", "threads", "threads", _ACCOUNT + " threads", _ratio("threads")),
    Symptom("elements", "elements fed to an inference", "input", "elements", "runtime/ort_config.json fed",
            _ratio("elements")),
    Symptom("shapes", "different shapes fed in turn", "shapes", "shapes", "runtime/ort_config.json fed",
            _ratio("shapes")),
    Symptom("nodes_given", "nodes of the model", "source", "source_nodes", _SOURCE, _nodes(lambda side: side.source)),
    Symptom("operators_given", "distance between the models' operators", "source", "source_nodes",
            _SOURCE + " op_type", _distance(lambda side: side.source)),
    Symptom("nodes_unfused", "nodes executed for each node of the model", "fusion", "executed_nodes", _EXECUTED,
            _unfused),
    Symptom("operators_executed", "distance between the executed operators", "execution", "executed_nodes",
            _EXECUTED + " op_type", _distance(lambda side: side.executed)),
    Symptom("element_types", "distance between the element types of the nodes", "precision", "source_nodes",
            _SOURCE + " dtype", _distance(lambda side: side.dtypes)),
)


BY_NAME: Mapping[str, Symptom] = {symptom.name: symptom for symptom in SYMPTOMS}


def shifts(baseline: Side, current: Side) -> dict[str, float]:
    """Return the shift of every symptom that both sides can show."""
    return {symptom.name: symptom.shift for symptom in compare(baseline, current) if symptom.shift is not None}


def compare(baseline: Side, current: Side, spreads: Mapping[str, float] | None = None,
            window: str = "measurement") -> list[Evidence]:
    """Return every symptom as evidence; spreads: that of each among sound runs, which z is in units of."""
    return [_compared(symptom, baseline, current, (spreads or {}).get(symptom.name), window) for symptom in SYMPTOMS]


def _compared(symptom: Symptom, baseline: Side, current: Side, spread: float | None, window: str) -> Evidence:
    said = Evidence(symptom.name, symptom.meaning, symptom.group, symptom.source, window)
    try:
        shift = symptom.formula(baseline, current)
        value, before = _value(symptom, current), _value(symptom, baseline)
    except Absent as reason:
        return replace(said, why_missing=str(reason))
    if not all(map(math.isfinite, (shift, value, before))):
        return replace(said, why_missing=f"{symptom.signal} is no finite number")
    return replace(said, value=value, baseline=before, shift=shift, z=shift / spread if spread else None)


def _value(symptom: Symptom, side: Side) -> float:
    """Return what the evidence is read from, in the signal's own unit."""
    counted = {"source_nodes": side.source, "executed_nodes": side.executed}
    return float(_count(counted[symptom.signal])) if symptom.signal in counted else side[symptom.signal]


def distinct(evidence: Sequence[Evidence]) -> Iterator[Evidence]:
    """Yield each fact once, whoever says it how often: the same symptom of the same window is the same fact."""
    seen: dict[tuple[str, str], Evidence] = {}
    for item in evidence:
        key = (item.name, item.window)
        if key not in seen or (seen[key].missing and not item.missing):
            seen[key] = item
    return iter(seen.values())
