"""The measured process: its loop, its rows, and that it never outlives its parent."""

import gzip
import json
import os
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
from msgspec.structs import replace

from aaco.core.errors import AacoError
from aaco.core.plan import Plan
from aaco.core.records import as_dict
from aaco.runner import iterations, ort, region, registry, self_accounting, worker
from aaco.runner.job import Job
from aaco.runner.stopping import Stop
from aaco.tracelake import layout
from tests import models


@pytest.fixture
def job(tmp_path):
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 64), np.float32))
    (tmp_path / "runtime").mkdir()
    model = models.chain(tmp_path / "chain.onnx")
    return Job(parent=os.getpid(), kind="time", model=str(model), provider="CPUExecutionProvider", provider_options={},
               session_options={}, inputs=str(tmp_path / "inputs.npz"), outcome=str(tmp_path / "outcome.json"),
               rows=str(iterations.path_of(tmp_path, 0)), account=str(self_accounting.path_of(tmp_path, 0)), warmup=3,
               iterations=7)


WORKER = [sys.executable, "-m", "aaco.runner.worker"]


def start(job, **changes):
    told = json.dumps(as_dict(job) | changes)
    return subprocess.run(WORKER, input=told, text=True, capture_output=True)


def test_a_job_leaves_its_rows_and_its_outcome(job, tmp_path):
    assert start(job).returncode == 0
    table = iterations.parse(tmp_path, 2)
    assert table["phase"].to_pylist() == ["warmup"] * 3 + ["measurement"] * 7
    ends, starts = table["t_end_ns"].to_numpy(), table["t_start_ns"].to_numpy()
    assert (starts[1:] >= ends[:-1]).all()
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert outcome["providers"] == ["CPUExecutionProvider"]
    assert {name for part in outcome["assignment"] for name in part["nodes"]} >= {"matmul0", "matmul3"}
    assert outcome["stopped_by"] == "iterations"
    assert 0 < outcome["null_loop"]["inside_ns"] < outcome["null_loop"]["per_iteration_ns"]


def test_a_warm_up_until_settled_says_what_it_took(job, tmp_path):
    """Too few to settle: the bound ends it. Mutation: no bound."""
    assert start(job, warmup=30, settle=True).returncode == 0
    assert json.loads((tmp_path / "outcome.json").read_text())["warmup"] == {
        "iterations": 30, "stopped_by": "iterations"}
    assert iterations.parse(tmp_path, 2)["phase"].to_pylist().count("warmup") == 30


def test_an_orphan_does_not_measure(job, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert start(job, parent=gone.pid).returncode == -signal.SIGKILL
    assert not (tmp_path / "outcome.json").exists()


def test_a_profiler_between_is_no_orphan_s_parent(job, tmp_path):
    """ncu starts the program as its child. Mutation: only the direct parent counts."""
    between = [sys.executable, "-c", f"import subprocess, sys; sys.exit(subprocess.call({WORKER!r}))"]
    subprocess.run(between, input=json.dumps(as_dict(job)), text=True, check=True)
    assert (tmp_path / "outcome.json").exists()


@pytest.mark.parametrize("refuses", [0, 201])
def test_a_profiler_is_told_where_the_measured_inferences_begin_and_end(job, tmp_path, monkeypatch, refuses):
    """Mutations: told before the warm-up; an error code passed over."""
    asked = []

    def call(name, code):
        return lambda: asked.append((name, len(iterations.parse(tmp_path, 2)))) or code

    driver = types.SimpleNamespace(cuProfilerStart=call("begin", refuses), cuProfilerStop=call("end", 0))
    monkeypatch.setattr(region.ctypes, "CDLL", lambda name: driver)
    if refuses:
        with pytest.raises(AacoError, match="cuProfilerStart failed with CUDA's error 201"):
            worker._run_timing(replace(job, region=True))
        assert asked == [("begin", 3)]
        return
    worker._run_timing(replace(job, region=True))
    assert asked == [("begin", 3), ("end", 10)]


def test_without_cuda_a_region_is_an_error_that_says_so(job):
    """Mutation: a traceback."""
    done = start(job, region=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_rows_of_an_earlier_run_are_not_overwritten(job, tmp_path):
    start(job)
    assert start(job).returncode == 1
    assert "exists" in json.loads((tmp_path / "outcome.json").read_text())["error"]["what"]


def test_the_loop_stops_by_its_rule_and_writes_each_row(tmp_path):
    descriptor = os.open(tmp_path / "rows", os.O_WRONLY | os.O_CREAT)
    reason, latencies = worker.loop(lambda: None, descriptor, 1, Stop(10))
    os.close(descriptor)
    assert (reason, len(latencies), iterations.count(tmp_path / "rows")) == ("iterations", 10, 10)


@pytest.mark.parametrize(("asked", "made"), [(0, 2), (7, 7), (500, 50)])
def test_the_profiled_pass_warms_up_as_the_plan_says(tmp_path, asked, made):
    """Mutation: two runs, whatever the plan."""
    model = models.chain(tmp_path / "chain.onnx")
    workload = ort.Workload(model, registry.backend("cpu", registry.backends()), {"x": np.ones((2, 64), np.float32)},
                            False)
    facts = ort.profile_pass(tmp_path, workload, Plan(model=str(model), warmup=asked, profile_iterations=3))
    assert (facts["warmup"], facts["iterations"]) == (made, 3)
    events = json.loads(gzip.decompress((tmp_path / layout.ORT_PROFILE).read_bytes()))
    assert sum(event["name"] == "model_run" for event in events) == made + 3
