"""A comparison of outputs as plain text, 80 columns at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from aaco.report import format

COLUMNS, LABEL = 80, 14
_row = partial(format.labelled, width=LABEL, columns=COLUMNS)
MOST = 40


def render(found: Mapping[str, Any]) -> str:
    """The text of the document that `aaco outputs --json` prints."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield found["status"].upper()
    yield ""
    for label in ("expected", "actual"):
        yield from _row(label, _side(found[label]))
    for one in found["outputs"][:MOST]:
        yield ""
        yield f"{format.name(one['name'], COLUMNS - 12)}: {one['status']}"
        yield from _row("  why", one["why"])
        if one["max_abs"] is not None and one["max_rel"] is not None:
            yield from _row("  largest gap", f"{one['max_abs']:.3g} absolute, {one['max_rel']:.3g} relative")
        if one["precision"]:
            yield from _row("  tolerance", _tolerance(one))
    if len(found["outputs"]) > MOST:
        yield f"and {len(found['outputs']) - MOST} more outputs: --json"


def _side(side: Mapping[str, Any]) -> str:
    precisions = ", ".join(side["computed_in"]) or "a precision that is not known"
    optimised = f", graph optimisation {side['graph_optimization']}" if side["graph_optimization"] else ""
    return f"{side['session_id']}: {side['model']} on {side['backend']} in {precisions}{optimised}"


def _tolerance(one: Mapping[str, Any]) -> str:
    if one["relative"] is None:
        return "none: must be equal"
    return f"{one['absolute']:.3g} + {one['relative']:.3g} x the element ({one['precision']})"
