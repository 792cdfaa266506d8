"""What a workload already does, as its capture shows it: what advice must not repeat, and what it cannot mend."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from aaco.analytics.bottleneck.work import Copied, DeviceWork
from aaco.analytics.roofline.devices.ceilings import Identity, identified
from aaco.analytics.streaming.calls import CallKind, call_kind
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.analytics.workload.growth import CONCATENATIONS, NO_GROWTH, Growth, grown, growth, operands
from aaco.analytics.workload.program import listed_json
from aaco.analytics.workload.read import facts_of
from aaco.analytics.workload.signs import CallTallies, KernelTallies, WorkloadSigns
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, COPIES, KERNELS, OPERATORS
from aaco.steps.findings.kernel_classes import ceilings_of
from aaco.steps.findings.kernel_operators import operators as operator_of_kernel
from aaco.tracelake import documents, layout, queries, store

_KERNELS = ("kernel_name", "dtypes", "dur_ns", "provider")
_CALLS = ("name", "domain", "capture", "process_id")
_OPERATORS = ("operator", "family", "shapes", "dtypes", "device_ns")
_IDENTITY = ("arch", "compute_units", "name", "vram_bytes")


@finding(after=("attribution", "device_work", "trace"), report="workload_facts", whole=True, on_host=True)
def workload_facts(session: Session, settings: Analysis) -> Results:
    """What the workload already does: framework, types, layout, graphs, waits, optimizer, copies."""
    if found := find(session):
        yield "workload_facts", found.document()


def find(session: Session) -> WorkloadFacts | None:
    """Return the facts of a session's workload; None where it holds neither kernels nor calls. Raise BadBundle."""
    if not any(store.holds(session, spec) for spec in (KERNELS, API_CALLS)):
        return None
    kernels, calls = KernelTallies(), CallTallies()
    for batch in queries.batches(session, KERNELS, _KERNELS):
        kernels.feed(batch)
    for batch in queries.batches(session, API_CALLS, _CALLS):
        calls.feed(batch)
    launched, from_graphs = _launched(session)
    ceilings = ceilings_of(session)
    return facts_of(WorkloadSigns(
        kernels=kernels.tallies(), calls=calls.calls, domains=calls.domains, formats=frozenset(_formats(session)),
        providers=kernels.providers, copies=_copies(session), launched=launched, from_graphs=from_graphs,
        stretches=calls.stretches(), growth=_growth(session), operators=_operators(session),
        architectures=tuple(_architectures(session)),
        on_device=queries.has_values(session, KERNELS, "device_id")
        or "dispatch" in queries.names(session, KERNELS, "timed"),
        rates=frozenset(ceilings.rates) if ceilings and ceilings.rates else None))


def _operators(session: Session) -> pa.Table | None:
    return store.read(session, OPERATORS, _OPERATORS) if store.holds(session, OPERATORS) else None


def _growth(session: Session) -> Growth:
    """Return how tensors grow by concatenation, in the order of the kernels that concatenate. Raise BadBundle."""
    if not store.holds(session, OPERATORS):
        return NO_GROWTH
    listed = store.read(session, OPERATORS, ("operator_id", "operator", "shapes")).to_pylist()
    sizes = grown({row["operator_id"]: shapes for row in listed if row["operator"] in CONCATENATIONS
                   and (shapes := operands(listed_json(row["shapes"])))})
    if not sizes:
        return NO_GROWTH
    called = operator_of_kernel(session)
    return growth([sizes[operator] for operator in called[np.isin(called, list(sizes))].tolist()])


def _formats(session: Session) -> Iterator[str]:
    yield from queries.names(session, KERNELS, "source")
    for capture in documents.read(session, layout.CAPTURES).get("captures", ()):
        yield str(capture.get("format", ""))


def _architectures(session: Session) -> Iterator[str]:
    """Yield the architecture of each device that names it, or has the name, the units and the memory of one board."""
    for capture in documents.read(session, layout.CAPTURES).get("captures", ()):
        for device in capture["devices"]:
            if arch := identified(Identity(*(device[name] for name in _IDENTITY))).arch:
                yield arch


def _copies(session: Session) -> tuple[Copied, ...] | None:
    work = documents.decoded(session, DeviceWork)
    return work.copies if work and queries.rows(session, COPIES) else None


def _launched(session: Session) -> tuple[int, int]:
    """Return how many kernels and copies have a known launch, and how many of them a graph launched."""
    functions = documents.read(session, layout.TRACE["launches"]).get("functions", ())
    graphs = [entry["work"] for entry in functions if call_kind(entry["name"]) == CallKind.GRAPH]
    return sum(entry["work"] for entry in functions), sum(graphs)
