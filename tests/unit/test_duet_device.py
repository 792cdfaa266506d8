"""The device's own time in a comparison in turns: recorded, kept, judged beside the latency, or absent with its reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from aaco.core.errors import AacoError, BadCapture
from aaco.core.records import as_dict
from aaco.core.tables import PAIRS
from aaco.governance.interleaved import duet, duet_verdict
from aaco.governance.interleaved.duet_verdict import DEVICE, Terms, Traced
from aaco.governance.prior import Prior
from aaco.report.sections import verdict as report
from aaco.runner import pairs
from aaco.runner.duet import ModelSide
from aaco.runner.pairs import DuetPlan
from aaco.tracelake.history.measures import LATENCY
from aaco.workflows.duet import device, kept, past
from tests.fakes import cupti

PLANNED = DuetPlan(0, "change", (0, 1), (0, 1, 1))
SIDES = [side for first in PLANNED.first for side in (first, 1 - first)]
TERMS = Terms(2.0, 0.01, duet.looks(5, 5, 0.01), "process", True, None, "no history")
# A process of a duet: it warms up, and takes its turns, four kernels of 100 and 200 ns or six; and before each turn
# what its third argument says.
PROGRAM = """
import ctypes, os, sys, time
from aaco.runner import pairs
device = ctypes.CDLL(os.environ['FAKE_CUPTI'])
def turn(side, kernels=(4, 6)):
    start = time.monotonic_ns()
    if kernels:
        device.fake_work(kernels[side])
    time.sleep(1e-3)
    return start, time.monotonic_ns()
turn(0), turn(1)
rows = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for place, side in enumerate(map(int, sys.argv[2])):
    exec(sys.argv[3])
    pairs.append(rows, place // 2, side, *turn(side), 50)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return cupti.build(tmp_path_factory.mktemp("libcupti"))


@pytest.fixture
def measure(tmp_path, library, monkeypatch):
    """Runs such a process under the tracer, as the comparison does; what is said of it, and its pairs."""
    monkeypatch.setenv("AACO_CUPTI", str(library))
    monkeypatch.setenv("FAKE_CUPTI", str(library))
    monkeypatch.setenv("FAKE_CUPTI_LIVE", "1")

    def timed(between="", **own):
        side = ModelSide(None, own)

        def run(both):
            path = pairs.path_of(tmp_path, 0)
            path.parent.mkdir()
            words = [str(path), "".join(map(str, SIDES)), between]
            subprocess.run([sys.executable, "-c", PROGRAM, *words], env=os.environ | both[0].environment, check=True,
                           stderr=subprocess.DEVNULL)
            return {"0": dict(both[0].environment)}

        said, why = device.timed(tmp_path, (side, side), PLANNED, run)
        return said["0"], why, pairs.parse(tmp_path, [PLANNED])

    return timed


def test_kernels_within_a_turn_are_its_time(measure):
    """Mutation: starts and ends left on the real-time clock; or the copy from the host counted, too."""
    environment, why, table = measure()
    assert why == "" and environment["AACO_CUPTI_MODE"] == "kernels"
    assert table["baseline_device_ms"].to_pylist() == pytest.approx([600e-6] * 3)
    assert table["current_device_ms"].to_pylist() == pytest.approx([900e-6] * 3)


def test_a_tracer_that_hangs_does_not_hold_up_the_comparison(monkeypatch):
    """Pairs that come late are waited for. Mutation: the time since the beginning counts."""
    now, told = [0.0], []
    monkeypatch.setattr(device.time, "monotonic", lambda: now[0])
    look = device.patient(told.append)
    for count in (0, 1, 2, 3):
        now[0] += 500
        look(count)
    now[0] += 599
    look(3)
    assert told == [0, 1, 2, 3, 3]
    now[0] += 2
    with pytest.raises(AacoError, match="no pair of turns came for 600 s under the tracer"):
        look(3)


def test_a_side_with_a_path_of_its_own_keeps_it(measure, tmp_path):
    mine = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment, why, _ = measure(PYTHONPATH=mine)
    assert why == "" and environment["PYTHONPATH"].endswith(mine) and environment["PYTHONPATH"] != mine


@pytest.mark.parametrize("between, own, said", [
    ("", {"AACO_CUPTI": "/no/libcupti.so"}, "the process was not traced: /no/libcupti.so"),
    ("", {"FAKE_CUPTI_ERROR": "cuptiActivityEnable10:39"}, "another profiler holds CUPTI"),
    ("", {"FAKE_CUPTI_KEEPS": "1"}, "CUPTI kept 1 buffers of records to itself"),
    ("place == 3 and (os.fork() or os._exit(0))", {}, "the program forked 1 time"),
    ("place == 3 and turn(0)", {}, "4 of 34 pieces of the device's work lie in no turn"),
    ("place == 5 and turn.__setattr__('__defaults__', (None,))", {}, "the device did nothing in 1 of 6 turns")])
def test_what_is_missing_is_said_and_nothing_is_kept(measure, tmp_path, between, own, said):
    """Mutation: times kept although records were lost."""
    _, why, table = measure(between, **own)
    assert why.startswith("in process 1: ") and said in why
    assert table["baseline_device_ms"].null_count == table.num_rows
    assert not pairs.device_path_of(tmp_path, 0).exists()


def rows(folder, busy=None):
    """Three pairs as planned, turns of 100 us; the device's time in each of them."""
    raw = [(turn // 2, side, 1_000_000 * turn + 1, 1_000_000 * turn + 100_001, 50) for turn, side in enumerate(SIDES)]
    path = pairs.path_of(folder, 0)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(np.array(raw, "<i8").tobytes())
    if busy is not None:
        pairs.keep_device(folder, 0, np.array(busy))
    return folder


def test_the_times_kept_are_those_of_each_side(tmp_path):
    """Mutation: in the order they ran."""
    table = pairs.parse(rows(tmp_path, [10, 11, 21, 20, 31, 30]), [PLANNED]).to_pydict()
    assert table["baseline_device_ms"] == [10e-6, 20e-6, 30e-6] and table["current_device_ms"] == [11e-6, 21e-6, 31e-6]


def test_pairs_of_before_have_none(tmp_path):
    assert pairs.parse(rows(tmp_path), [PLANNED])["baseline_device_ms"].null_count == 3


@pytest.mark.parametrize("busy", [[1] * 5, [1] * 7, [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 200_000]])
def test_times_of_a_device_that_cannot_be_are_refused(tmp_path, busy):
    with pytest.raises(BadCapture, match="device-000000"):
        pairs.parse(rows(tmp_path, busy), [PLANNED])


@pytest.mark.parametrize("providers, why", [
    (("CUDAExecutionProvider", "TensorrtExecutionProvider"), ""), (("host", "host"), "aaco trace"),
    (("CPUExecutionProvider", "CPUExecutionProvider"), "the processor does the work"),
    (("CUDAExecutionProvider", "CPUExecutionProvider"), "the processor does the work of one side"),
    (("MIGraphXExecutionProvider",) * 2, "AACO has no tracer for what MIGraphXExecutionProvider does on a device")])
def test_where_no_tracer_can_try_it_is_said_why(providers, why):
    found = device.why_not([SimpleNamespace(facts={"provider": name}, on_host=name.startswith(("CPU", "host")))
                            for name in providers])
    assert why in found if why else found == ""


def measured(host=1.0, on_device=1.0, spread=0.05, processes=5, spins=None):
    """Pairs of processes: latencies that scatter by `spread` from process to process, the device's time by 0.1 %."""
    rng, count = np.random.default_rng(2), 40
    columns = {name: [] for name in ("process", "kind", "pair", "created_first", "ran_first", "spin_ns", "baseline_ms",
                                     "current_ms", "baseline_device_ms", "current_device_ms")}
    for process in range(processes):
        lift, drift = np.exp(spread * rng.standard_normal()), np.exp(0.001 * rng.standard_normal())
        columns["process"] += [process] * count
        columns["kind"] += ["change"] * count
        columns["pair"] += range(count)
        columns["created_first"] += [("baseline", "current")[process % 2]] * count
        columns["ran_first"] += ["baseline"] * count
        columns["spin_ns"] += spins or [100] * count
        columns["baseline_ms"] += [2.0] * count
        columns["current_ms"] += (2.0 * host * lift * np.exp(0.01 * rng.standard_normal(count))).tolist()
        columns["baseline_device_ms"] += [0.8] * count
        columns["current_device_ms"] += [0.8 * on_device * drift] * count
    return duet.marked(PAIRS.build(**columns))


def judged(table, why="", terms=TERMS, traced=5):
    found = duet_verdict.find(table, terms, why)
    return duet_verdict.document(table, terms, found, Traced(traced, why), "processes", (), ("a", "b"), "s", 7, "0",
                                 "aaco compare a b")


@pytest.mark.parametrize("host, on_device, spread, status, metric", [
    (1.0, 1.0, 0.05, "equivalent", DEVICE), (1.0, 1.05, 0.05, "regressed", DEVICE),
    (1.2, 1.0, 0.001, "regressed", LATENCY), (1.2, 1.05, 0.001, "regressed", DEVICE),
    (1.0, 0.9, 0.05, "improved", DEVICE)])
def test_the_device_speaks_for_both_unless_the_host_alone_is_slower(host, on_device, spread, status, metric):
    """Mutation: the latency speaks for both, or is not judged where the device is."""
    found = judged(measured(host, on_device, spread))
    assert (found.status, found.metric, found.regression) == (status, metric, status == "regressed")
    assert {item.metric for item in found.metrics} == {LATENCY, DEVICE} and found.metrics_absent == {}
    by = {item.metric: item for item in found.metrics}
    assert by[DEVICE].effect_pct == pytest.approx(100 * (on_device - 1), abs=0.3)
    assert by[DEVICE].ci[1] - by[DEVICE].ci[0] < 1.5 and by[DEVICE].baseline_value == pytest.approx(0.8)
    assert found.latency_delta_pct == by[LATENCY].effect_pct and found.q_value == by[metric].q_value is not None
    assert found.duet.traced == 5 and ("a kernel, a fill" in found.estimator) == (metric == DEVICE)


def test_only_the_latency_leaves_out_disturbed_pairs():
    """Mutation: the device's times of disturbed pairs left out, too."""
    table = measured(spins=[100] * 25 + [300] * 15)
    found = duet_verdict.find(table, TERMS, "")
    assert {one.pairs for one in found.latency.units} == {25} and {one.pairs for one in found.headline.units} == {40}
    loud = duet_verdict.find(measured(spins=[100] * 15 + [300] * 25), TERMS, "")
    assert loud.latency.fit is None and loud.headline.comparison.status == "equivalent"
    document = judged(measured(spins=[100] * 15 + [300] * 25))
    assert "0 process" in document.metrics_absent[LATENCY] and document.latency_delta_pct is None
    assert document.why_absent["latency_delta_pct"] and [item.metric for item in document.metrics] == [DEVICE]


def test_without_a_tracer_the_latency_is_judged_as_before():
    """Mutation: no word of what is missing."""
    why = "in process 1: the process was not traced: no libcupti.so is found"
    table, plain = measured(1.3, 1.05, 0.001), replace(TERMS, only_quiet=True)
    found = judged(table, why, plain, traced=1)
    assert (found.metric, found.status, found.q_value) == (LATENCY, "regressed", None)
    assert found.metrics_absent == {DEVICE: why} and [item.metric for item in found.metrics] == [LATENCY]
    text = " ".join(report.render(found.model_dump(mode="json")).split())
    assert f"device time n/a: {why}" in text and "tracer in 1 process;" in text
    on_host = judged(table, "the processor does the work", replace(TERMS, only_quiet=False), traced=0)
    assert "device time" not in report.render(on_host.model_dump(mode="json"))


def test_two_metrics_are_two_chances_of_a_false_alarm():
    """A change that is one in a hundred alone is two in a hundred among two. Mutation: q-values of one metric each."""
    table = measured(1.0, 1.05, 0.3)
    found = duet_verdict.find(table, TERMS, "")
    p_values = {name: item.comparison.p_value for name, item in found.each.items()}
    assert found.judged.q_values[DEVICE] == pytest.approx(min(2 * p_values[DEVICE], 1.0))


def test_the_text_of_both_metrics(golden):
    document = judged(measured(1.0, 1.05)).model_dump(mode="json")
    golden("report/compare_device.txt", report.render(document))


def test_what_was_measured_before_is_judged_by_its_latency():
    """A document and pairs of the version before. Mutation: a field required that they lack."""
    terms = as_dict(replace(TERMS, prior=Prior(1e-4, 4.0, 3)))
    before = {name: value for name, value in terms.items() if "device" not in name}
    table = measured(1.3, 1.0, 0.001).drop_columns(["baseline_device_ms", "current_device_ms"])
    document = {"terms": before, "stopped_by": "processes", "differences": [], "labels": ["a", "b"], "seed": 7,
                "reproduce_command": "aaco compare a b"}
    found = kept.verdict("s", document, PAIRS.conform(table, "pairs"), kept._terms(document["terms"]))
    assert (found.status, found.metric) == ("regressed", LATENCY)
    assert "did not record what a device does" in found.metrics_absent[DEVICE]
    assert kept._terms(terms).prior == Prior(1e-4, 4.0, 3) == kept._terms(before).prior


def test_the_device_has_a_history_of_its_own(tmp_path):
    """Mutation: one key for latencies and times of the device."""
    side = SimpleNamespace(label="m", config="c", identifies={"model_hash": "h"}, same_as="m",
                           runs=ModelSide(None, {}))
    rng, both = np.random.default_rng(1), (side, side)
    for run in range(3):
        for on_device, spread in ((False, 0.1), (True, 0.001)):
            values = [duet.Unit("baseline control", value, 1.0, 9) for value in rng.normal(0, spread, 6)]
            assert past.keep(tmp_path, "here", f"s{run}", both, values, on_device) == 6
    priors = [past.prior(tmp_path, "here", both, on_device)[0] for on_device in (False, True)]
    assert [round(prior.variance ** 0.5, 3) for prior in priors] == [pytest.approx(0.1, rel=0.5),
                                                                      pytest.approx(0.001, rel=0.5)]
