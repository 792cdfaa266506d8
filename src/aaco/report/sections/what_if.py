"""What the model predicts of choices, as a table and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from aaco.analytics.what_if import interval
from aaco.analytics.what_if.choose import LIMITS, ChoiceAnswer
from aaco.analytics.what_if.model import Prediction, WhatIfModel
from aaco.analytics.what_if.roofs import PRECISIONS
from aaco.core.documents import ClosedModel
from aaco.core.readings import Absent, or_why
from aaco.report import format

LABEL, COLUMNS = 18, 80
NAMES = {dtype: name for name, dtype in PRECISIONS.items()}
BOUNDS = {"latency_bound": "latency", "compute_bound": "compute", "memory_bound": "memory", "optimal": "at the roof"}


class PredictedNode(ClosedModel):
    """An executed node in one of the choices."""

    name: str
    family: str
    time_ns: float
    low_ns: float | None
    high_ns: float | None
    ideal_ns: float = Field(description="the least that the roofs allow it")
    bound: Literal["compute", "memory"]


class Predicted(ClosedModel):
    """A choice and what it would take. What is null is in `absent` with its reason."""

    batch: int
    precision: str | None = Field(description="null: as measured")
    device: str | None = Field(description="null: as measured")
    device_roofs: Literal["measured", "data sheet"]
    measured: bool = Field(description="this batch was measured, so the latency is a measurement")
    latency_ms: float
    latency_low_ms: float | None
    latency_high_ms: float | None
    throughput_per_s: float
    memory_bytes: float | None
    power_w: float | None
    utilization: float = Field(description="the roofs' ideal time / latency: HEU of the inference")
    gap: float = Field(description="latency / the roofs' ideal time")
    region: Literal["optimal", "compute_bound", "memory_bound", "latency_bound"]
    shares: dict[str, float] = Field(description="of the latency: nodes bound by compute, by the memory, and the rest")
    kept: bool = Field(description="surely within every limit")
    pareto: bool = Field(description="no other kept choice beats it in latency, throughput and memory")
    nodes: list[PredictedNode] = Field(description="the longest, as many as were asked for")
    absent: dict[str, str]
    assumed: list[str]


class Missed(ClosedModel):
    """A limit that the nearest choice does not surely keep; value null: not known."""

    limit: str
    bound: float
    value: float | None


class Solution(ClosedModel):
    """What the limits leave; best and nearest are places in `predictions`."""

    limits: dict[str, float]
    aim: Literal["throughput", "latency"]
    best: int | None
    nearest: int | None = Field(description="where no choice keeps every limit: the one that misses them least")
    missed: list[Missed]
    without: dict[str, int | None] = Field(description="by limit, the best if it did not hold; null: no other")


class MeasuredBatch(ClosedModel):
    """A batch that the twin was made of, and what it is off when the others predict it; null: too few others."""

    batch: int
    sessions: list[str]
    latency_ms: float
    held_out_error_pct: float | None


class WhatIf(ClosedModel):
    """`aaco what-if --json`."""

    schema_version: Literal[1] = 1
    model: str
    backend: str
    roofs: str
    measured: list[MeasuredBatch]
    level: float
    interval_method: str
    why_no_interval: str | None
    predictions: list[Predicted]
    refused: list[str] = Field(description="why choices that were asked for have no prediction")
    solution: Solution


def document(made: WhatIfModel, sessions: Mapping[int, Sequence[str]], model: str, backend: str,
             predictions: Sequence[Prediction], found: ChoiceAnswer, limits: Mapping[str, float], aim: str,
             refused: Sequence[str] = (), nodes: int = 0) -> WhatIf:
    """The document of a twin's answer; nodes: how many of each choice are listed."""
    place = {id(one): at for at, one in enumerate(predictions)}
    errors, why = held_out(made)
    return WhatIf(
        model=model, backend=backend, roofs=made.nodes.roofs.name, level=interval.LEVEL, why_no_interval=why or None,
        interval_method=interval.METHOD, refused=list(refused),
        measured=[MeasuredBatch(batch=one.batch, sessions=list(sessions[one.batch]), latency_ms=one.latency_ms,
                                held_out_error_pct=errors.get(one.batch)) for one in made.measured],
        predictions=[_predicted(made, one, found, nodes) for one in predictions],
        solution=Solution(
            limits=dict(limits), aim="latency" if aim == "latency" else "throughput",
            best=place[id(found.best)] if found.best else None,
            nearest=place[id(found.nearest)] if found.nearest else None,
            missed=[Missed(limit=one.limit, bound=one.bound, value=one.value) for one in found.excesses],
            without={name: place[id(one)] if one else None for name, one in found.bought.items()}))


def held_out(made: WhatIfModel) -> tuple[dict[int, float], str]:
    """By measured batch, how far in per cent the others' prediction of it is off; and why none is known."""
    errors, why = or_why(lambda: made.held_out)
    return {batch: 100 * error for batch, error in (errors or {}).items()}, why


def lines(made: WhatIfModel, predictions: Sequence[Prediction], found: ChoiceAnswer, limits: Mapping[str, float],
          aim: str, refused: Sequence[str] = ()) -> Iterator[str]:
    """The table of choices and what follows from it; refused: why choices of the command are not in it."""
    yield f"{'batch':>6}  {'choice':<13}{'latency':<24}{'samples/s':>9}  {'memory':>8}  bound by"
    for one in predictions:
        memory = "" if one.memory_bytes is None else f"{one.memory_bytes / 1e9:.2f} GB"
        mark = "*" if one in found.pareto else " " if one in found.kept else "x"
        latency = format.quantity(one.latency_ms.value, "ms", one.latency_ms.low, one.latency_ms.high)
        yield (f"{mark}{one.choice.batch:>5}  {format.cut(where(one), 12):<13}{latency:<24}"
               f"{format.number(one.throughput_per_s):>9}  {memory:>8}  {BOUNDS[one.region]}")
    yield ""
    left_out = [("left out", format.unavailable(why)) for why in refused]
    facts = [*_facts(made, predictions, found, limits, aim), *left_out]
    for label, text in facts:
        yield from format.hung(f"{label:<{LABEL}}", text, COLUMNS)


def where(one: Prediction) -> str:
    """A choice's device and precision in words."""
    parts = [one.choice.roofs.name if one.choice.roofs else "",
             NAMES.get(one.choice.precision or "", one.choice.precision or "")]
    return " ".join(filter(None, parts)) or "as measured"


def _predicted(made: WhatIfModel, one: Prediction, found: ChoiceAnswer, nodes: int) -> Predicted:
    choice, moved = one.choice, bool(one.choice.roofs or one.choice.precision)
    roofs = choice.roofs or made.nodes.roofs
    longest, why = _nodes(made, one, nodes)
    reasons = {"nodes": why, "latency_low_ms": one.why_no_interval}
    absent = one.absent | {name: reason for name, reason in reasons.items() if reason}
    return Predicted(
        batch=choice.batch, precision=choice.precision, device=choice.roofs.name if choice.roofs else None,
        device_roofs=roofs.source, measured=not moved and choice.batch in {each.batch for each in made.measured},
        latency_ms=one.latency_ms.value, latency_low_ms=one.latency_ms.low, latency_high_ms=one.latency_ms.high,
        throughput_per_s=one.throughput_per_s, memory_bytes=one.memory_bytes, power_w=one.power_w,
        utilization=one.utilization, gap=one.gap, region=one.region, shares=one.shares,
        kept=one in found.kept, pareto=one in found.pareto, nodes=longest, absent=absent, assumed=list(one.assumed))


def _nodes(made: WhatIfModel, one: Prediction, most: int) -> tuple[list[PredictedNode], str]:
    """The longest nodes of a choice, and why they, or their intervals, are not known."""
    try:
        found = made.nodes_at(one.choice, most) if most else ()
    except Absent as reason:
        return [], str(reason)
    return [PredictedNode(name=node.name, family=node.family, time_ns=node.time_ns.value, low_ns=node.time_ns.low,
                          high_ns=node.time_ns.high, ideal_ns=node.ideal_ns, bound=node.bound) for node in found], \
        next((node.why_no_interval for node in found), "")


def node_lines(made: WhatIfModel, one: Prediction, most: int) -> Iterator[str]:
    """The longest nodes of a choice."""
    longest, why = _nodes(made, one, most)
    yield f"{'node, ' + _described(one):<44}{'time':<26}bound by"
    for node in longest:
        time = format.quantity(node.time_ns, "ns", node.low_ns, node.high_ns)
        yield f"  {format.cut(node.name, 40):<42}{time:<26}{node.bound}"
    if why:
        yield from format.hung(f"{'':<2}", format.unavailable(why), COLUMNS)


def _facts(made: WhatIfModel, predictions: Sequence[Prediction], found: ChoiceAnswer, limits: Mapping[str, float],
           aim: str) -> Iterator[tuple[str, str]]:
    errors, why = held_out(made)
    batches = ", ".join(str(one.batch) for one in made.measured)
    yield "measured", f"batch {batches}; roofs: {made.nodes.roofs.name} ({made.nodes.roofs.source})"
    if errors:
        yield "held out", ("each measured batch predicted from the others is off by "
                           + ", ".join(f"{error:+.1f} % ({batch})" for batch, error in errors.items()))
    yield "interval", format.unavailable(why) if why else f"{100 * interval.LEVEL:g} %, {interval.METHOD}"
    if limits:
        yield from _solved(found, limits, aim)
    for text in dict.fromkeys(text for one in predictions for text in one.assumed):
        yield "assumed", text
    for name, text in {name: text for one in predictions for name, text in one.absent.items()}.items():
        yield name.partition("_")[0], format.unavailable(text)
    yield "samples/s", "batch / median latency; aaco sweep and the report divide by the mean latency"
    yield "marks", "* none within the limits beats it in latency, throughput and memory; x not surely within them"


def _solved(found: ChoiceAnswer, limits: Mapping[str, float], aim: str) -> Iterator[tuple[str, str]]:
    said = ", ".join(f"{name} {'<=' if LIMITS[name].at_most else '>='} {bound:g}" for name, bound in limits.items())
    if found.best:
        yield "best", f"{_described(found.best)}: the {_AIMED[aim]} under {said}"
    elif found.nearest:
        missed = ", ".join(f"{one.limit} {'is not known' if one.value is None else f'{one.value:.4g}'}"
                           for one in found.excesses)
        yield "best", f"no choice surely satisfies {said}. The nearest is {_described(found.nearest)}: {missed}"
    for name, other in found.bought.items():
        if other:
            yield "limits' cost", f"without {name}: {_described(other)}"


_AIMED = {"throughput": "highest throughput", "latency": "lowest latency"}


def _described(one: Prediction) -> str:
    where_to = "" if where(one) == "as measured" else f", {where(one)}"
    return (f"batch {one.choice.batch}{where_to} ({format.quantity(one.latency_ms.value, 'ms')}, "
            f"{format.number(one.throughput_per_s)} samples/s)")

