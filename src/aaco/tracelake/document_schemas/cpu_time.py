"""The documents of the time of CPUs: what a process got of them, and where its inferences spent it."""

from __future__ import annotations

from typing import Literal

from aaco.core.documents import Count, Document, Part, Real, document
from aaco.tracelake import layout


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
