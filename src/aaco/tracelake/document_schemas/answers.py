"""The documents of answers: the readings, latencies and time of CPUs, what limits kernels, the diagnosis."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from aaco.core.documents import Count, Document, FindingDocument, Part, Real, document
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.trace_check import Trusted

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StoredReading(Part):
    """A metric's reading as it was sealed."""

    value: Real | None
    unit: str | None = None
    ci_low: Real | None
    ci_high: Real | None
    why_absent: str | None
    caveat: str | None = None
    method: str | None = None
    band: str | None
    bands: list[str] | None = None
    better: str | None = None
    formula: str | None = None
    source: str | None = None
    inputs: list[str] | None = None


@document(layout.DERIVED_METRICS)
class DerivedMetrics(Document):
    """derived_metrics.json: readings by the names of their metrics, and the version."""

    __pydantic_extra__: dict[str, StoredReading]


class Estimated(Part):
    """A statistic of latencies with its interval, or why it is absent."""

    value: Real | None
    ci_low: Real | None = None
    ci_high: Real | None = None
    why_absent: str | None = None


class PhaseLatencies(Part):
    """The latencies of one phase, in ms."""

    iterations: Count
    throughput_per_s: Real | None
    mean_ms: Estimated
    std_ms: Estimated
    p50_ms: Estimated
    p90_ms: Estimated
    p95_ms: Estimated
    p99_ms: Estimated
    min_ms: Estimated
    max_ms: Estimated
    iqr_ms: Estimated
    mad_ms: Estimated


@document(layout.SUMMARY)
class InferenceSummary(Document):
    """inference_summary.json: a phase without iterations is left out."""

    unit: Literal["ms"]
    batch: Count | None
    warmup: PhaseLatencies | None = None
    measurement: PhaseLatencies | None = None
    measurement_with_noise: PhaseLatencies | None = None


class CpuTimes(Part):
    """What a measured process's threads got of the CPUs while it measured, ns. threads: what each but the main one ran,
    the most first. cpus: that it may use. others_busy_ns: what other processes ran on those.
    """

    span_ns: Count
    main_ran_ns: Count
    main_waited_ns: Count
    threads: list[Count]
    pool_waited_ns: Count
    cpus: Count
    others_busy_ns: Count
    stolen_ns: Count
    throttled_ns: Count | None = None


class BudgetNode(Part):
    """An executed node of a run on CPUs: its work in an inference, its median time in the profiled one, and the least
    time that the machine's roofs allow, ns.
    """

    name: str
    op_type: str
    side: Literal["compute", "memory", "unplaced"]
    work_ns: Real
    profiled_ns: Real
    ideal_ns: Real | None


@document(layout.finding("cpu_budget"))
class CpuTimeBudget(Document):
    """cpu_budget.json: where the clean inferences of a run on CPUs spent their wall time; the parts sum to it."""

    wall_ns: Count
    inferences: Count
    nodes: Count
    parts_ns: dict[Literal["compute", "memory", "unplaced", "overhead", "threads", "other_load", "stolen", "quota",
                           "unexplained"], Count]
    told_by: str
    largest: list[BudgetNode]


class Signal(Part):
    """What decided the class of a kernel, or was looked at in vain."""

    signal: str
    value: Real | None
    threshold: int | Real | None = None
    direction: str | None = None
    holds: bool | None
    because: str


class KernelFacts(Part):
    """What is known of a kernel name; null where it was not recorded. Medians over its executions.

    compute_share, memory_share (DRAM and caches, the largest), lds_share: of the theoretical ceilings. lanes_ratio:
    active lanes of vector instructions. conflict_ratio: of cycles with indexed local memory. scalar_ratio: scalar
    instructions per vector instruction. occupancy_ratio: waves, of those that fit, as measured, estimated or allowed.
    memory_wait_share: waits for memory, of those for memory and for the kernel's own instructions. by: counters,
    shapes, or name. rate: the unit and type of the compute roof. ridge_ratio: the least time of its
    arithmetic over that of its bytes, by shapes. tile_side: the shorter side of a product's tile by its name, 1 of a
    product with a vector. communicates: it moves data between devices.
    """

    kernel_name: str
    family: str | None
    calls: Count
    total_ns: Count
    median_ns: Real
    short_ns: Real
    compute_share: Real | None = None
    memory_share: Real | None = None
    lds_share: Real | None = None
    lanes_ratio: Real | None = None
    conflict_ratio: Real | None = None
    scalar_ratio: Real | None = None
    occupancy_ratio: Real | None = None
    memory_wait_share: Real | None = None
    rate: str | None = None
    ridge_ratio: Real | None = None
    tile_side: Count | None = None
    communicates: bool = False
    by: str = "name"


class ClassifiedKernel(KernelFacts):
    """A kernel name with its class and the evidence that decided; of an unclear one, what was looked at. part: of the
    time budget, that the kernel's time counts in. skew_ns: of total_ns, as in the table kernel_groups.
    """

    model_config = ConfigDict(populate_by_name=True)

    label: str = Field(validation_alias="class", serialization_alias="class")
    evidence: list[Signal]
    part: str | None = None
    skew_ns: Count | None = None


@document(layout.finding("kernel_classes"))
class KernelClasses(FindingDocument):
    """kernel_classes.json. kernel_ns: of all kernels, also of those that are not listed; not in the first versions."""

    kernel_ns: Count | None = None
    kernels: list[ClassifiedKernel]


class Stack(Part):
    """A kernel under what launched it, outermost first: its family, its time in ns, and how many pieces it is of."""

    path: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=200)]
    family: str
    ns: Count
    pieces: Count


@document(layout.finding("stacks"))
class Stacks(FindingDocument):
    """stacks.json."""

    stacks: Annotated[list[Stack], Field(min_length=1)]


class Fusible(Part):
    """Kernels that could be one; equal ones share a row."""

    pattern: str
    op_types: list[str]
    times: Count
    saved_bytes: Count
    own_ns: int | Real | None
    saved_ns_at_most: Real | None
    saved_share_at_most: Real | None
    examples: list[list[str]] | None = None


@document(layout.finding("fusion"))
class Fusion(Document):
    """fusion.json. basis: what the bandwidth is; null if times come from the kernels only."""

    bandwidth_bytes_per_s: Amount | None = None
    basis: str
    opportunities: list[Fusible]


class WeighedSignal(Part):
    """A reading compared with a threshold. holds: null where there is no reading, for the reason in why_absent."""

    signal: str | None = None
    value: Real | None = None
    unit: str | None = None
    why_absent: str | None = None
    caveat: str | None = None
    method: str | None = None
    threshold: int | Real | None = None
    direction: str | None = None
    weight: int | Real | None = None
    essential: bool | None = None
    holds: bool | None = None
    because: str | None = None
    source: str | None = None


class JudgedClass(Part):
    """A class or a condition with its evidence. support: the weight of what holds, of all that is known."""

    label: str
    stands: bool
    support: str
    evidence: list[WeighedSignal]
    advice: list[str]


class Confirmation(Part):
    """The metric that shows whether an action worked, and where it goes then."""

    metric: str
    direction: str


class ExpectedGain(Part):
    """How many times faster a step becomes, with the ends of a 90 % interval, by recorded changes of this kind.

    own: whether all of these are of this very kind; else of several. samples: times as many in a step as before; then
    the factor is per sample.
    """

    factor: Real
    low: Real
    high: Real
    pairs: int
    workloads: int
    own: bool
    samples: Real = 1.0
    here: bool = Field(default=False, description="whether it rests on trials of this advice on this machine alone")
    chance: Real | None = Field(default=None, description="the share of these changes that gain anything here")


class Recommended(Part):
    """An action; where a time budget says so, what it gains. A rule gives only its title.

    share_pct: of the time that it acts on; evidence says it in words. gain_pct: what it may remove of the time: as
    recorded changes make likely, else at most. mechanism: the kind of change. accuracy, memory: what it costs there.
    speedup_at_most: the step's time over floor_ms, what must stay of it; ceiling_of says of which step. Of a run on
    CPUs it is of the share. tried: how it fared where `aaco try` tried it.
    """

    model_config = ConfigDict(populate_by_name=True)

    action: str
    title: str
    share_pct: Real | None = None
    feasible_ratio: Real | None = None
    why_feasible: str | None = None
    gain_pct: Real | None
    speedup_at_most: Real | None = None
    effort: str | None = None
    evidence: str | None = None
    accuracy: str | None = None
    memory: str | None = None
    mechanism: str | None = None
    attempt: str | None = Field(default=None, validation_alias="try", serialization_alias="try")
    confirm: Confirmation | None = None
    targets: list[str] | None = None
    ceiling_of: str | None = None
    floor_ms: Real | None = None
    why_no_ceiling: str | None = None
    expected: ExpectedGain | None = None
    tried: str | None = None


class Together(Part):
    """The first actions done together: how many times faster a step can become at most, and what must stay of it."""

    actions: list[str]
    ceiling: Real
    floor_ms: Real


class NotOffered(Part):
    """An action that would gain something by the readings, and the fact of the workload that speaks against it."""

    action: str
    title: str
    gain_pct: Real
    because: str


@document(layout.BOTTLENECK)
class Bottleneck(Document):
    """bottleneck.json: for other programs; a report recomputes it from the readings. trust: of an untrusted trace."""

    bottleneck_class: str
    confidence: Annotated[float, Field(ge=0, le=1)] | None
    confidence_why_absent: str | None = None
    support: str | None = None
    top_evidence: list[WeighedSignal]
    secondary: list[JudgedClass] | None = None
    conditions: list[JudgedClass] | None = None
    optimization_priority: list[Recommended] | None = None
    not_offered: list[NotOffered] | None = None
    together: Together | None = None
    abstained_because: str | None = None
    trust: Trusted | None = None


class CompiledInstruction(Part):
    """An instruction of a compiled program, and the nodes of the model that it computes."""

    name: str
    operator: str | None
    origin: str
    nodes: list[str]


@document(layout.MIGRAPHX_PARTITION)
class CompiledPartition(Document):
    """migraphx_partition.json: what MIGraphX made of a model. fates: the model's nodes by what became of them."""

    provider: str | None
    instructions: list[CompiledInstruction]
    origins: dict[str, Count]
    nodes: Count
    fates: dict[str, Count]
