"""How many planted changes are found, and how often a clean fleet raises an alarm."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from aaco.core.arrays import Reals
from aaco.fleet import answers
from aaco.fleet.compaction import compact
from aaco.fleet.ingest import bundles, ingest
from aaco.governance import fleet
from benchmarks.claims import Claim
from benchmarks.fleet._bundles import SESSION_SD, FleetPlan, sessions, write
from benchmarks.intervals import exact_share

SESSIONS, FLEETS, CLEAN, SERIES = 1000, 5, 1000, 200
QUICK = {"SESSIONS": 300, "FLEETS": 1, "CLEAN": 100, "SERIES": 20}
CHANGE, GROUPS, LONG, NEAR = 1.06, 16, 60, 2  # of a group's level; sessions of each; how near its place is found
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
    yield from _changes_of_level()


def _changes_of_level() -> Iterator[Claim]:
    alarms, found, others = 0, 0, 0
    for seed in range(SERIES):
        random = np.random.default_rng(seed)
        alarms += bool(_changes(_levels(random)))
        levels, place = _levels(random), int(random.integers(10, LONG - 10))
        levels[0, place:] *= CHANGE
        listed = _changes(levels)
        near = [change for change in listed if abs(change - place) <= NEAR]
        found, others = found + bool(near), others + len(listed) - len(near)
    low, high = exact_share(alarms, SERIES)
    yield Claim(f"alarms of changes of level, {SERIES} clean fleets of {GROUPS} x {LONG}",
                f"interval not above {FDR:g}", f"{alarms / SERIES:.3f} ({low:.3f} to {high:.3f})", low <= FDR)
    yield Claim(f"planted changes of {100 * (CHANGE - 1):.0f} % found within {NEAR} sessions", ">= 95 %",
                f"{found} of {SERIES}; {others} others listed", found >= 0.95 * SERIES)


def _levels(random: np.random.Generator) -> Reals:
    return random.lognormal(0, SESSION_SD, (GROUPS, LONG))


def _changes(levels: Reals) -> list[int]:
    """Return the places of the changes that `aaco fleet trend` lists; those of group g begin at g x LONG."""
    count = levels.size
    table = pa.table({**{name: ["x"] * count for name in ("device", "backend", "fingerprint", "metric", "unit")},
                      "model": np.arange(GROUPS).repeat(LONG).astype(str).tolist(), "time_ns": np.arange(count),
                      "several_devices": pa.nulls(count, pa.int64()), "git_commit": pa.nulls(count, pa.string()),
                      "session_id": np.arange(count).astype(str).tolist(),
                      "direction": ["lower_is_better"] * count, "level": levels.ravel()})
    groups = answers.trend_of(table, "latency_ms", FDR)["groups"]
    return [int(change["session_id"]) for group in groups for change in group["changes"]]


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
