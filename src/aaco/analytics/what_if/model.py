"""The what-if model of a measured model: latency, throughput, memory and power of a choice, with their uncertainty.

Modelled device time x is the sum of the nodes' times. Measured latencies follow a curve over x, of a host's fixed cost
and a slope that add up or overlap; between measured batches the residual of the curve is interpolated in x, beyond them
it keeps its share. At a measured batch the prediction is the measurement. Another device or precision moves along the
curve by the roofs at the measured efficiencies: an assumption, reported as one, without an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct

from aaco.analytics.roofline.placement import LATENCY, OPTIMAL
from aaco.analytics.what_if import interval
from aaco.analytics.what_if.curves import LatencyCurve, from_one, through
from aaco.analytics.what_if.interval import ResidualSpread, doublings
from aaco.analytics.what_if.nodes import Nodes, timed
from aaco.analytics.what_if.roofs import FLOATS, WIDTHS, MachineRoofs
from aaco.analytics.what_if.work import ModelNode
from aaco.core.readings import Absent, Estimate

Region = Literal["optimal", "compute_bound", "memory_bound", "latency_bound"]
SWAPPED = "nothing was measured there: no error of this prediction is known"
_KIND = {False: "CPU", True: "GPU"}
FAR = 4.0  # times the largest measured batch, from which on a prediction is called far


class BatchMeasurement(Struct, frozen=True):
    """One measured batch: median latency with its interval's ends; peak memory and mean power where recorded."""

    batch: int
    latency_ms: float
    low: float | None = None
    high: float | None = None
    memory_bytes: float | None = None
    power_w: float | None = None

    @property
    def noise(self) -> float:
        """Return the half the width of the interval, as a logarithm; 0 where it is not known."""
        return math.log(self.high / self.low) / 2 if self.low and self.high else 0.0


class BatchChoice(Struct, frozen=True):
    """The question: a batch, and another precision or device than the measured ones (None: the same)."""

    batch: int
    precision: str | None = None
    roofs: MachineRoofs | None = None


class Prediction(Struct, frozen=True):
    """What a choice would take. latency_ms.low and high: 90 % interval, or why_no_interval.

    utilization: the roofs' ideal time / latency (HEU of the whole inference); region: where in the envelope that is;
    shares: of the latency, by what bounds the nodes (compute, memory) and the host's. memory and power: None, and why.
    """

    choice: BatchChoice
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
        """Return the samples per second, one inference after the other."""
        return 1000 * self.choice.batch / self.latency_ms.value

    @property
    def gap(self) -> float:
        """Return how many times longer than the roofs allow."""
        return 1 / self.utilization if self.utilization else math.inf


class NodeTime(Struct, frozen=True):
    """What a node would take, ns, with its 90 % interval or why there is none, and what bounds it."""

    name: str
    family: str
    time_ns: Estimate
    ideal_ns: float
    bound: Literal["compute", "memory"]
    why_no_interval: str


class WhatIfModel(Struct, frozen=True, dict=True):
    """A measured model; `what_if_model` makes it. beside: its device works while the host goes on."""

    nodes: Nodes
    measured: tuple[BatchMeasurement, ...]
    beside: bool = False

    def at(self, choice: BatchChoice) -> Prediction:
        """Return the prediction. Raise Absent if the choice's roofs do not know its precision, are of another kind of
        device, or have less memory than it needs."""
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

    def nodes_at(self, choice: BatchChoice, most: int) -> tuple[NodeTime, ...]:
        """Return the nodes that would take most time, the longest first. Raise Absent if no profile has times of them.
        """
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
        """Return the median latency at a batch, on the measured device and in the measured precision."""
        x, trend = self._device_ms(batch), float(self.curve(self._device_ms(batch)))
        device_ms = np.array([self._device_ms(point.batch) for point in self.measured])
        times = np.array([point.latency_ms for point in self.measured])
        if batch <= self.measured[0].batch or batch >= self.measured[-1].batch:
            end = 0 if batch <= self.measured[0].batch else -1
            return trend * float(times[end] / self.curve(device_ms[end]))
        after = int(np.searchsorted([point.batch for point in self.measured], batch))
        low, high = sorted((times[after - 1], times[after]))
        grows = bool(np.all(np.diff(device_ms) > 1e-9 * device_ms[-1]))  # else the work does not separate the batches
        along = (x, device_ms) if grows else (math.log2(batch), np.log2([point.batch for point in self.measured]))
        missed = np.interp(*along, times - self.curve(device_ms))
        return float(np.clip(trend + missed, low, high))

    @cached_property
    def curve(self) -> LatencyCurve:
        """Return the latency over modelled device time, both ms."""
        device_ms = np.array([self._device_ms(point.batch) for point in self.measured])
        times = np.array([point.latency_ms for point in self.measured])
        if len(device_ms) == 1:
            slope = times[0] / device_ms[0]
            return from_one(device_ms[0], times[0], self.beside) if self.nodes.batches else LatencyCurve(0, slope)
        return through(device_ms, times, self.beside)

    @cached_property
    def spread(self) -> ResidualSpread:
        """Return what measured batches are off when others predict them. Raise Absent with fewer than three."""
        self._refuse_few()
        return ResidualSpread(tuple(_residual(point, self.without(point.batch)) for point in self.measured),
                              self._outwards(self.measured), self._outwards(self.measured[::-1]))

    def _outwards(self, ordered: Sequence[BatchMeasurement]) -> tuple[float, ...]:
        """Return what each batch is off when those before it predict it, of which a curve needs two."""
        inner, residuals = self, list[float]()
        for point in ordered[:1:-1]:
            inner = inner.without(point.batch)
            residuals.append(_residual(point, inner))
        return tuple(residuals)

    @property
    def held_out(self) -> dict[int, float]:
        """Return predicted / measured - 1 by measured batch, each predicted from the others. Raise Absent with fewer
        than three measured batches."""
        self._refuse_few()
        return {point.batch: self.without(point.batch).latency_ms(point.batch) / point.latency_ms - 1
                for point in self.measured}

    def without(self, batch: int) -> WhatIfModel:
        """Return the same model without this batch's measurement and profile."""
        return WhatIfModel(self.nodes.without(batch), tuple(point for point in self.measured if point.batch != batch),
                           self.beside)

    def _refuse_few(self) -> None:
        if len(self.measured) < interval.FEWEST:
            raise Absent(f"an interval needs {interval.FEWEST} measured batches, to leave one out; there "
                         f"{'is' if len(self.measured) == 1 else 'are'} {len(self.measured)} (aaco what-if --tag sweep "
                         "takes those of a sweep)")

    def _interval(self, batch: int, value: float) -> tuple[float | None, float | None, str]:
        try:
            spread = self.spread
        except Absent as reason:
            return None, None, str(reason)
        nearest = min(self.measured, key=lambda point: abs(math.log2(point.batch / batch)))
        beyond = spread.below if batch < self.measured[0].batch else \
            spread.above if batch > self.measured[-1].batch else ()
        factor = spread.factor(doublings(batch, [nearest.batch]), nearest.noise, beyond)
        return value / factor, value * factor, ""

    def _device_ms(self, batch: float, roofs: MachineRoofs | None = None, precision: str | None = None) -> float:
        return float(self.nodes.times_ns(batch, roofs, precision).sum()) / 1e6

    def _swapped(self, choice: BatchChoice) -> float:
        """Return the latency on other roofs: along the curve, with the host's cost unchanged, to the modelled time
        there."""
        here, there = self._device_ms(choice.batch), self._device_ms(choice.batch, choice.roofs, choice.precision)
        return self.latency_ms(choice.batch) * float(self.curve(there) / self.curve(here))

    def _shares(self, choice: BatchChoice, value: float) -> dict[str, float]:
        """Return the shares of the latency in nodes bound by compute and by memory; the rest is the host's and does not
        overlap. Node times that sum to more than the latency are scaled down to it."""
        floor = self.nodes.floor(choice.batch, choice.roofs, choice.precision)
        times = self.nodes.times_ns(choice.batch, choice.roofs, choice.precision) * self.curve.slope / 1e6
        computing = float(times[floor.compute_ns >= floor.memory_ns].sum())
        total = max(value, float(times.sum()))
        return {"compute": computing / total, "memory": (float(times.sum()) - computing) / total,
                "host": max(0.0, 1 - float(times.sum()) / total)}

    def _beside(self, choice: BatchChoice) -> tuple[float | None, float | None, dict[str, str]]:
        """Return memory and power of the choice, and why either is not known."""
        absent = dict[str, str]()
        memory = self._memory(choice, absent)
        powers = [(point.batch, point.power_w) for point in self.measured if point.power_w is not None]
        if choice.roofs or choice.precision:
            absent["power_w"] = "no power was measured there"
        elif not powers:
            absent["power_w"] = "no power was recorded"
        elif not powers[0][0] <= choice.batch <= powers[-1][0]:
            absent["power_w"] = f"power is known from batch {powers[0][0]} to {powers[-1][0]} alone"
        if "power_w" in absent:
            return memory, None, absent
        batches, watts = zip(*powers, strict=True)
        return memory, float(np.interp(math.log2(choice.batch), np.log2(batches), watts)), absent

    def _memory(self, choice: BatchChoice, absent: dict[str, str]) -> float | None:
        """Return the peak memory by a line through the measured ones, which is an upper bound in a narrower precision.
        """
        memories = [(point.batch, point.memory_bytes) for point in self.measured if point.memory_bytes is not None]
        if len(memories) < 2:
            absent["memory_bytes"] = ("memory as a function of the batch needs two batches with it, there "
                                      f"{'is' if len(memories) == 1 else 'are'} {len(memories)}")
            return None
        if choice.roofs or (choice.precision and WIDTHS[choice.precision] > min(self._widths, default=0)):
            absent["memory_bytes"] = "what the runtime would keep there is not known"
            return None
        batches, used = (np.array(values, np.float64) for values in zip(*memories, strict=True))
        inside = batches[0] <= choice.batch <= batches[-1]
        bytes_per_sample = max(0.0, float(np.polyfit(batches, used, 1)[0]))
        value = float(np.interp(choice.batch, batches, used)) if inside else \
            float(used[0 if choice.batch < batches[0] else -1]
                  + bytes_per_sample * (choice.batch - batches[0 if choice.batch < batches[0] else -1]))
        return max(0.0, value)

    @property
    def _widths(self) -> set[int]:
        """Return the widths of the numbers that the nodes compute in, bytes."""
        return {WIDTHS[node.dtype] for node in self.nodes.nodes if node.dtype in FLOATS and node.dtype}

    def _assumed(self, choice: BatchChoice) -> tuple[str, ...]:
        assumptions = []
        if choice.roofs:
            source = "its data sheet's" if choice.roofs.source == "data sheet" else "measured"
            assumptions.append(f"{choice.roofs.name}: {source} roofs, at the efficiencies and the host's cost "
                               "measured here")
        if choice.precision:
            assumptions.append(f"{choice.precision}: the same nodes at the same efficiencies, floating-point data in "
                               "that type; memory at most as measured")
        if len(self.measured) == 1 and not self.nodes.batches:
            assumptions.append("all of the latency is taken for work: one batch without a profile tells no host's cost")
        if choice.batch >= FAR * self.measured[-1].batch or choice.batch * FAR <= self.measured[0].batch:
            assumptions.append(f"batch {choice.batch} is far from the measured ones")
        return tuple(assumptions)


def what_if_model(nodes: Sequence[ModelNode], measured: Sequence[BatchMeasurement], roofs: MachineRoofs,
                  beside: bool = False) -> WhatIfModel:
    """Return the what-if model of measurements of one model, one or more per batch. Raise Absent if nothing can be
    modelled.

    beside: whether the host and the device may work at the same time. Several measurements of a batch are averaged.
    """
    usable = [point for point in measured
              if point.batch >= 1 and math.isfinite(point.latency_ms) and point.latency_ms > 0]
    if not usable:
        raise Absent("no batch has a measured latency")
    timed_nodes = timed(nodes, roofs)
    if not timed_nodes.nodes:
        raise Absent("no node has modelled work or a measured time")
    model = WhatIfModel(timed_nodes, tuple(_merged([point for point in usable if point.batch == batch])
                                           for batch in sorted({point.batch for point in usable})), beside)
    if beside and len(model.measured) == 1 and not timed_nodes.batches:
        raise Absent("one latency without a profile does not tell the host's part from the device's")
    if model.nodes.times_ns(model.measured[0].batch).sum() <= 0:
        raise Absent("no node has modelled work or a measured time")
    return model


def _residual(point: BatchMeasurement, model: WhatIfModel) -> float:
    """Return log(measured / predicted) per doubling of the distance to the nearest batch that is known, one at least.
    """
    distance = doublings(point.batch, [measured_point.batch for measured_point in model.measured])
    return math.log(point.latency_ms / model.latency_ms(point.batch)) / max(interval.NEAREST, distance)


def _merged(same: Sequence[BatchMeasurement]) -> BatchMeasurement:
    """Return measurements of one batch as one: the geometric mean of the latencies, within the hull of their intervals.
    """
    if len(same) == 1:
        return same[0]
    latency = math.exp(sum(math.log(point.latency_ms) for point in same) / len(same))
    powers = [point.power_w for point in same if point.power_w is not None]
    return BatchMeasurement(same[0].batch, latency, min(point.low or point.latency_ms for point in same),
                            max(point.high or point.latency_ms for point in same),
                            max((point.memory_bytes for point in same if point.memory_bytes is not None), default=None),
                            sum(powers) / len(powers) if powers else None)


def _region(utilization: float, compute_ns: float, memory_ns: float) -> Region:
    """Return the region of the envelope that an inference is in, by the bands of kernels (roofline.placement)."""
    if utilization >= OPTIMAL:
        return "optimal"
    if utilization < LATENCY:
        return "latency_bound"
    return "compute_bound" if compute_ns >= memory_ns else "memory_bound"
