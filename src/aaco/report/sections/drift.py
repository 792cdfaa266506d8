"""How the kernels of two recordings differ, as text and as a document: what drift.py finds, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from aaco.analytics.kernels.drift import KernelDrift, Pair
from aaco.core.records import as_dict
from aaco.report.format import cut, duration, kernel, pad, percent, plural

SCHEMA_VERSION = 1
NAME = 46
FAMILY = 13
LEGEND = ("alike: the names. apart: how far the durations lie from each other, as a factor.",
          "by chance: how far two samples of one kernel would. drifted: further than that (docs/concepts/families.md)")
SHOWN = ("fingerprint", "normalised", "family", "calls", "total_ns", "p50_ns")


def lines(drift: KernelDrift, top: int) -> Iterator[str]:
    """For a terminal: families, kernels of both sides by time, what is new and what is gone."""
    yield f"{percent(drift.families_moved)} of kernel time is in other families"
    yield f"{'family':<{FAMILY}}{'before':>9}{'after':>9}{'time before':>13}{'after':>11}"
    for one in drift.families:
        yield (f"{pad(cut(one.family, FAMILY - 1), FAMILY)}{percent(one.before):>9}{percent(one.after):>9}"
               f"{duration(one.before_ns):>13}{duration(one.after_ns):>11}")
    yield ""
    yield f"{'kernel':<{NAME}}{'alike':>7}{'calls':>8}{'after':>8}{'median':>9}{'apart':>9}{'by chance':>11}"
    for pair in drift.pairs[:top]:
        yield (f"{pad(kernel(pair.normalised, NAME - 1), NAME)}{_alike(pair):>7}{pair.calls_before:>8,}{pair.calls:>8,}"
               f"{_times(pair.factor):>9}{_apart(pair.octaves):>9}{_apart(pair.null_octaves):>11}"
               f"{'  drifted' if pair.drifted else ''}")
    yield from LEGEND if drift.pairs else ()
    for what, table in (("new", drift.new), ("gone", drift.gone)):
        for row in table.slice(0, top).to_pylist():
            yield (f"{what:<6}{pad(kernel(row['normalised'], NAME - 1), NAME)}"
                   f"{pad(row['family'] or 'unknown', FAMILY)}{row['calls']:>8,}"
                   f"{duration(row['total_ns']) if row['total_ns'] is not None else '':>12}")
        if table.num_rows > top:
            yield f"{what:<6}{plural(table.num_rows - top, 'more kernel')}"


def document(drift: KernelDrift, before: str, after: str) -> dict[str, Any]:
    """As one JSON document."""
    return {"schema_version": SCHEMA_VERSION, "before": before, "after": after,
            "families_moved": drift.families_moved, "families": [as_dict(one) for one in drift.families],
            "pairs": [as_dict(pair) | {"drifted": pair.drifted} for pair in drift.pairs],
            "new": _listed(drift.new), "gone": _listed(drift.gone)}


def _listed(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(list(SHOWN)).to_pylist()
    return rows


def _alike(pair: Pair) -> str:
    return "same" if pair.likeness == 1 else f"{pair.likeness:.2f}"


def _times(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.2f}x"


def _apart(octaves: float | None) -> str:
    """A distance as the factor that it is."""
    return "" if octaves is None else f"{2 ** octaves:.3f}x"
