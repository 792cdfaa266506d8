"""Sum the operators table by operator, module, kernel family or partition, with the time of no operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa
from msgspec import Struct

from aaco.core import documents
from aaco.tracelake import layout

By = Literal["operator", "module", "family", "partition", "phase"]
NO_MODULE = "(no module)"
NO_FAMILY = "(no family)"
NO_PHASE = "(no phase)"
NO_PARTITION = "(no partition)"
# A module among others of its class: BertLayer_3, layers.3, layer3. Folded, all of them are one.
_NUMBER = "0123456789._"


class RollupPart(Struct):
    """The sums of one name; for a module also those of the modules inside.

    calls and host_ns are None if no row has them.
    """

    name: str
    calls: int | None = None
    kernels: int = 0
    device_ns: int = 0
    inside_ns: int = 0
    host_ns: int | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of the operators table as this part's own."""
        self.kernels += row["kernels"]
        self.device_ns += row["device_ns"]
        if row["calls"] is not None:
            self.calls = (self.calls or 0) + row["calls"]
        if row["host_ns"] is not None:
            self.host_ns = (self.host_ns or 0) + row["host_ns"]

    @property
    def total_ns(self) -> int:
        """Its own device time and that of the modules inside."""
        return self.device_ns + self.inside_ns


class UnattributedKernels(Struct, frozen=True):
    """Kernels of no operator, and why."""

    why: str
    kernels: int
    device_ns: int


class Rollup(Struct, frozen=True):
    """Parts, the longest on the device first. In a roll-up by operator they and the loose kernels sum to total_ns."""

    by: By
    kernels: int
    total_ns: int
    parts: tuple[RollupPart, ...]
    loose: tuple[UnattributedKernels, ...]

    @property
    def attributed_ns(self) -> int:
        """The time of kernels that have an operator."""
        return self.total_ns - sum(kernels.device_ns for kernels in self.loose)


def rollup(operators: pa.Table, by: By, folded: bool = True) -> Rollup:
    """Return the sums of the operators table's rows.

    by: "module" sums each module's own time, and separately that of the modules inside. folded: modules that differ
    only in their number are one. Rows without an operator are loose, except by module if they have one.
    """
    parts: dict[str, RollupPart] = {}
    loose: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    kernels = total = 0
    for row in operators.select(_COLUMNS).to_pylist():
        kernels, total = kernels + row["kernels"], total + row["device_ns"]
        if row["operator"] is None and not (by == "module" and row["module"]):
            for place, amount in enumerate((row["kernels"], row["device_ns"])):
                loose[row["why_unattributed"] or ""][place] += amount
            continue
        name = _NAMES[by](row, folded)
        _part(parts, name).add(row)
        for outer in _around(name) if by == "module" else ():
            _part(parts, outer).inside_ns += row["device_ns"]
    ordered = sorted(parts.values(), key=lambda part: (-part.total_ns, -(part.host_ns or 0), part.name))
    reasons = sorted((UnattributedKernels(why, *amounts) for why, amounts in loose.items()),
                     key=lambda group: -group.device_ns)
    return Rollup(by, kernels, total, tuple(ordered), tuple(reasons))


def fold(path: str) -> str:
    """Return a path of modules without their numbers: Model_0/Layer_3/Linear_7 -> Model/Layer/Linear."""
    return "/".join(part.rstrip(_NUMBER) or part for part in path.split("/"))


def _part(parts: dict[str, RollupPart], name: str) -> RollupPart:
    return parts.setdefault(name, RollupPart(name))


def _around(path: str) -> Iterator[str]:
    """Yield the modules around a module, innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _module(row: Mapping[str, Any], folded: bool) -> str:
    path = row["module"] or NO_MODULE
    return fold(path) if folded else path


def _partition(row: Mapping[str, Any], _: bool) -> str:
    if row["partition"] is None:
        return NO_PARTITION if row["provider"] is None else row["provider"]
    return f"{row['partition']} {row['provider'] or ''}".strip()


_NAMES: Mapping[By, Callable[[Mapping[str, Any], bool], str]] = {
    "operator": lambda row, _: row["operator"], "module": _module,
    "family": lambda row, _: row["family"] or NO_FAMILY, "partition": _partition,
    "phase": lambda row, _: row["phase"] or NO_PHASE}
_COLUMNS = ["operator", "module", "family", "phase", "provider", "partition", "calls", "kernels", "device_ns",
            "host_ns", "why_unattributed"]


@documents.document(layout.finding("attribution"), version=1)
class OperatorSummary(Struct, frozen=True):
    """What a report shows of the operators: the longest of each roll-up, and all that is loose."""

    kernels: int
    total_ns: int
    attributed_ns: int
    unattributed: tuple[UnattributedKernels, ...]
    operators: tuple[RollupPart, ...]
    modules: tuple[RollupPart, ...]
    phases: tuple[RollupPart, ...] = ()


def summary(operators: pa.Table, most: int) -> OperatorSummary:
    """Return the `most` longest of each roll-up."""
    by_operator, by_module = rollup(operators, "operator"), rollup(operators, "module")
    return OperatorSummary(by_operator.kernels, by_operator.total_ns, by_operator.attributed_ns, by_operator.loose,
                           by_operator.parts[:most], by_module.parts[:most],
                           tuple(part for part in rollup(operators, "phase").parts if part.name != NO_PHASE))
