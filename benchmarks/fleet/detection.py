"""How many planted changes are found, and how often a clean fleet raises an alarm."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aaco.core.statistics import exact_share
from aaco.fleet import answers
from aaco.fleet.compaction import compact
from aaco.fleet.ingest import bundles, ingest
from aaco.governance import fleet
from benchmarks.claims import Claim
from benchmarks.fleet._bundles import FleetPlan, sessions, write

SESSIONS, FLEETS, CLEAN = 1000, 5, 1000
QUICK = {"SESSIONS": 300, "FLEETS": 1, "CLEAN": 100}
FDR = 0.05
# groups, sessions of each, and how much the scatter differs from group to group (sd of its logarithm)
SHAPES = ((1, 60, 0.3), (16, 8, 0.0), (16, 18, 0.3), (16, 60, 0.0), (16, 60, 0.3))


def claims(captures: Path) -> Iterator[Claim]:
    """Planted changes through the whole of ingest, compaction and SQL; clean fleets by the statistics alone."""
    yield from _planted()
    for groups, count, differ in SHAPES:
        alarms = sum(_alarm(np.random.default_rng(seed), groups, count, differ) for seed in range(CLEAN))
        low, high = exact_share(alarms, CLEAN)
        yield Claim(f"alarms, {CLEAN} clean fleets of {groups} x {count}, scatter +-{differ:g}",
                    f"interval not above {FDR:g}", f"{alarms / CLEAN:.3f} ({low:.3f} to {high:.3f})", low <= FDR)


def _planted() -> Iterator[Claim]:
    hits: dict[str, list[int]] = {"regressions of 12 %": [0, 0, 0], "stragglers of 10 %": [0, 0, 0],
                                  "slow nodes of 4 %": [0, 0, 0]}
    for seed in range(FLEETS):
        plan = FleetPlan(SESSIONS, regressions=SESSIONS // 100, stragglers=SESSIONS // 100, slow_nodes=1, seed=seed)
        for counts, (planted, listed) in zip(hits.values(), _listed(plan), strict=True):
            counts[:] = (counts[0] + len(planted & listed), counts[1] + len(planted), counts[2] + len(listed - planted))
    for name, (hit, of, wrong) in hits.items():
        yield Claim(f"planted {name} found", ">= 95 %", f"{hit} of {of}; {wrong} others listed", hit >= 0.95 * of)


def _listed(plan: FleetPlan) -> list[tuple[frozenset[object], frozenset[object]]]:
    """Return what was planted and what is listed: sessions, processes, nodes. A session of a slow node is off, too."""
    rows, planted = sessions(plan)
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        list(write(Path(folder) / "bundles", plan))
        ingest(Path(folder) / "lake", bundles([Path(folder) / "bundles"]))
        compact(Path(folder) / "lake")
        worse = answers.regressions(Path(folder) / "lake", fdr=FDR)["worse"]
        top = answers.top(Path(folder) / "lake", fdr=FDR, most=len(rows))
    on_slow = {row.session_id for row in rows if row.node in planted.slow_nodes}
    off = {row["session_id"] for row in worse}
    return [(planted.regressions, frozenset(off - (on_slow - planted.regressions))),
            (planted.stragglers, frozenset((row["session_id"], row["process"]) for row in top["stragglers"])),
            (planted.slow_nodes, frozenset(row["node"] for row in top["slow_nodes"]))]


def _alarm(random: np.random.Generator, groups: int, count: int, differ: float) -> bool:
    levels = random.standard_normal((groups, count)) * np.exp(random.normal(0, differ, (groups, 1)))
    residuals = levels - np.median(levels, axis=1, keepdims=True)
    sigmas = 1.4826 * np.median(np.abs(residuals), axis=1).repeat(count)
    q = fleet.q_values(fleet.p_values(residuals.ravel(), sigmas, np.full(levels.size, count)))
    return bool((q <= FDR).any())
