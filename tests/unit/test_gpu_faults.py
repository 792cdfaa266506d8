"""benchmarks.gpu.faults: what it takes a session's diagnosis for, on recordings of an H200 and on planted readings."""

import gzip
import json
from pathlib import Path

import pytest

from aaco import pipeline
from aaco.analytics import metrics as every
from aaco.analytics.diagnosis import diagnose
from aaco.core import registry
from aaco.core.config import resolve
from aaco.core.readings import Reading
from aaco.tracelake import layout
from benchmarks.gpu import faults

registry.load(every, "aaco.metrics")
ROOT = Path(__file__).parents[2]
KNOWN_TO_CUPTI = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")
OF = {case.what.partition(":")[0]: case for case in faults.CASES}
HELD = {"device_throttled_pct": 98, "device_clock_below_max_pct": 22, "gpu_active_ratio": 0.98}


def diagnosed(**values):
    """The document of a session of which these readings are known."""
    readings = {name: Reading(name, metric.unit, values.get(name), "" if name in values else "not asked")
                for name, metric in registry.METRICS.items()}
    return diagnose(readings).document()


@pytest.mark.parametrize("name", ["launch-bound", "memory-bound", "compute-bound", "transfers", "control"])
def test_programs_are_named_by_what_our_tracer_sees(name, tmp_path):
    """Recordings of the very workloads, without the shapes and operators that only PyTorch's profiler records."""
    [trace] = (ROOT / "tests/captures").glob(f"torch_scenarios*/{OF[name].plant}.trace.json.gz")
    whole = json.loads(gzip.decompress(trace.read_bytes()))
    whole["traceEvents"] = [one for one in whole["traceEvents"] if one.get("cat", "") in ("", *KNOWN_TO_CUPTI)]
    seen = tmp_path / "trace.json"
    seen.write_text(json.dumps(whole))
    settings = resolve(overrides={"storage": {"sessions_dir": tmp_path / "sessions"}}, environment={})
    found = pipeline.import_captures([seen], settings).session.read_json(layout.BOTTLENECK)
    assert [each for each, case in OF.items() if faults.judged(case, found).met] == [name]


def test_a_fault_that_is_not_planted_misses():
    """Mutation: only what is named counts."""
    limits = {"compute_limited_pct": 95, "device_limited_pct": 96, "host_limited_pct": 3}
    assert faults.judged(OF["compute-bound"], diagnosed(**limits)).met
    for more in ({"device_others_sm_pct": 30}, {"scheduler_interference": 0.3}, HELD):
        assert not faults.judged(OF["compute-bound"], diagnosed(**limits | more)).met
    near = {"device_throttled_pct": 98, "device_clock_below_max_pct": 7}  # a board near its limit says so, as it is
    assert faults.judged(OF["compute-bound"], diagnosed(**limits | near)).met
    assert not faults.judged(OF["transfers"], diagnosed(transfer_limited_pct=96, **near)).met
    shared = faults.judged(OF["GPU contention"], diagnosed(**limits, device_others_sm_pct=30))
    assert shared.met and shared.measured == "shared_device (device_others_sm_pct 30); compute_bound"
    assert faults.judged(OF["host contention"], diagnosed(scheduler_interference=0.3)).met
    held = faults.judged(OF["power throttling"], diagnosed(**limits | HELD))
    assert held.met and held.measured.startswith("throttled (device_throttled_pct 98, device_clock_below_max_pct 22)")


def test_what_runs_beside_a_program_has_begun_and_ends():
    with faults.beside("benchmarks.faults.hogs", "busy", str(faults.CPU), "0.1", str(faults.os.getpid())):
        pass
    with pytest.raises(faults.AacoError, match="did not become ready"), faults.beside("platform"):
        pass


def test_a_case_that_cannot_run_does_not_stop_the_others(tmp_path, monkeypatch):
    """Without CUPTI, and with a hog that does not begin. Mutation: the errors not caught."""
    monkeypatch.setenv("AACO_CUPTI", str(tmp_path / "none.so"))
    monkeypatch.setattr(faults, "CASES", (OF["launch-bound"], OF["control"]))
    first, second = faults.claims(tmp_path)
    assert first.met is second.met is False and "aaco trace ended with 6" in first.measured


def test_the_plants_are_those_that_are_recorded():
    """The programs need PyTorch, so their names are looked for in the text."""
    plants = (ROOT / "benchmarks/scenarios_torch.py").read_text()
    assert all(f'Plant("{case.plant}",' in plants for case in faults.CASES)
