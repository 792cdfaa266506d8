"""All facts of a workload, in the order in which a report shows them."""

from __future__ import annotations

from collections.abc import Callable

from aaco.analytics.workload import arithmetic, device_use, libraries, platform, program
from aaco.analytics.workload.facts import WorkloadFact, WorkloadFacts
from aaco.analytics.workload.signs import WorkloadSigns

FACTS: tuple[Callable[[WorkloadSigns], WorkloadFact], ...] = (
    platform.vendor, platform.runtime, platform.framework, program.phase, program.execution,
    device_use.device_graph, device_use.graph_capture, device_use.host_waits, arithmetic.product_type,
    arithmetic.product_kind, arithmetic.element_type, arithmetic.eight_bit_units, arithmetic.tf32_units,
    libraries.blas_library, libraries.aiter, arithmetic.layout, program.attention, program.norms, program.optimizer,
    program.data_loader, program.shapes, program.python_frames, device_use.copies)


def facts_of(signs: WorkloadSigns) -> WorkloadFacts:
    """Return every fact of a workload, known or absent with its reason."""
    return WorkloadFacts(tuple(fact(signs) for fact in FACTS))
