"""One comparison over several metrics: what is called changed is called so among all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from aaco.core.readings import Absent
from aaco.governance.compare import Comparison, Side, compare
from aaco.governance.multiplicity import benjamini_hochberg
from aaco.governance.spread import Sessions
from aaco.tracelake.history.measures import LATENCY, MEASURES

Histories = Mapping[str, Sequence[Sessions]]


class Judged(Struct, frozen=True):
    """Every metric's comparison, those that were not called changed among all of them being inconclusive.

    metric: the one that represents all: the first, unless another one regressed and it did not. q_values: of the
    metrics with a change that could be tested. absent: metrics that were not compared, and why.
    """

    metric: str
    found: Mapping[str, Comparison]
    q_values: Mapping[str, float]
    absent: Mapping[str, str]

    @property
    def headline(self) -> Comparison:
        """The comparison that represents all."""
        return self.found[self.metric]


def judge(baseline: Side, current: Side, tolerance_pct: float, level: float, doubtful_too: bool = False,
          histories: Histories | None = None) -> Judged:
    """Compare the sides by every metric that both have. Raise UsageError as `compare`."""
    found: dict[str, Comparison] = {}
    absent: dict[str, str] = {}
    for metric in MEASURES:
        try:
            found[metric] = compare(baseline, current, tolerance_pct, level, doubtful_too,
                                    (histories or {}).get(metric, ()), metric)
        except Absent as reason:
            absent[metric] = str(reason)
    return among_all(found, absent)


def among_all(found: Mapping[str, Comparison], absent: Mapping[str, str], first: str = LATENCY) -> Judged:
    """Comparisons by several metrics as one answer. first: the metric that represents all, if none regressed more."""
    tested = {name: item.p_value for name, item in found.items() if item.p_value is not None}
    q_values = dict(zip(tested, benjamini_hochberg(list(tested.values())).tolist(), strict=True))
    kept = {name: _held(item, q_values.get(name), len(tested)) for name, item in found.items()}
    regressed = {name: item for name, item in kept.items() if item.status == "regressed"}
    others = sorted(regressed, key=lambda name: (q_values[name], -regressed[name].effect_pct))
    return Judged(first if first in regressed or not others else others[0], kept, q_values, absent)


def _held(comparison: Comparison, q_value: float | None, tests: int) -> Comparison:
    """Return the comparison, inconclusive where its change is not one among so many tests."""
    if comparison.status not in ("regressed", "improved") or q_value is None or q_value <= 1 - comparison.level:
        return comparison
    return replace(comparison, status="inconclusive",
                   why=f"{comparison.why}, but among {tests} metrics that is no surprise: q = {q_value:.2g}")
