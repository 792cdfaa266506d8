"""The twin of a measured model: latency, throughput, memory and power of a choice, with how sure that is.

Modelled device time x is the sum of the nodes' times. Measured latencies lie on a curve over x, of a host's fixed cost
and a slope that add up or hide behind each other; between measured batches what the curve misses is interpolated in x,
beyond them it keeps its share. At a measured batch the prediction is the measurement. Another device or precision
moves along the curve by the roofs at the efficiencies that were measured: an assumption, and told as one, without an
interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from aaco.analytics.roofline.placement import LATENCY, OPTIMAL
from aaco.analytics.twin import interval
from aaco.analytics.twin.curves import Curve, from_one, through
from aaco.analytics.twin.interval import Spread, doublings
from aaco.analytics.twin.nodes import Nodes, timed
from aaco.analytics.twin.roofs import FLOATS, WIDTHS, Roofs
from aaco.analytics.twin.work import Node
from aaco.core.readings import Absent, Estimate

Region = Literal["optimal", "compute_bound", "memory_bound", "latency_bound"]
SWAPPED = "nothing was measured there: no error of this prediction is known"
_KIND = {False: "CPU", True: "GPU"}
FAR = 4.0  # times the largest measured batch, from which on a prediction is called far


@dataclass(frozen=True)
class Measured:
    """One measured batch: median latency with its interval's ends; peak memory and mean power where recorded."""

    batch: int
    latency_ms: float
    low: float | None = None
    high: float | None = None
    memory_bytes: float | None = None
    power_w: float | None = None

    @property
    def noise(self) -> float:
        """Half the width of the interval, as a logarithm; 0 where it is not known."""
        return math.log(self.high / self.low) / 2 if self.low and self.high else 0.0


@dataclass(frozen=True)
class Choice:
    """What is asked: a batch, and another precision or device than the measured ones (None: the same)."""

    batch: int
    precision: str | None = None
    roofs: Roofs | None = None


@dataclass(frozen=True)
class Prediction:
    """What a choice would take. latency_ms.low and high: 90 % interval, or why_no_interval.

    utilization: the roofs' ideal time / latency (HEU of the whole inference); region: where in the envelope that is;
    shares: of the latency, by what bounds the nodes (compute, memory) and the host's. memory and power: None, and why.
    """

    choice: Choice
    latency_ms: Estimate
    why_no_interval: str
    utilization: float
    region: Region
    shares: dict[str, float]
    memory_bytes: float | None
    power_w: float | None
    absent: dict[str, str]
    assumed: tuple[str, ...]

    @property
    def throughput_per_s(self) -> float:
        """Samples per second, one inference after the other."""
        return 1000 * self.choice.batch / self.latency_ms.value

    @property
    def gap(self) -> float:
        """How many times longer than the roofs allow."""
        return 1 / self.utilization if self.utilization else math.inf


@dataclass(frozen=True)
class NodeTime:
    """What a node would take, ns, with its 90 % interval or why there is none, and what bounds it."""

    name: str
    family: str
    time_ns: Estimate
    ideal_ns: float
    bound: Literal["compute", "memory"]
    why_no_interval: str


@dataclass(frozen=True)
class Twin:
    """A measured model; `twin` makes it. beside: its device works while the host goes on."""

    nodes: Nodes
    measured: tuple[Measured, ...]
    beside: bool = False

    def at(self, choice: Choice) -> Prediction:
        """The prediction. Raises Absent where the choice's roofs do not know its precision, are of
        another kind of device, or have less memory than it needs."""
        roofs, precision = choice.roofs or self.nodes.roofs, choice.precision
        if precision and not roofs.knows(precision):
            raise Absent(f"no ceiling of {precision} arithmetic is known of {roofs.name}")
        if roofs.gpu != self.nodes.roofs.gpu:
            raise Absent(f"{roofs.name}: efficiencies of a {_KIND[not roofs.gpu]} say nothing of a {_KIND[roofs.gpu]}")
        memory, power, absent = self._beside(choice)
        if memory is not None and roofs.memory_bytes is not None and memory > roofs.memory_bytes:
            raise Absent(f"batch {choice.batch} would need {memory / 1e9:.1f} GB, {roofs.name} has "
                         f"{roofs.memory_bytes / 1e9:.1f}")
        moved = bool(choice.roofs or precision)
        value = self._swapped(choice) if moved else self.latency_ms(choice.batch)
        low, high, why = (None, None, SWAPPED) if moved else self._interval(choice.batch, value)
        floor = self.nodes.floor(choice.batch, roofs, precision)
        utilization = float(floor.ideal_ns.sum()) / 1e6 / value
        return Prediction(choice, Estimate(value, low, high, interval.METHOD if low else ""), why, utilization,
                          _region(utilization, float(floor.compute_ns.sum()), float(floor.memory_ns.sum())),
                          self._shares(choice, value), memory, power, absent, self._assumed(choice))

    def nodes_at(self, choice: Choice, most: int) -> tuple[NodeTime, ...]:
        """The nodes that would take most time, the longest first. Raises Absent where no profile has times of them."""
        if not self.nodes.batches:
            raise Absent("no session has a profile: nothing tells one node's time from another's")
        where = choice.batch, choice.roofs, choice.precision
        times, floor = self.nodes.times_ns(*where), self.nodes.floor(*where)
        reach, why = None, SWAPPED
        if not (choice.roofs or choice.precision):
            try:
                reach, why = self.nodes.reach, ""
            except Absent as reason:
                why = str(reason)
        return tuple(NodeTime(node.name, node.family, Estimate(ns, reach and ns / reach, reach and ns * reach),
                              float(floor.ideal_ns[at]),
                              "compute" if floor.compute_ns[at] >= floor.memory_ns[at] else "memory", why)
                     for at in np.argsort(-times)[:most]
                     for node, ns in [(self.nodes.nodes[at], float(times[at]))])

    def latency_ms(self, batch: float) -> float:
        """The median latency at a batch, on the measured device and in the measured precision."""
        x, trend = self._device_ms(batch), float(self.curve(self._device_ms(batch)))
        known = np.array([self._device_ms(each.batch) for each in self.measured])
        times = np.array([each.latency_ms for each in self.measured])
        if batch <= self.measured[0].batch or batch >= self.measured[-1].batch:
            end = 0 if batch <= self.measured[0].batch else -1
            return trend * float(times[end] / self.curve(known[end]))
        after = int(np.searchsorted([each.batch for each in self.measured], batch))
        low, high = sorted((times[after - 1], times[after]))
        grows = bool(np.all(np.diff(known) > 1e-9 * known[-1]))  # else the work does not tell the batches apart
        along = (x, known) if grows else (math.log2(batch), np.log2([each.batch for each in self.measured]))
        missed = np.interp(*along, times - self.curve(known))
        return float(np.clip(trend + missed, low, high))

    @cached_property
    def curve(self) -> Curve:
        """Latency over modelled device time, both ms."""
        known = np.array([self._device_ms(each.batch) for each in self.measured])
        times = np.array([each.latency_ms for each in self.measured])
        if len(known) == 1:
            return from_one(known[0], times[0], self.beside) if self.nodes.batches else Curve(0, times[0] / known[0])
        return through(known, times, self.beside)

    @cached_property
    def spread(self) -> Spread:
        """What measured batches are off when others predict them. Raises Absent with fewer than three."""
        self._refuse_few()
        return Spread(tuple(_residual(each, self.without(each.batch)) for each in self.measured),
                      self._outwards(self.measured), self._outwards(self.measured[::-1]))

    def _outwards(self, ordered: Sequence[Measured]) -> tuple[float, ...]:
        """What each batch is off when those before it predict it, of which a curve needs two."""
        known, found = self, list[float]()
        for each in ordered[:1:-1]:
            known = known.without(each.batch)
            found.append(_residual(each, known))
        return tuple(found)

    @property
    def held_out(self) -> dict[int, float]:
        """By measured batch predicted / measured - 1, where the others predict it. Raises Absent with fewer than three
        measured batches."""
        self._refuse_few()
        return {each.batch: self.without(each.batch).latency_ms(each.batch) / each.latency_ms - 1
                for each in self.measured}

    def without(self, batch: int) -> Twin:
        """The same twin, had this batch never been measured or profiled."""
        return Twin(self.nodes.without(batch), tuple(one for one in self.measured if one.batch != batch),
                    self.beside)

    def _refuse_few(self) -> None:
        if len(self.measured) < interval.FEWEST:
            raise Absent(f"an interval needs {interval.FEWEST} measured batches, to leave one out; there "
                         f"{'is' if len(self.measured) == 1 else 'are'} {len(self.measured)}")

    def _interval(self, batch: int, value: float) -> tuple[float | None, float | None, str]:
        try:
            spread = self.spread
        except Absent as reason:
            return None, None, str(reason)
        nearest = min(self.measured, key=lambda one: abs(math.log2(one.batch / batch)))
        beyond = spread.below if batch < self.measured[0].batch else \
            spread.above if batch > self.measured[-1].batch else ()
        factor = spread.factor(doublings(batch, [nearest.batch]), nearest.noise, beyond)
        return value / factor, value * factor, ""

    def _device_ms(self, batch: float, roofs: Roofs | None = None, precision: str | None = None) -> float:
        return float(self.nodes.times_ns(batch, roofs, precision).sum()) / 1e6

    def _swapped(self, choice: Choice) -> float:
        """Latency on other roofs: along the curve, whose host's cost is as it is, to the modelled time there."""
        here, there = self._device_ms(choice.batch), self._device_ms(choice.batch, choice.roofs, choice.precision)
        return self.latency_ms(choice.batch) * float(self.curve(there) / self.curve(here))

    def _shares(self, choice: Choice, value: float) -> dict[str, float]:
        """Of the latency, what nodes take that compute or the memory bounds; the rest is the host's and what overlaps
        with nothing. Node times that sum to more than the latency are scaled down to it."""
        floor = self.nodes.floor(choice.batch, choice.roofs, choice.precision)
        times = self.nodes.times_ns(choice.batch, choice.roofs, choice.precision) * self.curve.slope / 1e6
        computing = float(times[floor.compute_ns >= floor.memory_ns].sum())
        total = max(value, float(times.sum()))
        return {"compute": computing / total, "memory": (float(times.sum()) - computing) / total,
                "host": max(0.0, 1 - float(times.sum()) / total)}

    def _beside(self, choice: Choice) -> tuple[float | None, float | None, dict[str, str]]:
        """Memory and power of the choice, and why either is not known."""
        absent = dict[str, str]()
        memory = self._memory(choice, absent)
        known = [(one.batch, one.power_w) for one in self.measured if one.power_w is not None]
        if choice.roofs or choice.precision:
            absent["power_w"] = "no power was measured there"
        elif not known:
            absent["power_w"] = "no power was recorded"
        elif not known[0][0] <= choice.batch <= known[-1][0]:
            absent["power_w"] = f"power is known from batch {known[0][0]} to {known[-1][0]} alone"
        if "power_w" in absent:
            return memory, None, absent
        batches, watts = zip(*known, strict=True)
        return memory, float(np.interp(math.log2(choice.batch), np.log2(batches), watts)), absent

    def _memory(self, choice: Choice, absent: dict[str, str]) -> float | None:
        """Peak memory by a line through the measured ones, which is an upper bound in a narrower precision."""
        known = [(one.batch, one.memory_bytes) for one in self.measured if one.memory_bytes is not None]
        if len(known) < 2:
            absent["memory_bytes"] = ("memory as a function of the batch needs two batches with it, there "
                                      f"{'is' if len(known) == 1 else 'are'} {len(known)}")
            return None
        if choice.roofs or (choice.precision and WIDTHS[choice.precision] > min(self._widths, default=0)):
            absent["memory_bytes"] = "what the runtime would keep there is not known"
            return None
        batches, used = (np.array(values, np.float64) for values in zip(*known, strict=True))
        inside = batches[0] <= choice.batch <= batches[-1]
        each = max(0.0, float(np.polyfit(batches, used, 1)[0]))
        value = float(np.interp(choice.batch, batches, used)) if inside else \
            float(used[0 if choice.batch < batches[0] else -1]
                  + each * (choice.batch - batches[0 if choice.batch < batches[0] else -1]))
        return max(0.0, value)

    @property
    def _widths(self) -> set[int]:
        """Widths of the numbers that the nodes compute in, bytes."""
        return {WIDTHS[node.dtype] for node in self.nodes.nodes if node.dtype in FLOATS and node.dtype}

    def _assumed(self, choice: Choice) -> tuple[str, ...]:
        found = []
        if choice.roofs:
            said = "its data sheet's" if choice.roofs.source == "data sheet" else "measured"
            found.append(f"{choice.roofs.name}: {said} roofs, at the efficiencies and the host's cost measured here")
        if choice.precision:
            found.append(f"{choice.precision}: the same nodes at the same efficiencies, floating-point data in "
                         "that type; memory at most as measured")
        if len(self.measured) == 1 and not self.nodes.batches:
            found.append("all of the latency is taken for work: one batch without a profile tells no host's cost")
        if choice.batch >= FAR * self.measured[-1].batch or choice.batch * FAR <= self.measured[0].batch:
            found.append(f"batch {choice.batch} is far from the measured ones")
        return tuple(found)


def twin(nodes: Sequence[Node], measured: Sequence[Measured], roofs: Roofs, beside: bool = False) -> Twin:
    """The twin of measurements of one model, one or more per batch. Raises Absent where there is nothing to model.

    beside: whether the host and the device may work at the same time. Several measurements of a batch are averaged.
    """
    usable = [one for one in measured if one.batch >= 1 and math.isfinite(one.latency_ms) and one.latency_ms > 0]
    if not usable:
        raise Absent("no batch has a measured latency")
    chosen = timed(nodes, roofs)
    if not chosen.nodes:
        raise Absent("no node has modelled work or a measured time")
    found = Twin(chosen, tuple(_merged([one for one in usable if one.batch == batch])
                               for batch in sorted({one.batch for one in usable})), beside)
    if beside and len(found.measured) == 1 and not chosen.batches:
        raise Absent("one latency without a profile does not tell the host's part from the device's")
    if found.nodes.times_ns(found.measured[0].batch).sum() <= 0:
        raise Absent("no node has modelled work or a measured time")
    return found


def _residual(one: Measured, known: Twin) -> float:
    """log(measured / predicted) per doubling of the distance to the nearest batch that is known, one at least."""
    distance = doublings(one.batch, [other.batch for other in known.measured])
    return math.log(one.latency_ms / known.latency_ms(one.batch)) / max(interval.NEAREST, distance)


def _merged(same: Sequence[Measured]) -> Measured:
    """Measurements of one batch as one: the geometric mean of the latencies, within the hull of their intervals."""
    if len(same) == 1:
        return same[0]
    latency = math.exp(sum(math.log(one.latency_ms) for one in same) / len(same))
    powers = [one.power_w for one in same if one.power_w is not None]
    return Measured(same[0].batch, latency, min(one.low or one.latency_ms for one in same),
                    max(one.high or one.latency_ms for one in same),
                    max((one.memory_bytes for one in same if one.memory_bytes is not None), default=None),
                    sum(powers) / len(powers) if powers else None)


def _region(utilization: float, compute_ns: float, memory_ns: float) -> Region:
    """Where in the envelope an inference lies, by the bands of kernels (roofline.placement)."""
    if utilization >= OPTIMAL:
        return "optimal"
    if utilization < LATENCY:
        return "latency_bound"
    return "compute_bound" if compute_ns >= memory_ns else "memory_bound"
