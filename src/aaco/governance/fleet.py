"""Which sessions, processes and nodes of a fleet are off, with the share of false discoveries kept small.

A residual is a distance from the base on the log scale, sigma the scaled median absolute deviation of the residuals
that are compared. Both are robust: sessions that are off hardly move what they are compared with.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core import statistics
from aaco.core.arrays import Reals
from aaco.governance.multiplicity import benjamini_hochberg
from aaco.governance.prior import LEAST_RUNS, prior_of_variances

FEWEST = 8  # sessions that a base and its scatter are read from
FEWEST_OF_NODE = 5  # sessions of a node that is judged
FEWEST_NODES = 3  # of two nodes nothing says which one is off
# Residuals over a median absolute deviation of n values are about as Student's t with this many degrees of freedom per
# value. Simulated for n = 8 to 100 normal values (n - 1) x 0.36 is the smallest that fits any p-value down to 1e-4.
DEGREES = 0.36
# What all groups say of one's scatter is worth at most so many degrees of freedom: whether scatters differ shows badly
# in small groups, and an uncapped prior raised false alarms of clean fleets to 18 %.
MOST_SHARED = 8.0
SMALL = 0.8  # the median absolute deviation of n values is too small by about n / (n - 0.8): Croux & Rousseeuw 1992


class NodeShift(Struct, frozen=True):
    """How far a node's sessions are off, in the median and in per cent; positive is worse. NaN p: not judged."""

    node: str
    sessions: int
    shift_pct: float
    p_value: float
    why_absent: str = ""


def p_values(residuals: Reals, sigmas: Reals, counts: NDArray[np.int64]) -> Reals:
    """Return the two-sided p-value of each residual, NaN where it cannot be judged: too few peers, or no scatter.

    counts: over how many residuals each sigma is. Scatter differs little from group to group of a fleet: each sigma is
    drawn towards what all groups say, as far as they agree (moderated t, Smyth 2004).
    """
    judged = (counts >= FEWEST) & (sigmas > 0)
    p = np.full(len(residuals), np.nan)
    if judged.any():
        of = counts[judged]
        sigma, degrees = _moderated(sigmas[judged] * of / (of - SMALL), np.asarray(DEGREES * (of - 1), np.float64))
        p[judged] = 2 * statistics.t_cdfs(-np.abs(residuals[judged]) / sigma, degrees)
    return p


def _moderated(sigmas: Reals, degrees: Reals) -> tuple[Reals, Reals]:
    """Return each sigma drawn towards those of all groups, and the degrees of freedom of both."""
    groups = np.unique(sigmas + 1j * degrees)  # pairs: a tenth of the time that unique takes over an axis
    if len(groups) < LEAST_RUNS:
        return sigmas, degrees
    prior = prior_of_variances(groups.real ** 2, groups.imag)
    worth = min(prior.degrees, MOST_SHARED)
    together = degrees + worth
    return np.sqrt((degrees * sigmas**2 + worth * prior.variance) / together), together


def q_values(p: Reals) -> Reals:
    """Return the q-value of each test by Benjamini and Hochberg; NaN stays NaN and is no test."""
    q = np.full(len(p), np.nan)
    tested = ~np.isnan(p)
    q[tested] = benjamini_hochberg(p[tested])
    return q


def node_shifts(nodes: NDArray[np.object_], residuals: Reals, sigmas: Reals,
                peers: NDArray[np.int64]) -> list[NodeShift]:
    """Return every node's shift, sorted by name: Student's t over its sessions' residuals in units of their sigma.

    peers: over how many nodes each residual's base is. Sessions without sigma or with a base of fewer than
    FEWEST_NODES nodes do not count.
    """
    counted = (peers >= FEWEST_NODES) & (sigmas > 0)
    names, places = np.unique(nodes, return_inverse=True)
    return [_node_shift(str(node), residuals[of], sigmas[of]) for place, node in enumerate(names)
            for of in [counted & (places == place)]]


def _node_shift(node: str, residuals: Reals, sigmas: Reals) -> NodeShift:
    count = len(residuals)
    if count < FEWEST_OF_NODE:
        return NodeShift(node, count, float("nan"), float("nan"), f"sessions that other nodes measured, too: {count}; "
                         f"{FEWEST_OF_NODE} are needed, of at least {FEWEST_NODES} nodes")
    scaled = residuals / sigmas
    error = float(scaled.std(ddof=1)) / np.sqrt(count)
    p_value = 2 * statistics.t_cdf(-abs(float(scaled.mean())) / error, count - 1) if error else float("nan")
    return NodeShift(node, count, 100 * float(np.expm1(np.median(residuals))), p_value,
                     "" if error else "its sessions have no scatter")
