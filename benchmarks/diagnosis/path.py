"""The critical path: what it costs, that it fills the window of every real trace, that slack is what it says, and that
a rank which was made late is on it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaco.analytics.critical_path import answer, dag
from aaco.core.errors import BadCapture
from aaco.steps.findings import critical_path
from aaco.tracelake import layout
from benchmarks import schedules, traces
from benchmarks.claims import Claim
from benchmarks.ordered import imported

DISPATCHES = 1_000_000
CPU_S, PEAK_MB = 10.0, 1024.0
RANDOM = 1000
OURS = Path(__file__).parents[2] / "tests/captures"
FOLDERS = ("kineto", "rpd", "rocprofv3-rocpd", "rocprofv3-json", "rocprofv3-csv", "legacy-rocprof",
           "h200/torch_scenarios")
SPUN_NS, STEPS = 2_040_000, 12  # what the README of our two-rank recording says was planted
EXAMINE = """
import sys
from aaco.core.config import Config
from aaco.core.session import Session
from aaco.steps import make_findings
settings = Config.from_dict({"analysis": {"critical_path_work": 10**9}}).analysis
make_findings.make_one(Session.open(sys.argv[1]), "critical_path", settings)
"""


def claims(captures: Path) -> list[Claim]:
    """Every claim about critical paths."""
    return [*_cost(), _fills(captures), *_slack(), *_straggler()]


def _cost() -> list[Claim]:
    """A process of its own reads the tables of a session, finds the path and writes it."""
    with tempfile.TemporaryDirectory() as folder:
        made = schedules.trace_of(DISPATCHES, Path(folder))
        cost = traces.cost(["-c", EXAMINE, str(made.folder)])
        course = made.read_json(layout.finding("critical_path"))["paths"][0]
    exact = sum(course["bound_by_ns"].values()) == course["window_ns"]
    what = f"path and slack of {DISPATCHES:,} dispatches"
    return [Claim(f"{what}: CPU time of the process", f"<= {CPU_S:g} CPU s", f"{cost.cpu_s:.1f} CPU s",
                  cost.cpu_s <= CPU_S),
            Claim(f"{what}: peak memory", f"<= {PEAK_MB:g} MB", f"{cost.peak_mb:.0f} MB", cost.peak_mb <= PEAK_MB),
            Claim(f"{what}: parts sum to the window", "exact", f"{course['window_ns']:,} ns, {course['segments']:,} "
                  "segments", exact)]


def _fills(captures: Path) -> Claim:
    """Of every real capture with device work, the segments' sum and the window, and that none overlap."""
    good = found = 0
    for folder in (*(captures / name for name in FOLDERS), OURS / "torch_h200", OURS / "torch_ranks_h100"):
        for trace in sorted(path for path in folder.rglob("*") if path.is_file()):
            for path in _paths(trace):
                found += 1
                segments, graph = path.segments, path.graph.dag
                whole = segments.start[0] == graph.begin and segments.end[-1] == graph.end
                joined = bool((segments.start[1:] == segments.end[:-1]).all())
                total = sum(answer.bound_by(segments).values())
                good += bool(whole and joined and total == path.window_ns and graph.holds())
    return Claim("the path fills the window of real captures, to the ns", "all", f"{good} of {found} paths",
                 found > 0 and good == found)


def _paths(trace: Path) -> list[answer.CriticalPath]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return critical_path.find(imported([trace], Path(folder)))
        except BadCapture:
            return []


def _slack() -> list[Claim]:
    """A node held back by its slack leaves the end alone, by one ns more moves it; what-ifs are the schedule again."""
    chance = np.random.default_rng(7)
    right = nodes = again = 0
    for _ in range(RANDOM):
        found = dag.bind(schedules.random_dag(chance)).dag
        _, end = schedules.played(found)
        for node, free in enumerate(dag.slack(found).tolist()):
            nodes += 1
            right += (schedules.played(found, node, free)[1] == end
                      and schedules.played(found, node, free + 1)[1] == end + 1)
        odd = np.arange(found.nodes) % 2 == 1
        scale = float(chance.choice([0.0, 0.5, 0.9, 1.5, 3.0]))
        expected = schedules.played(found, scale=scale, chosen=set(np.flatnonzero(odd).tolist()))[1]
        again += dag.window(found, np.where(odd, scale, 1.0)) == expected
    return [Claim(f"slack on {RANDOM:,} random graphs is that of trying it out", "all", f"{right:,} of {nodes:,} nodes",
                  right == nodes),
            Claim("what-ifs on them are the schedule played again", "all", f"{again:,} of {RANDOM:,}",
                  again == RANDOM)]


def _straggler() -> list[Claim]:
    """Two ranks, the second of which was made to spin before each all-reduce; and recorded without that."""
    late, even = _ranks("late"), _ranks("even")
    work, segments = late.events.work, late.segments
    length = segments.end - segments.start
    capture = np.where(segments.work >= 0, work.capture[np.maximum(segments.work, 0)],
                       late.events.calls.capture[np.maximum(segments.call, 0)])
    share = float(length[capture == 1].sum() / late.window_ns)
    (spin,) = (name for name in late.events.names if "spin_kernel" in name)
    spun = int(late.on_path[work.name == late.events.names.index(spin)].sum()) / STEPS
    measured = _step_ns(even, even.events.work.end)
    predicted = _step_ns(late, answer.replayed(late, {spin: 0.0})[1])
    off = predicted / measured - 1
    return [Claim("two ranks: share of the path on the rank that was made late", ">= 95 %", f"{share:.1%}",
                  share >= 0.95),
            Claim(f"two ranks: spinning on the path per step (planted {SPUN_NS / 1e6:.2f} ms)", "within 2 %",
                  f"{spun / 1e6:.3f} ms", abs(spun / SPUN_NS - 1) <= 0.02),
            Claim("two ranks: a step without the spinning, what-if against recorded", "within 2 %",
                  f"{predicted / 1e3:.1f} us, recorded {measured / 1e3:.1f} us ({off:+.2%}); with it "
                  f"{_step_ns(late, work.end) / 1e3:,.0f} us", abs(off) <= 0.02)]


def _ranks(case: str) -> answer.CriticalPath:
    """The one path of both ranks."""
    with tempfile.TemporaryDirectory() as folder:
        files = [OURS / f"torch_ranks_h100/{case}_rank{rank}.json.gz" for rank in range(2)]
        (path,) = critical_path.find(imported(files, Path(folder)))
    return path


def _step_ns(path: answer.CriticalPath, ended: NDArray[np.int64]) -> float:
    """The median time from the end of one all-reduce to that of the next, over both ranks."""
    work = path.events.work
    reduces = [number for number, name in enumerate(path.events.names) if "AllReduce" in name]
    each = (np.sort(ended[np.isin(work.name, reduces) & (work.capture == rank)]) for rank in range(2))
    return float(np.median(np.concatenate([np.diff(ends) for ends in each])))
