"""How often the session class of an imported trace is right, on workloads that the thresholds were not fitted on.

Every labelled recording is imported by the product. Each workload in turn is left out with all its variants; thresholds
are fitted on the others, and the recordings left out are judged with them. Confidence is cross-calibrated: that of a
verdict comes from the verdicts on other workloads. `python -m benchmarks.diagnosis.classify [--fit]` prints every
verdict and the confusion matrix; --fit prints the thresholds and bins fitted on all, as calibration.py holds them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.bottleneck import calibration
from aaco.analytics.bottleneck.calibration import ReliabilityBin, Thresholds
from aaco.analytics.bottleneck.confidence import margin, probability
from aaco.analytics.diagnosis import UNKNOWN, diagnose
from benchmarks.claims import Claim
from benchmarks.diagnosis.recordings import OTHER_KERNELS, Recording, recordings
from benchmarks.intervals import exact_share

GRIDS = {"host_pct": range(20, 65, 5), "transfer_pct": range(25, 65, 5)}
PAIR = ("device_pct", range(40, 85, 5)), ("majority_pct", range(50, 85, 5))
PRIOR = Thresholds(device_pct=70.0, majority_pct=60.0, host_pct=30.0, transfer_pct=40.0)
MARGINS = (0.0, 10.0, 25.0)
WRONG = 2  # an error costs as much as two right answers give: abstaining is better
ECE_BINS = 5
MARKS = ("<!-- confusion matrix: begin -->", "<!-- confusion matrix: end -->")
SURE = 0.8


class Judged(Struct, frozen=True):
    """A recording with the verdict on it: the class, how clearly, and the probability that it is right."""

    recording: Recording
    predicted: str
    margin: float | None
    confidence: float | None = None

    @property
    def right(self) -> bool:
        """Whether the class is the label."""
        return self.predicted == self.recording.label


def claims(captures: Path) -> list[Claim]:
    """The figures for the bars."""
    timed, alone = list(recordings(captures)), list(recordings(captures, timed=False))
    return [*_claims(trusted(timed), "latencies given"), *_claims(trusted(alone), "trace alone"),
            _blind(trusted(timed)), _as_planted(timed), _gains(trusted(timed)), _waits(timed)]


def _blind(found: Sequence[Recording]) -> Claim:
    """Of the recordings made after the rules, with thresholds and confidence from the others alone."""
    with thresholds(fit([one for one in found if not one.blind])):
        known, judged = ([judge(one) for one in found if one.blind == late] for late in (False, True))
    sure = [replace(one, confidence=probability(one.margin, bins(known))) for one in judged]
    right = sum(one.right for one in judged)
    low, high = exact_share(right, len(judged))
    return Claim("session class, recorded after the rules were final: top-1", ">= 90 %",
                 f"{right} of {len(judged)} = {100 * right / len(judged):.1f} % [{100 * low:.0f}, {100 * high:.0f}], "
                 f"mean confidence {np.mean([one.confidence or 0.0 for one in sure]):.2f}", right / len(judged) >= 0.9)


def _waits(found: Sequence[Recording]) -> Claim:
    """Of steps that wait and were timed with the same kernels and without the waits: the share that the budget gives to
    waiting against what taking the waits out saved, which no rule was fitted to."""
    pairs = [(one.readings["removable_wait_pct"].value or 0.0, 100 * one.saved_ratio) for one in found
             if one.label == "sync_bound" and one.saved_ratio is not None and one.name not in OTHER_KERNELS]
    off = np.array([share - saved for share, saved in pairs])
    return Claim("time given to waiting against what taking the waits out saved", "(no bar)",
                 f"{off.mean():+.1f} points over {len(off)} steps, from {off.min():+.1f} to {off.max():+.1f}", None)


def _as_planted(found: Sequence[Recording]) -> Claim:
    """With every label as it was planted, also those that their own relief does not bear out."""
    planted = [one for one in found if not one.why_untrusted or one.why_untrusted.startswith("its relief")]
    right = sum(judge(one).right for one in planted)
    low, high = exact_share(right, len(planted))
    return Claim("session class, labels as planted, doubtful ones too: top-1", "(no bar)",
                 f"{right} of {len(planted)} = {100 * right / len(planted):.1f} % [{100 * low:.0f}, {100 * high:.0f}]",
                 None)


def _gains(found: Sequence[Recording]) -> Claim:
    """Of steps whose class is right and that were timed without their bottleneck too: what the first recommendation
    promises at most, against what taking the bottleneck out saved. A wrong class recommends another relief."""
    relieved = [(one, diagnose(one.readings).recommendations) for one in found
                if one.saved_ratio is not None and judge(one).right]
    over = [first[0].gain_pct - 100 * (one.saved_ratio or 0) for one, first in relieved if first]
    return Claim("right class: most its first recommendation promises beyond relief", "<= 5 points",
                 f"{max(over):+.1f} points over {len(over)} of {len(relieved)} steps, median {np.median(over):+.1f}",
                 max(over) <= 5 and len(over) == len(relieved))


def _claims(recorded: Sequence[Recording], given: str) -> Iterator[Claim]:
    found = left_out(recorded)
    right, named = sum(one.right for one in found), sum(one.predicted != UNKNOWN for one in found)
    low, high = exact_share(right, len(found))
    yield Claim(f"session class, workload left out, {given}: top-1", ">= 90 %",
                f"{right} of {len(found)} = {100 * right / len(found):.1f} % [{100 * low:.0f}, {100 * high:.0f}]",
                right / len(found) >= 0.9)
    low, high = exact_share(right, named)
    yield Claim(f"session class, workload left out, {given}: decided", ">= 80 %",
                f"{named} of {len(found)}, {len(found) - named} abstained", named >= 0.8 * len(found))
    yield Claim(f"session class, workload left out, {given}: right where it names one", ">= 95 %",
                f"{right} of {named} [{100 * low:.0f}, {100 * high:.0f}] %", right >= 0.95 * named)
    wrong = sum(not one.right and (one.confidence or 0.0) >= SURE for one in found)
    yield Claim(f"session class, workload left out, {given}: wrong at confidence >= {SURE}", "<= 1", str(wrong),
                wrong <= 1)
    error = expected_error(found)
    yield Claim(f"session class, {given}: expected calibration error", "<= .06", f"{error:.3f}", error <= 0.06)


def trusted(found: Sequence[Recording]) -> list[Recording]:
    """The recordings whose labels are truth."""
    return [one for one in found if not one.why_untrusted]


def left_out(found: Sequence[Recording]) -> list[Judged]:
    """Each recording judged by what the recordings of other workloads taught."""
    judged = []
    for workload in dict.fromkeys(one.workload for one in found):
        others = [one for one in found if one.workload != workload]
        with thresholds(fit(others)):
            judged += [judge(one) for one in found if one.workload == workload]
    return [replace(one, confidence=probability(one.margin, bins([
        other for other in judged if other.recording.workload != one.recording.workload]))) for one in judged]


def judge(one: Recording) -> Judged:
    """The verdict of the product's rules with the thresholds in force."""
    found = diagnose(one.readings)
    return Judged(one, found.label, margin(found.bottleneck) if found.bottleneck else None)


def fit(found: Sequence[Recording]) -> Thresholds:
    """Thresholds by coordinates: those of highest score, and of several the ones nearest to PRIOR."""
    best = PRIOR
    for name, grid in GRIDS.items():
        best = _best([replace(best, **{name: float(value)}) for value in grid], found)
    (first, firsts), (second, seconds) = PAIR
    return _best([replace(best, **{first: float(one), second: float(two)})
                  for one, two in itertools.product(firsts, seconds)], found)


def _best(candidates: Sequence[Thresholds], found: Sequence[Recording]) -> Thresholds:
    scores = np.array([_score(candidate, found) for candidate in candidates])
    top = [candidates[index] for index in np.flatnonzero(scores == scores.max())]
    return min(top, key=lambda one: (float(np.abs(np.subtract(_values(one), _values(PRIOR))).sum()), _values(one)))


def _values(one: Thresholds) -> tuple[float, ...]:
    return one.device_pct, one.majority_pct, one.host_pct, one.transfer_pct


def _score(candidate: Thresholds, found: Sequence[Recording]) -> int:
    labels = [(_label(candidate, one), one.label) for one in found]
    return sum(1 if mine == label else 0 if mine == UNKNOWN else -WRONG for mine, label in labels)


@cache
def _label(candidate: Thresholds, one: Recording) -> str:
    with thresholds(candidate):
        return diagnose(one.readings).label


@contextmanager
def thresholds(fitted: Thresholds) -> Iterator[None]:
    """Judge with these thresholds in place of the product's."""
    before, calibration.FITTED = calibration.FITTED, fitted
    try:
        yield
    finally:
        calibration.FITTED = before


def bins(judged: Sequence[Judged]) -> tuple[ReliabilityBin, ...]:
    """How often verdicts were right, by their margin."""
    known = [one for one in judged if one.margin is not None]
    edges = [*MARGINS, float("inf")]
    parts = [[one for one in known if low <= (one.margin or 0) < high] for low, high in itertools.pairwise(edges)]
    return tuple(ReliabilityBin(low, len(part), sum(one.right for one in part))
                 for low, part in zip(MARGINS, parts, strict=True))


def expected_error(judged: Sequence[Judged]) -> float:
    """Mean distance between confidence and share of right verdicts over bins of as many verdicts each (ECE)."""
    known = sorted((one for one in judged if one.confidence is not None), key=lambda one: one.confidence or 0.0)
    parts = np.array_split(np.arange(len(known)), min(ECE_BINS, max(1, len(known))))
    return sum(_gap([known[index] for index in part]) for part in parts if len(part)) / max(1, len(known))


def _gap(part: Sequence[Judged]) -> float:
    """By how many verdicts the expected number of right ones is off."""
    return abs(sum(one.confidence or 0.0 for one in part) - sum(one.right for one in part))


def main() -> int:
    """Print every verdict, the confusion matrix, and with --fit the calibration."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnosis.classify", description=__doc__)
    parser.add_argument("--fit", action="store_true", help="print thresholds and bins fitted on all")
    parser.add_argument("--untimed", action="store_true", help="without the unprofiled latencies")
    parser.add_argument("--document", type=Path, help="write the confusion matrix into this page, between its marks")
    chosen = parser.parse_args()
    every = list(recordings(Path(os.environ.get("AACO_CAPTURES", "../shared/data")), not chosen.untimed))
    judged = left_out(trusted(every))
    for one in sorted(judged, key=lambda one: (one.right, one.recording.label, one.recording.name)):
        sure = "" if one.confidence is None else f"{one.confidence:.2f}"
        print(f"{'right' if one.right else 'WRONG':6} {one.recording.name:34} {one.recording.label:22} "
              f"{one.predicted:22} {sure}")
    for pair, count in sorted(Counter((one.recording.label, one.predicted) for one in judged).items()):
        print(f"{pair[0]:22} -> {pair[1]:22} {count:3}")
    for other in every:
        if other.why_untrusted:
            print(f"no truth {other.name:32} {judge(other).predicted:22} {other.why_untrusted}")
    if chosen.fit:
        print(fit(trusted(every)), bins(judged), sep="\n")
    if chosen.document:
        _write_matrix(judged, chosen.document)
    return 0


def _write_matrix(judged: Sequence[Judged], page: Path) -> None:
    """Replace what stands between the marks of the page by the matrix: rows are planted classes, columns verdicts."""
    counts = Counter((one.recording.label, one.predicted) for one in judged)
    labels, verdicts = (sorted({pair[side] for pair in counts}) for side in (0, 1))
    rows = [["planted", *verdicts], ["---"] * (len(verdicts) + 1),
            *([label, *(str(counts[label, verdict] or "") for verdict in verdicts)] for label in labels)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    before, _, rest = page.read_text().partition(MARKS[0])
    page.write_text(f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    sys.exit(main())
