"""Which kernels of a session an optimiser may look at: the gates that each passes, and what refuses the rest.

A kernel is a candidate if its roofline says that time can be gained in it, the critical path goes through it, and the
product of the two (`priority.py`) and the class of what limits it pass the configured gates. What is not known passes
no gate. The ceiling is Amdahl's: the wall time if the kernel reached its roof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from aaco.analytics.kernels.priority import Priority, nearest_roof, priority
from aaco.core.config import Optimize

NO_WORK = "neither counters nor operators' shapes tell its work"
ABOVE = "it is above its roof, so counters, time or modelled work are wrong"
NOT_CLASSIFIED = "what limits it was not looked for: it is not among the kernels that took most time"


class KernelCandidate(Struct, frozen=True):
    """A kernel of one critical path. path_ns: its time on it; path_share: of the path's window. headroom: the share of
    its time that could be gained, by its counters or by its operators' shapes. label: the class of what limits it.

    priority: headroom x path_share. speedup_at_most: of the wall time. refused: by gate the reason; a kernel without
    one is worth the effort. None is not known.
    """

    kernel_name: str
    path: int
    calls: int
    path_ns: int
    path_share: float
    headroom: float | None
    headroom_by: str | None
    label: str | None
    priority: float | None
    speedup_at_most: float | None
    refused: Mapping[str, str]


def candidates(on_paths: Iterable[Mapping[str, Any]], classified: Iterable[Mapping[str, Any]],
               not_placed: Mapping[str, str], gates: Optimize) -> list[KernelCandidate]:
    """Return the kernels, those worth the effort first, then by priority and by share of the path.

    on_paths: rows of critical_kernels. classified: kernels of kernel_classes.json. not_placed: why counters place a
    kernel under no roof, by its name.
    """
    classes = {facts["kernel_name"]: facts for facts in classified}
    judged = [_judge(row, classes.get(row["kernel_name"]), not_placed.get(row["kernel_name"], NO_WORK), gates)
              for row in on_paths]
    return sorted(judged, key=lambda kernel: (bool(kernel.refused), -(kernel.priority or 0.0), -kernel.path_share,
                                              kernel.path, kernel.kernel_name))


def _judge(row: Mapping[str, Any], facts: Mapping[str, Any] | None, no_place: str, gates: Optimize) -> KernelCandidate:
    headroom, source = _headroom(row, facts or {}, no_place)
    gain = Priority(0.0, row["fraction"]) if headroom is None else priority(headroom, row["fraction"])
    refused = gain.refusals(gates)
    if headroom is None:  # of the unknown neither the headroom nor the product is below anything
        refused = {"headroom": source} | {gate: why for gate, why in refused.items() if gate == "path_share"}
    label = facts["class"] if facts else None
    if label not in gates.classes:
        refused["class"] = NOT_CLASSIFIED if label is None else f"{label} is none of {', '.join(gates.classes)}"
    return KernelCandidate(row["kernel_name"], row["path"], row["calls"], row["path_ns"], row["fraction"], headroom,
                     None if headroom is None else source, label, None if headroom is None else gain.score,
                     None if headroom is None else gain.ceiling, refused)


def _headroom(row: Mapping[str, Any], facts: Mapping[str, Any], no_place: str) -> tuple[float | None, str]:
    """Return the share that could be gained, and what says so; or None, and why."""
    if row["headroom"] is not None:
        return row["headroom"], "counters"
    nearest = nearest_roof(facts) if facts.get("by") == "shapes" else None
    if nearest is None:
        return None, no_place
    return (1 - nearest[1], "shapes") if nearest[1] <= 1 else (None, ABOVE)
