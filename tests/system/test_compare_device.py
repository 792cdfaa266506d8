"""`aaco compare` where a device does the work: its whole way, with ONNX Runtime on the CPU, which is told to be the
device's provider here, and a libcupti of our own, on whose device each inference launches kernels.
"""

from __future__ import annotations

import json
import os

import pytest

from aaco.core.session import Session
from aaco.workflows.duet import device, sides
from tests.fakes import cupti

# The user's own sitecustomize, to which the tracer's makes way: an inference is preceded by work of the device, of some
# more kernels in a process than in the next, as machines scatter, and of 5 % more where the side has one thread.
PLANTED = """
import ctypes, os, random
from aaco.runner import provider
device, bind = ctypes.CDLL(os.environ["FAKE_CUPTI"]), provider.bind
more = random.Random(os.getpid()).randrange(20)

def bound(session, job):
    made, kernels = bind(session, job), 400 + 20 * (job.session_options.get("intra_op_num_threads") == 1)

    def run():
        device.fake_work(kernels + more)
        made.run()

    return provider.BoundModel(run, made.produced, made.vary)

provider.bind = bound
"""


@pytest.fixture
def traced(aaco, monkeypatch, tmp_path):
    """Compares two settings of a model; the verdict, and what it says."""
    library = cupti.build(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    monkeypatch.setattr(device, "ON_CUDA", {"CPUExecutionProvider"})
    monkeypatch.setattr(sides.environment, "CPU_PROVIDER", "none of these")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    planted = {"PYTHONPATH": path, "FAKE_CUPTI": str(library), "FAKE_CUPTI_LIVE": "1"}

    def compare(*words, expect=0, library=str(library)):
        done = aaco.inside("compare", "gpt2-tiny", *words, "--processes", 5, "--pairs", 25, "--warmup", 2, "-q",
                           "--no-controls", "--tolerance", "2", expect=expect, AACO_CUPTI=library, **planted)
        return json.loads((aaco.latest / "regress/verdict.json").read_text()), " ".join(done.stdout.split())

    return compare


def test_a_device_that_does_more_is_slower_and_the_verdict_is_the_same_again(aaco, traced):
    """5 % more kernels on one side. Mutation: the kept times of the device not read again."""
    found, said = traced("--option-a", "intra_op_threads=2", "--option-b", "intra_op_threads=1", expect=3)
    assert (found["status"], found["metric"]) == ("regressed", "device_time_ms")
    assert 4 < found["ci"][0] < found["ci"][1] < 6 and found["effect_pct"] == pytest.approx(4.9, abs=0.2)
    assert found["duet"]["traced"] == 5 and found["duet"]["only_quiet"] and "device time" in said
    again = json.loads(aaco("compare", "--session", aaco.latest.name, "--json", expect=3).stdout)
    assert again == found
    session = Session.open(aaco.latest)
    assert len(list((session.folder / "runtime").glob("device-*.i64"))) == 5
    assert session.read_json("runtime/duet.json")["device"] == {"processes": 5, "why_absent": ""}
    assert "damaged: none" in aaco("info", "latest").stdout


def test_sides_in_processes_of_their_own_are_both_traced(traced):
    found, _ = traced("--env-b", "OMP_NUM_THREADS=1", expect=(0, 3))
    assert found["duet"]["traced"] == 5 and {item["metric"] for item in found["metrics"]} >= {"device_time_ms"}


def test_without_cupti_the_latency_is_judged_and_one_process_is_enough_to_know(traced):
    """Mutation: the tracer tried again in every process."""
    found, said = traced(expect=(0, 3), library="/no/libcupti.so")
    assert "in process 1: the process was not traced: /no/libcupti.so" in found["metrics_absent"]["device_time_ms"]
    assert found["metric"] == "latency_ms" and found["duet"]["traced"] == 1 and "device time n/a" in said
