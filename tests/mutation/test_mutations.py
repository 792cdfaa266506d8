"""Each check is broken once on purpose: the tests that are named for it must notice.

A mutation is one replacement in one file of the package, made in a copy. `python -m pytest tests/mutation` runs all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# file under src/aaco, what is there, what it becomes, tests that must fail
MUTATIONS = [
    ("core/statistics.py", "return math.ceil(1 / min(q, 1 - q) - 1e-9)", "return 1", "tests/unit/test_statistics.py"),
    ("core/statistics.py", "tail = (1 - level) / 2", "tail = 1 - level", "tests/unit/test_statistics.py"),
    ("core/statistics.py", "0.5 + level / 2", "level", "tests/unit/test_statistics.py"),
    ("core/session.py", "_start_ticks(self.pid) == self.start_ticks", "True", "tests/unit/test_session.py"),
    ("core/session.py", "self.boot_id == _boot_id() and", "", "tests/unit/test_session.py"),
    ("core/session.py", "version > FORMAT", "False", "tests/unit/test_session.py"),
    ("core/files.py", "temporary.unlink(missing_ok=True)\n            raise", "raise", "tests/unit/test_files.py"),
    ("core/files.py", "allow_nan=False", "allow_nan=True", "tests/unit/test_files.py"),
    ("core/readings.py", "if self.reading.value is None:\n            return None", "if self.reading.value is None:\n"
     "            return False", "tests/unit/test_readings.py"),
    ("core/readings.py", "all(item.holds for item in self.evidence if item.essential) and", "",
     "tests/unit/test_readings.py"),
    ("core/registry.py", "_refuse_twice(_ALIASES, name.lower(), function)", "pass", "tests/unit/test_readings.py"),
    ("core/config.py", 'layers.append(("command line", overrides or {}))',
     'layers.insert(0, ("command line", overrides or {}))', "tests/unit/test_config.py"),
    ("core/config.py", 'extra="forbid"', 'extra="ignore"', "tests/unit/test_config.py"),
    ("runner/iterations.py", "raw[: len(raw) // ROW.size * ROW.size]", "raw", "tests/unit/test_iterations.py"),
    ("runner/iterations.py", "(rows[:, 3] < rows[:, 2])", "False", "tests/unit/test_iterations.py"),
    ("runner/stopping.py", "elapsed_ns >= self.budget_ns", "elapsed_ns > self.budget_ns",
     "tests/unit/test_iterations.py"),
    ("runner/stopping.py", "100 * (median.high - median.low)", "(median.high - median.low)",
     "tests/unit/test_iterations.py"),
    ("profiler/ort.py", "run - warmup, pa.int64()", "run, pa.int64()", "tests/unit/test_ort_profile.py"),
    ("profiler/ort.py", 'CONTAINERS = {"If", "Loop",', 'CONTAINERS = {"If",', "tests/unit/test_ort_profile.py"),
    ("profiler/ort.py", "duration = 1000 * ", "duration = 1024 * ", "tests/unit/test_ort_profile.py"),
    ("analytics/attribution.py", "for end in ends[:-1]), duration]", "for end in ends)]",
     "tests/unit/test_attribution.py"),
    ("analytics/attribution.py", "min(duration, round(duration * end))", "round(1.5 * duration * end)",
     "tests/property/test_attribution.py"),
    ("analytics/attribution.py", "WHEN count(*) >= 100", "WHEN count(*) >= 1", "tests/unit/test_attribution.py"),
    ("analytics/inputs.py", "reach = np.maximum.accumulate(end)", "reach = end", "tests/unit/test_metrics.py"),
    ("analytics/steadiness.py", "np.median(latencies[:whole]", "np.mean(latencies[:whole]",
     "tests/unit/test_metrics.py"),
    ("analytics/metrics/kernels.py", "return kernels_per_inference / executed_nodes.num_rows",
     "return kernels_per_inference * 2 / executed_nodes.num_rows", "tests/unit/test_metrics.py"),
    ("analytics/metrics/health.py", "NEEDED = 0.6", "NEEDED = 0.0", "tests/unit/test_metrics.py"),
    ("analytics/roofline.py", "ideal_ns = max(compute_ns, memory_ns)", "ideal_ns = min(compute_ns, memory_ns)",
     "tests/unit/test_metrics.py"),
    ("analytics/rules/bound.py", "NEAR = 0.3", "NEAR = 0.0", "tests/unit/test_metrics.py"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutant")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize(("name", "old", "new", "tests"), MUTATIONS, ids=[f"{row[0]}:{row[1]}" for row in MUTATIONS])
def test_the_mutant_is_caught(copy, name, old, new, tests):
    path = copy / "src" / "aaco" / name
    original = path.read_text()
    assert original.count(old) >= 1, f"{name} does not hold {old!r} any more: renew the mutation"
    path.write_text(original.replace(old, new))
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(ROOT / tests)]
        mutant_first = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=os.environ | mutant_first, text=True, capture_output=True)
    finally:
        path.write_text(original)
    assert done.returncode == 1, f"survived:\n{done.stdout[-1500:]}"
