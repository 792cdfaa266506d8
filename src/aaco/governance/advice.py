"""What to do next after a comparison: the next measurement, or where to look."""

from __future__ import annotations

import math
import shlex

from aaco.core.plan import HOST
from aaco.governance.change import Part
from aaco.governance.compare import LEAST, PLURAL, Comparison, Side
from aaco.governance.verdict_document import DETECTABLE

PATIENCE = 50  # beyond this many units a side, less noise is cheaper than more measurements
ADVICE = {
    "count": "more kernels per inference: check fusion, graph partitioning and which provider got the nodes",
    "duration": "the kernels take longer each: check their shapes, data types, clocks and who shares the machine",
    "gaps": "more time between kernels: check the host's launch path, synchronisation and copies",
    "overlap": "fewer kernels side by side: check streams and their dependencies",
}


def recommend(comparison: Comparison, cause: Part | None, baseline: Side, current: Side) -> str:
    """Return the next step in one sentence, with the command where there is one."""
    if comparison.veto:
        return _how_to_allow(comparison, baseline, current)
    if comparison.status == "inconclusive":
        return _how_to_resolve(comparison)
    if comparison.status == "equivalent":
        return "Nothing to do: any change is within the tolerance."
    if comparison.status == "improved":
        return "Keep it, and judge later sessions against this one: aaco baseline save NAME SESSION"
    if cause is None:
        return "Read both sessions' reports side by side: the profiled pass does not say where the time went."
    return f"{phrase(cause).capitalize()}; {ADVICE[cause.kind]}."


def _how_to_allow(comparison: Comparison, baseline: Side, current: Side) -> str:
    """Return what makes a verdict possible where something keeps the numbers from being one."""
    again = _again(current)
    if comparison.veto == "same session":
        return f"Measure the other side: {again}"
    if comparison.veto == "contaminated":
        return (f"Stop the other load (top shows it) and measure both sides again: {again}; --noise repeat counts only "
                "clean iterations, --force judges all the same")
    if comparison.veto == "measured badly":
        return (f"Measure both sides again with more warm-up and iterations, on a quieter machine: {again} --noise "
                "repeat; aaco report SESSION shows what is poor, --force judges all the same")
    if comparison.unit == "session":
        return "Add sessions to the side with fewer: aaco baseline save NAME SESSION ..."
    short = [side for side in (baseline, current) if side.processes < LEAST]
    saved = f", aaco baseline save {baseline.label} (adds it)" if baseline in short else ""
    return f"Measure {LEAST} processes a side: {again}{saved}"


def _again(side: Side) -> str:
    """Return the command that measures a side again, as far as the side knows it."""
    first = side.replicates[0]
    if first.backend == HOST:
        return f"aaco profile --runs {LEAST} --telemetry -- COMMAND"
    return f"aaco run {shlex.quote(first.model or 'MODEL')} --processes {LEAST} --telemetry"


def _how_to_resolve(comparison: Comparison) -> str:
    """Return the next measurement. With S units a side the MDE is DETECTABLE x sigma x sqrt(2 / S), solved for S."""
    assert comparison.sigma_session is not None and comparison.mde80_pct is not None  # else there was a veto
    if comparison.mde80_pct <= comparison.tolerance_pct or not comparison.tolerance_pct:
        return "The change is close to the tolerance: more processes narrow the interval (aaco run --processes N)."
    needed = math.ceil(2 * (100 * DETECTABLE * comparison.sigma_session / comparison.tolerance_pct) ** 2)
    would = f"about {needed} {PLURAL[comparison.unit]} a side would show {comparison.tolerance_pct:g} % at this spread"
    if needed > PATIENCE:
        return f"Quieten the machine first (aaco doctor): {would}."
    how = "aaco run --processes N" if comparison.unit == "process" else "aaco baseline save NAME SESSION ..."
    return f"Measure more: {would} ({how})."


def phrase(cause: Part) -> str:
    """Return a part of a change in words."""
    more = cause.delta_ns > 0
    words = {"count": "more executions per inference" if more else "fewer executions per inference",
             "duration": "longer executions" if more else "shorter executions",
             "gaps": "longer gaps between kernels" if more else "shorter gaps between kernels",
             "overlap": "less overlap between kernels" if more else "more overlap between kernels"}[cause.kind]
    return f"{cause.family}: {words}" if cause.family else words
