"""Each node's time at any batch: its family's curve over the roofs' ideal time, times the node's own measured ratio.

A family's curve is a fixed cost per call plus ideal time / efficiency, fitted to every measured node of the family;
so a small node that grows becomes more efficient as others of its family do. The node's own ratio to the curve is
known where it was profiled, is interpolated in log2(batch) between, and kept beyond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.what_if.curves import LatencyCurve, affine
from aaco.analytics.what_if.interval import conformal
from aaco.analytics.what_if.roofs import MachineRoofs
from aaco.analytics.what_if.work import Amount, Floor, ModelNode, floor
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

FEWEST = 4  # measured times from which a family has a curve of its own
TOKEN = Amount(0.0, 1.0)  # in place of work that is not modelled: it grows with the batch


class Nodes(Struct, frozen=True, dict=True):
    """A model's nodes on the device that they were measured on; with times they are those that have one."""

    nodes: tuple[ModelNode, ...]
    roofs: MachineRoofs

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """Return the batches that were profiled."""
        return tuple(sorted({batch for node in self.nodes for batch in node.times_ns}))

    def times_ns(self, batch: float, roofs: MachineRoofs | None = None, precision: str | None = None) -> Reals:
        """Return the time of each node; the ideal one where no node was ever timed."""
        ideal = floor(self.nodes, batch, roofs or self.roofs, precision).ideal_ns
        if not self.batches:
            return ideal
        usual = np.array([float(self.curve_of(node.family)(ideal_ns)) for node, ideal_ns in zip(self.nodes, ideal,
                                                                                                    strict=True)])
        return np.asarray(np.exp(self._log_ratios(batch)) * usual)

    def floor(self, batch: float, roofs: MachineRoofs | None = None, precision: str | None = None) -> Floor:
        """Return the least times that the roofs allow."""
        return floor(self.nodes, batch, roofs or self.roofs, precision)

    def without(self, batch: int) -> Nodes:
        """Return the same nodes, had this batch never been profiled."""
        return timed([replace(node, times_ns={at: ns for at, ns in node.times_ns.items() if at != batch})
                      for node in self.nodes], self.roofs)

    @cached_property
    def reach(self) -> float:
        """Return by how much a node's time may be too short or too long, in 90 of 100: the conformal factor over every
        node of every profiled batch, as the other batches predict it. Raise Absent with fewer than two of them, or
        nodes."""
        if len(self.batches) < 2:
            raise Absent(f"an interval of a node's time needs two profiled batches, there "
                         f"{'is' if len(self.batches) == 1 else 'are'} {len(self.batches)}")
        return float(np.exp(conformal([score for batch in self.batches for score in self._scores(batch)])))

    def _scores(self, batch: int) -> list[float]:
        others = self.without(batch)
        predicted = {node.name: ns for node, ns in zip(others.nodes, others.times_ns(batch), strict=True)}
        return [abs(float(np.log(node.times_ns[batch] / predicted[node.name]))) for node in self.nodes
                if batch in node.times_ns and node.name in predicted]

    def curve_of(self, family: str) -> LatencyCurve:
        """Return the family's curve, or where it has too few measured times that of all nodes."""
        return self.curves.get(family, self.curves[""])

    @cached_property
    def curves(self) -> Mapping[str, LatencyCurve]:
        """Return the curve of each family with enough measured times; under "" that of all nodes together."""
        seen: dict[str, list[tuple[float, float]]] = {"": []}
        for batch in self.batches:
            ideal = floor(self.nodes, batch, self.roofs).ideal_ns
            for node, node_ideal_ns in zip(self.nodes, ideal, strict=True):
                if batch in node.times_ns:
                    point = float(node_ideal_ns), node.times_ns[batch]
                    seen[""].append(point)
                    seen.setdefault(node.family, []).append(point)
        return {family: affine(*np.array(points).T) for family, points in seen.items()
                if not family or len(points) >= FEWEST}

    @cached_property
    def _ratios(self) -> Reals:
        """Return log(measured / its family's curve) by profiled batch and node; a node missing in a batch has its mean.
        """
        rows = np.full((len(self.batches), len(self.nodes)), np.nan)
        for row, batch in enumerate(self.batches):
            ideal = floor(self.nodes, batch, self.roofs).ideal_ns
            for at, node in enumerate(self.nodes):
                if batch in node.times_ns:
                    rows[row, at] = np.log(node.times_ns[batch] / float(self.curve_of(node.family)(ideal[at])))
        return np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)

    def _log_ratios(self, batch: float) -> Reals:
        at = np.interp(np.log2(batch), np.log2(self.batches), np.arange(len(self.batches)))
        before = int(at)
        after = min(before + 1, len(self.batches) - 1)
        return np.asarray(self._ratios[before] + (at - before) * (self._ratios[after] - self._ratios[before]))


def timed(nodes: Sequence[ModelNode], roofs: MachineRoofs) -> Nodes:
    """Return the nodes that have a time above 0, where any has; else all that have work. Work that is not modelled is
    taken to grow with the batch."""
    measured = [node for node in nodes if any(ns > 0 for ns in node.times_ns.values())]
    if not measured:
        return Nodes(tuple(node for node in nodes if any(node.fixed) or any(node.each)), roofs)
    return Nodes(tuple(ModelNode(node.name, node.family, node.dtype, node.fixed,
                                 node.each if any(node.fixed) or any(node.each) else TOKEN,
                                 {batch: ns for batch, ns in node.times_ns.items() if ns > 0}) for node in measured),
                 roofs)
