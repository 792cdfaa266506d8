"""The steps of a serving engine in a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.bottleneck.ranks import Windows
from aaco.analytics.kernels.families import UNKNOWN, decode
from aaco.analytics.measure import measure
from aaco.analytics.phase_classes import phase_classes
from aaco.analytics.roofline.devices.ceilings import DRAM
from aaco.analytics.serving.annotations import read_step
from aaco.analytics.serving.launch_order import COLUMNS, LaunchOrder
from aaco.analytics.serving.repeated_steps import RepeatedStep, repeated_steps, why_no_engine
from aaco.analytics.serving.served_model import ServedModel
from aaco.analytics.serving.step_costs import ServedWorkload, with_work
from aaco.analytics.serving.step_layers import serving_kernels
from aaco.analytics.serving.steps import SHARED, ServingSteps, StepKernels
from aaco.analytics.serving.summary import BUDGET_COLUMNS, PhaseClass, step_budget, summary
from aaco.analytics.streaming.stream_ids import NONE, number_of
from aaco.analytics.timeline.windows import START_SKEW
from aaco.analytics.truth import trust
from aaco.analytics.workload.facts import NAME as WORKLOAD_FACTS
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.core.arrays import Ints
from aaco.core.config import Analysis
from aaco.core.distinct import coded
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables import (
    API_CALLS,
    KERNEL_GROUPS,
    KERNELS,
    OPERATORS,
    SERVING_KERNELS,
    SERVING_STEPS,
    replaced,
)
from aaco.steps.findings.kernel_classes import ceilings_of
from aaco.tracelake import documents, layout, queries, store

# The value of a column of kernel_groups for kernels of which nothing says what limits them.
NOT_PLACED = {"limit": UNKNOWN, "budget_part": "kernel"}


@finding(reads=(layout.CAPTURES, API_CALLS),
         after=("attribution", "kernel_classes", WORKLOAD_FACTS, "windows", "trace_check"),
         writes=(SERVING_STEPS, SERVING_KERNELS, "serving"), report="serving")
def serving_steps(session: Session, settings: Analysis) -> Results:
    """The steps of a serving engine: phase, batch, token sums, the device work that each launched, and its layers."""
    if steps := find(session):
        table = with_work(steps.table(), steps.annotations, _workload(session, steps.most_engines))
        table = _without_waiting(session, table)
        yield SERVING_STEPS, table
        launched, names = _launched(steps)
        kernels, why = serving_kernels(launched, names, [decode(name).family for name in names])
        yield SERVING_KERNELS, kernels
        operators = store.read(session, OPERATORS) if store.holds(session, OPERATORS) else None
        spent = _Spent.summed(launched.step, launched.name, launched.end - launched.start, len(names))
        limits, parts = (_by_step(session, spent, names, by) for by in ("limit", "budget_part"))
        judged = table.filter(pc.is_null(table["left_out"])).select(["step", "phase", *BUDGET_COLUMNS])
        budgets = [(row["phase"], 1, step_budget(row, parts.get(row["step"], {}))) for row in judged.to_pylist()]
        classes = _classes(session, settings, budgets, SHARED if steps.is_device_shared else "")
        answer = summary(table, kernels, why, operators, _bandwidth(session), limits)
        yield "serving", encode(replace(answer, phases=classes))


def _classes(session: Session, settings: Analysis, budgets: Sequence[tuple[str | None, int, Mapping[str, float]]],
             why_none: str) -> tuple[PhaseClass, ...]:
    facts = documents.decoded(session, WorkloadFacts)
    return phase_classes(budgets, measure({}, None, settings), facts.values if facts else None,
                         trust.of(documents.read(session, layout.TRACE_CHECK)), why_none)


def _without_waiting(session: Session, table: pa.Table) -> pa.Table:
    """Return the steps; those that began before all ranks had started are left out of what is judged."""
    windows = documents.decoded(session, Windows)
    since = {number_of(window.capture): window.t_start_ns for window in windows.captures
             if any(span.name == START_SKEW for span in window.outside)} if windows else {}
    begins = [since.get(number_of(capture)) for capture in table["capture"].to_pylist()]
    waited = [begin is not None and start is not None and start < begin
              for begin, start in zip(begins, table["device_start_ns"].to_pylist(), strict=True)]
    left_out = pc.if_else(pa.array(waited, pa.bool_()), START_SKEW, table["left_out"].cast(pa.string()))
    return replaced(table, "left_out", left_out.cast(SERVING_STEPS.columns["left_out"][0]))


def _workload(session: Session, engines: int) -> ServedWorkload:
    sizes = [capture["world_size"] or 1 for capture in documents.read(session, layout.CAPTURES)["captures"]]
    return ServedWorkload(documents.decoded(session, ServedModel), max(sizes, default=1), engines)


def _launched(steps: ServingSteps) -> tuple[StepKernels, list[str]]:
    """Return the kernels of all steps, and the names of which they have the numbers; one without a name has the last.
    """
    kernels, names = steps.of_kernels, [*steps.kernel_names, ""]
    return replace(kernels, name=np.where(kernels.name == NONE, len(names) - 1, kernels.name)), names


class _Spent(Struct, frozen=True):
    """Columns of the time of steps by what their kernels are: step, number of what they are, and ns."""

    step: Ints
    number: Ints
    ns: Ints

    @classmethod
    def summed(cls, step: Ints, number: Ints, ns: Ints, count: int) -> _Spent:
        """Return the sums, in the order in which steps and numbers (below count) first appear."""
        pairs = step * count + number
        code, first = coded(pairs)
        total = np.zeros(len(first), np.int64)
        np.add.at(total, code, ns)
        return cls(*np.divmod(pairs[first], count), total)


def _by_step(session: Session, spent: _Spent, names: Sequence[str], by: str) -> dict[int, dict[str, int]]:
    """Return by step the ns of its kernels by a column of kernel_groups. spent: by number of the name."""
    groups = store.read(session, KERNEL_GROUPS).to_pylist() if store.holds(session, KERNEL_GROUPS) else []
    found = {group["kernel_name"]: group[by] for group in groups}
    limits = list(dict.fromkeys(found.get(name) or NOT_PLACED[by] for name in names))
    limit_of = np.array([limits.index(found.get(name) or NOT_PLACED[by]) for name in names], np.int64)
    by_limit = _Spent.summed(spent.step, limit_of[spent.number], spent.ns, len(limits))
    by_step: dict[int, dict[str, int]] = {}
    for step, limit, ns in zip(by_limit.step.tolist(), by_limit.number.tolist(), by_limit.ns.tolist(), strict=True):
        by_step.setdefault(step, {})[limits[limit]] = ns
    return by_step


def _bandwidth(session: Session) -> float | None:
    """Return the bytes/s of the device's memory by its data sheet; None if the device is not known."""
    ceilings = ceilings_of(session)
    return ceilings.bandwidths.get(DRAM) if ceilings else None


def find(session: Session) -> ServingSteps | None:
    """Return the steps of a session, by annotation, else by repetition; None without either. Raise BadBundle."""
    annotated = store.holds(session, API_CALLS) and any(map(read_step, queries.names(session, API_CALLS, "name")))
    try:
        steps = ServingSteps(queries.has_launches(session), () if annotated else by_repetition(session))
    except Absent:
        return None
    for piece in queries.slices(session, COLUMNS):
        kernels, copies, calls = (piece.tables[name] for name in COLUMNS)
        steps.feed(kernels, copies, calls, piece.end_ns)
    steps.rest()
    return steps


def by_repetition(session: Session) -> list[RepeatedStep]:
    """Return the steps that the launches of a session repeat. Raise Absent with the reason, BadBundle."""
    if not store.holds(session, API_CALLS) or not store.holds(session, KERNELS):
        raise Absent("the trace has no calls of the host: what launched its kernels is not known")
    if why := why_no_engine(queries.names(session, KERNELS, "kernel_name")):
        raise Absent(why)
    order = LaunchOrder(queries.has_launches(session))
    for piece in queries.slices(session, COLUMNS):
        order.feed(piece.tables["kernels"], piece.tables["api_calls"], piece.end_ns)
    order.rest()
    return repeated_steps(list(order.threads()), order.names)
