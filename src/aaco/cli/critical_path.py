"""`aaco critical-path`: what bounded the wall time, and what would become of it if kernels were faster."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import distrust, manual, options, say
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.report.format import duration, kernel, pad

if TYPE_CHECKING:
    from aaco.analytics.critical_path.answer import CriticalPath as Way
    from aaco.analytics.critical_path.summary import CriticalPaths
    from aaco.core.session import Session

SLOWEST = 100.0


def _scale(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """KERNEL=FACTOR; a kernel's name may hold `=`. A kind of change has no factor: NaN."""
    from aaco.analytics.advice.mechanisms import MECHANISMS

    scales = []
    for pair in value:
        if pair in MECHANISMS:
            scales.append((pair, math.nan))
            continue
        name, equals, factor = pair.rpartition("=")
        try:
            number = float(factor)
        except ValueError:
            number = -1.0
        if not (name and equals and 0 <= number <= SLOWEST):
            raise click.BadParameter(f"{pair!r}: KERNEL=FACTOR, with a factor from 0 to {SLOWEST:g}, or a kind of "
                                     f"change: {', '.join(sorted(MECHANISMS))}")
        scales.append((name, number))
    return tuple(scales)


@manual.command("critical-path")
@options.session_reference
@click.option("--what-if", "scales", metavar="KERNEL=FACTOR|CHANGE", multiple=True, callback=_scale,
              help="Predict the time if the kernels that match KERNEL, a glob or a part of a name, took FACTOR times "
                   "as long, and how much faster a step can become at most, by that or by a kind of change, such as "
                   "graph or narrower_types. Several count together.")
@options.with_session
@options.as_json
def critical_path(session: Session, scales: tuple[tuple[str, float], ...], as_json: bool) -> None:
    """What bounded the wall time of SESSION's trace.

    The critical path is the chain of kernels, copies, launches, host code and waits that the end of the trace depends
    on. Its parts sum to the wall time. A faster kernel saves nothing unless it is on this path.
    """
    from aaco.core.documents import encode
    from aaco.report.sections.findings.critical_path import rows

    distrust.warn(session)
    factors = tuple((name, factor) for name, factor in scales if not math.isnan(factor))
    changes = [name for name, factor in scales if math.isnan(factor)]
    paths, critical = _paths(session, bool(factors))
    answers = [_answer(number, path, factors) for number, path in enumerate(paths)] if factors else []
    ceiling = _ceiling(session, changes, answers) if scales else None
    if as_json:
        say.document(encode(critical) | {"session_id": session.id, "what_if": answers, "ceiling": ceiling})
        return
    for row in rows(critical):
        say.line(f"{pad(row.label, 41)} {row.text}".rstrip())
    for answer in answers:
        say.line(_said(answer, len(answers) > 1))
    if ceiling:
        say.line(_said_ceiling(ceiling))


def _paths(session: Session, recompute: bool) -> tuple[list[Way], CriticalPaths]:
    """Return the paths; recompute them on request or if the session does not keep them."""
    from aaco.analytics.critical_path.describe import summarise
    from aaco.analytics.critical_path.summary import CriticalPaths
    from aaco.steps import measured_part
    from aaco.steps.findings.critical_path import find
    from aaco.tracelake import documents

    stored = documents.decoded(session, CriticalPaths)
    if stored and stored.paths and not recompute:
        return [], stored
    try:
        paths = find(measured_part.of(session))
    except Absent as reason:
        raise UsageError(f"session {session.id}: {reason}", "aaco check SESSION") from reason
    if not paths:
        raise UsageError(f"session {session.id} holds no work of a device that has a start",
                         "aaco info SESSION  # says what it holds")
    return paths, summarise(paths)


def _answer(number: int, path: Way, scales: tuple[tuple[str, float], ...]) -> dict[str, Any]:
    """The window with kernels scaled; of several factors for one kernel the last counts."""
    from aaco.analytics.critical_path.answer import what_if

    factors: dict[str, float] = {}
    for part, factor in scales:
        matching = match_names(part, path.events.names)
        if not matching:
            raise UsageError(f"no kernel matches {part!r}", "aaco kernels SESSION  # lists them")
        factors |= dict.fromkeys(matching, factor)
    window = what_if(path, factors)
    return {"path": number, "kernels": factors, "window_ns": path.window_ns, "what_if_ns": window,
            "speedup": path.window_ns / window if window else None}


def _ceiling(session: Session, changes: list[str], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """How much faster a step can become at most by all these choices; as advice says it."""
    from aaco.steps.what_if_floor import floor_of

    factors = {name: factor for answer in answers for name, factor in answer["kernels"].items()}
    asked = floor_of(session, changes, factors)
    return {"changes": asked.floor.mechanism, "speedup_at_most": asked.ceiling,
            "floor_ms": asked.kept_ms, "ceiling_of": asked.ceiling_of, "why_absent": asked.floor.why_absent or None,
            "why_not_advised": asked.why_not_advised or None}


def _said_ceiling(ceiling: dict[str, Any]) -> str:
    from aaco.report.sections.content import ceiling_text

    against = f"; not advised: {ceiling['why_not_advised']}" if ceiling["why_not_advised"] else ""
    if ceiling["speedup_at_most"] is None:
        return f"no ceiling: {ceiling['why_absent'] or 'what must stay of the step is too little to tell'}{against}"
    gain = ceiling_text(ceiling["speedup_at_most"], ceiling["floor_ms"], ceiling["ceiling_of"])
    return f"{'' if gain.startswith('no ') else 'ceiling: '}{gain}{against}"


def match_names(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names that are the pattern, else those that it matches as a glob, else those with a part that it
    matches. Only `*` and `?` are special: names of C++ hold brackets.
    """
    glob = pattern.replace("[", "[[]")
    matches = ([name for name in names if name == pattern], fnmatch.filter(names, glob),
               fnmatch.filter(names, f"*{glob}*"))
    return next(filter(None, matches), [])


def _said(answer: dict[str, Any], several: bool) -> str:
    kernel_name = next(iter(answer["kernels"]))
    names = kernel(kernel_name, 40) if len(answer["kernels"]) == 1 else f"{len(answer['kernels'])} kernels"
    factors = "x, ".join(f"{factor:g}" for factor in sorted(set(answer["kernels"].values())))
    gain = f", {answer['speedup']:.3f}x as fast" if answer["speedup"] else ""
    before = f"path {answer['path']}: " if several else ""
    return (f"{before}with {names} at {factors}x: {duration(answer['what_if_ns'])} instead of "
            f"{duration(answer['window_ns'])}{gain}")
