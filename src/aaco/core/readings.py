"""Numbers that know their unit and origin, claims made from them, and the reason where there is no number."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from msgspec import Struct, field

P = ParamSpec("P")
Answer = TypeVar("Answer")


class Absent(Exception):
    """Raised by a metric that cannot be computed; the message is the reason shown to the reader."""


def known(ask: Callable[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer | None:
    """Return the answer, or None where it is absent."""
    return or_why(lambda: ask(*args, **kwargs))[0]


def or_why(ask: Callable[[], Answer]) -> tuple[Answer | None, str]:
    """Return the answer, or None and the reason why it is absent; the reason is empty where there is an answer."""
    try:
        return ask(), ""
    except Absent as reason:
        return None, str(reason)


class Estimate(Struct, frozen=True):
    """A value with the ends of its confidence interval, in the metric's unit; and which of several ways gave it."""

    value: float
    low: float | None = None
    high: float | None = None
    method: str = ""


class Reading(Struct, frozen=True):
    """A metric's value, or the reason there is none. Absent is never zero."""

    metric: str
    unit: str
    value: float | None
    why_absent: str = ""
    low: float | None = None
    high: float | None = None
    band: str = ""
    source: str = ""
    caveat: str = ""  # what is to be known about the value: it rests on something uncertain
    method: str = ""  # how it was measured, where there are several ways

    def __float__(self) -> float:
        """Return the value. Raise Absent with the reason if there is none."""
        if self.value is None:
            raise Absent(f"{self.metric}: {self.why_absent}")
        return self.value

    def above(self, threshold: float, because: str, weight: float = 1.0, essential: bool = False) -> Evidence:
        """Evidence that the value is at least `threshold`."""
        return Evidence(self, ">=", threshold, because, weight, essential)

    def below(self, threshold: float, because: str, weight: float = 1.0, essential: bool = False) -> Evidence:
        """Evidence that the value is at most `threshold`."""
        return Evidence(self, "<=", threshold, because, weight, essential)


class Evidence(Struct, frozen=True):
    """One comparison of a reading with a threshold. `holds` is None when the reading is absent."""

    reading: Reading
    direction: str
    threshold: float
    because: str
    weight: float = 1.0
    essential: bool = False

    @property
    def holds(self) -> bool | None:
        """True, False, or None for unknown."""
        if self.reading.value is None:
            return None
        if self.direction == ">=":
            return self.reading.value >= self.threshold
        return self.reading.value <= self.threshold


class Verdict(Struct, frozen=True):
    """A label with everything for it, against it and unknown."""

    label: str
    evidence: tuple[Evidence, ...]
    advice: tuple[str, ...] = field(default=())

    def count(self, outcome: bool | None) -> int:
        """How many pieces of evidence hold (True), fail (False) or are unknown (None)."""
        return sum(1 for item in self.evidence if item.holds is outcome)

    @property
    def support(self) -> float:
        """Weighted share of the evidence that holds; unknown evidence counts against."""
        total = sum(item.weight for item in self.evidence)
        return sum(item.weight for item in self.evidence if item.holds) / total if total else 0.0

    @property
    def stands(self) -> bool:
        """Whether every essential piece holds and the support is a clear majority (at least 0.6)."""
        return all(item.holds for item in self.evidence if item.essential) and self.support >= 0.6

    @property
    def tally(self) -> str:
        """The evidence in words, e.g. "2 of 3 hold, 1 unknown"."""
        unknown = self.count(None)
        holds = "holds" if self.count(True) == 1 else "hold"
        return f"{self.count(True)} of {len(self.evidence)} {holds}" + (f", {unknown} unknown" if unknown else "")
