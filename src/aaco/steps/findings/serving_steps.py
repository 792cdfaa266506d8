"""The steps of a serving engine in a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

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
from aaco.analytics.serving.steps import ServingSteps, StepKernels
from aaco.analytics.serving.summary import step_budget, summary
from aaco.analytics.streaming.stream_ids import NONE, NameIds
from aaco.analytics.workload.facts import NAME as WORKLOAD_FACTS
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.core.config import Analysis
from aaco.core.distinct import coded
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, KERNEL_GROUPS, KERNELS, OPERATORS, SERVING_KERNELS, SERVING_STEPS
from aaco.steps.findings.kernel_classes import ceilings_of
from aaco.tracelake import documents, layout, queries, store

# The value of a column of kernel_groups for kernels of which nothing says what limits them.
NOT_PLACED = {"limit": UNKNOWN, "budget_part": "kernel"}


@finding(reads=(layout.CAPTURES, API_CALLS), after=("attribution", "kernel_classes", WORKLOAD_FACTS),
         writes=(SERVING_STEPS, SERVING_KERNELS, "serving"), report="serving")
def serving_steps(session: Session, settings: Analysis) -> Results:
    """The steps of a serving engine: phase, batch, token sums, the device work that each launched, and its layers."""
    if steps := find(session):
        table = with_work(steps.table(), steps.annotations, _workload(session))
        yield SERVING_STEPS, table
        launched, names = _launched(steps)
        kernels, why = serving_kernels(launched, names, [decode(name).family for name in names])
        yield SERVING_KERNELS, kernels
        operators = store.read(session, OPERATORS) if store.holds(session, OPERATORS) else None
        limits = _by_step(session, launched, names, "limit")
        parts = _by_step(session, launched, names, "budget_part")
        budgets = ((row["phase"], 1, step_budget(row, parts.get(row["step"], {}))) for row in table.to_pylist())
        facts = documents.read(session, layout.finding(WORKLOAD_FACTS))
        classes = phase_classes(budgets, measure({}, None, settings), WorkloadFacts.of(facts).values if facts else None)
        answer = summary(table, kernels, why, operators, _bandwidth(session), limits)
        yield "serving", encode(replace(answer, phases=classes))


def _workload(session: Session) -> ServedWorkload:
    document = documents.read(session, layout.SERVED_MODEL)
    sizes = [capture["world_size"] or 1 for capture in documents.read(session, layout.CAPTURES)["captures"]]
    return ServedWorkload(ServedModel.of(document) if document else None, max(sizes, default=1))


def _launched(steps: ServingSteps) -> tuple[StepKernels, list[str]]:
    """Return the kernels of all steps, and the names of which they have the numbers; one without a name has the last.
    """
    kernels, names = steps.of_kernels(), [*steps.kernel_names, ""]
    return replace(kernels, name=np.where(kernels.name == NONE, len(names) - 1, kernels.name)), names


def _by_step(session: Session, kernels: StepKernels, names: Sequence[str], by: str) -> dict[int, dict[str, int]]:
    """Return by step the ns of its kernels by a column of kernel_groups."""
    groups = store.read(session, KERNEL_GROUPS).to_pylist() if store.holds(session, KERNEL_GROUPS) else []
    limit_of = {group["kernel_name"]: group[by] for group in groups}
    limits = NameIds()
    limit = limits.numbers(pa.array([limit_of.get(name) or NOT_PLACED[by] for name in names]))[kernels.name]
    pair, first = coded(kernels.step, limit)
    spent = np.zeros(len(first), np.int64)
    np.add.at(spent, pair, kernels.end - kernels.start)
    by_step: dict[int, dict[str, int]] = {}
    for step, number, ns in zip(kernels.step[first].tolist(), limit[first].tolist(), spent.tolist(), strict=True):
        by_step.setdefault(step, {})[limits.known[number]] = ns
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
