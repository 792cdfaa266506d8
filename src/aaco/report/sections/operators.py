"""A framework's operators as text: where the device's time went, and what work was done in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aaco.analytics.costs.operator_work import OperatorGroup, summed
from aaco.report import format
from aaco.report.names import shorten
from aaco.report.rows import Row, readings

if TYPE_CHECKING:  # it imports most of analytics, which `aaco ops` does without
    from aaco.analytics.explanation import Explanation

WIDTH = 80
NAME = 38
TOP = 6
NOBODY = {"call": "no operator", "operator": "no operator", "module": "no module", "family": "no family",
          "annotation": "no annotation", "partition": "no partition", "phase": "no phase"}


def rows(explanation: Explanation) -> list[Row]:
    """The operators that took most of the device's time, and what the modelled work amounts to; empty without any."""
    if "operators" not in explanation.tables:
        return []
    groups = [group for group in summed(explanation.tables["operators"], "operator") if group.device_ns]
    return [*readings(explanation, (("Work known", "modelled_time_pct"), ("Arithmetic", "operator_flops_per_s"),
                                    ("Traffic", "operator_bytes_per_s"), ("Intensity", "operator_intensity"))),
            *(Row(format.name(_name(group, "operator"), 60), _said(group)) for group in groups[:TOP])]


def lines(groups: list[OperatorGroup], by: str, top: int) -> Iterator[str]:
    """A table of the groups for a terminal; below it those with unknown work, and why."""
    yield f"{by:<{NAME}}{'share':>7}{'time':>10}{'calls':>7}{'TFLOP/s':>9}{'TB/s':>9}"
    labels = [_label(group, by) for group in groups[:top]]
    whys = {group.why if not group.known_ns else "" for group in groups[:top]}
    why_none = whys.pop() or "" if len(whys) == 1 and top > 1 and len(groups) > 1 else ""
    names = shorten(labels, NAME - 1, format.cut)
    for group, label in zip(groups, labels, strict=False):
        achieved = [group.flops_per_s, group.bytes_per_s]
        cells = ["" if value is None else format.number(value / 1e12) for value in achieved]
        yield (format.pad(names[label], NAME)
               + f"{format.percent(group.share):>7}{format.duration(group.device_ns):>10}{group.calls or '':>7}"
               + "".join(f"{cell:>9}" for cell in cells))
        yield from _below(group, by, label, why_none)
    if why_none:
        yield from format.hung("", f"work not known of any: {why_none}", WIDTH)


def _below(group: OperatorGroup, by: str, label: str, why_none: str) -> Iterator[str]:
    """What limits its kernels, the shapes of a call, and why its work is not known. why_none: printed below all."""
    limit = f"limit: {format.kernel_limit(group.limit)}" if group.limit else ""
    shapes = call_shapes(group.names[1]) if by == "call" and label == _name(group, by) else ""
    if limit or shapes:
        yield f"  {format.cut('; '.join(filter(None, (limit, shapes))), WIDTH - 2)}"
    if not group.known_ns and group.why and not why_none:
        yield from format.hung("  ", f"work not known: {group.why}", WIDTH)
    elif 0 < group.known_ns < group.device_ns:
        yield f"  work known for {format.percent(group.known_ns / group.device_ns)} of the time"


def _label(group: OperatorGroup, by: str) -> str:
    """Return the group's name, of a call with its shapes if they fit: calls of one operator differ in them."""
    label = f"{_name(group, by)} {call_shapes(group.names[1])}".rstrip() if by == "call" else ""
    return label if label and format.cells(label) < NAME else _name(group, by)


def _said(group: OperatorGroup) -> str:
    limit = f"; limit: {format.kernel_limit(group.limit)}" if group.limit else ""
    if group.flops_per_s is None or group.bytes_per_s is None:
        return f"{format.percent(group.share)}{limit}; work not known: {group.why}"
    part = "" if group.known_ns == group.device_ns else (
        f" (known for {format.percent(group.known_ns / group.device_ns)} of it)")
    return (f"{format.percent(group.share)}, {format.quantity(group.flops_per_s, 'FLOP/s')}, "
            f"{format.quantity(group.bytes_per_s, 'B/s')}{part}{limit}")


def _name(group: OperatorGroup, by: str) -> str:
    known = [str(name) for name in group.names if name is not None]
    return " ".join(known) if by == "partition" and known else str(group.names[0] or NOBODY[by])


def call_shapes(text: str | None) -> str:
    """Return the shapes of a call's tensors; an empty list is a number or an argument not given."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return ""
    return " ".join(json.dumps(shape, separators=(",", ":")) for shape in found if shape) if isinstance(
        found, list) else ""
