"""The guards on our recording of an H100 at its power cap."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from aaco.analytics import metrics as every
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.measure import measure
from aaco.analytics.quality import co_tenants, features
from aaco.analytics.quality.co_tenants import run_devices
from aaco.analytics.timeline import idle
from aaco.collectors.gpu import nvml, visible
from aaco.core import registry
from aaco.core.config import Analysis
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent, Reading
from aaco.core.tables import GPU_EVENTS, INFERENCE_ITERS, SAMPLES, replaced

registry.load(every, "aaco.metrics")  # in their usual order, whichever test comes first
EVENTS = nvml.parse(Path(__file__).parents[1] / "captures/nvml_h100/nvml.bin")
AT = EVENTS["t_ns"].to_numpy()


def read(name, first=AT[0] + 8_000_000_000, last=AT[0] + 16_000_000_000):
    return registry.METRICS[name].compute(run_devices(EVENTS), MeasuredSpans(np.array([first]), np.array([last])))


def test_a_device_at_its_cap_is_throttled():
    """The idle second device takes no part. Mutation: idle devices counted; gpu_idle as a throttle reason."""
    assert read("device_throttled_pct") > 95
    assert read("device_power_of_cap_pct") == pytest.approx(100, abs=2)
    assert 50 < read("device_temperature_max_c").value < 75
    assert 1 < read("device_clock_variation_pct") < 15


def test_each_iteration_has_its_throttling_and_its_sharing():
    """Before, during and after the load; the idle device takes no part. Mutations: all devices; any reason."""
    at = AT[0] + np.array([3000, 10000, 18700]) * 1_000_000
    made = INFERENCE_ITERS.build(iteration=[0, 1, 2], phase=["measurement"] * 3, process=[0] * 3, t_start_ns=at,
                                 t_end_ns=at + 300_000_000, latency_ms=[300.0] * 3)
    held = EVENTS.set_column(EVENTS.schema.get_field_index("processes"), "processes",
                             [np.where(EVENTS["device_id"].to_numpy() == 0, 2, 9)])
    told = SAMPLES.build(t_ns=[*at, *at], device_id=[0] * 6, name=["others_sm_pct"] * 3 + ["own_sm_pct"] * 3,
                         value=[0.0, 40, 0, 5, 5, 5])
    rows = features.of_iterations(made, None, run_devices(held, told), samples=told).to_pylist()
    assert [row["device_others_sm_pct"] for row in rows] == [0, 40, 0]
    unseen = features.of_iterations(made, None, run_devices(held), samples=told.slice(0, 3))
    assert unseen["device_others_sm_pct"].null_count == 3
    assert unseen["throttled"].to_pylist() == [0, 1, 0] and unseen["device_processes"].to_pylist() == [2, 2, 2]
    assert [row["throttled"] for row in rows] == [0, 1, 0]
    assert rows[1]["gpu_util_pct"] > 95 and rows[1]["power_w"] > 600 and rows[0]["power_w"] < 200
    assert [row["device_processes"] for row in rows] == [2, 2, 2]


def conditions(**values):
    """Those that stand where these readings alone are known."""
    readings = {name: Reading(name, metric.unit, values.get(name), "" if name in values else "not asked")
                for name, metric in registry.METRICS.items()}
    return [one.label for one in diagnose(readings).conditions]


def shared(own, others):
    """The reading, and whether the condition stands, of shares every 200 ms."""
    at = np.arange(AT[0] + 8_000_000_000, AT[0] + 16_000_000_000, 200_000_000)
    rows = [(time, name, value) for time, mine, theirs in zip(at, own, others, strict=False)
            for name, value in (("own_sm_pct", mine), ("others_sm_pct", theirs))]
    samples = SAMPLES.build(device_id=[0] * len(rows), **dict(zip(("t_ns", "name", "value"), zip(*rows, strict=True),
                                                                  strict=True)))
    spans = MeasuredSpans(np.array([at[0]]), np.array([at[0] + 8_000_000_000]))
    value = registry.METRICS["device_others_sm_pct"].compute(samples, run_devices(EVENTS, samples), spans).value
    return value, conditions(device_others_sm_pct=value)


def test_who_has_another_device_is_no_neighbour():
    """Mutation: every device counts."""
    samples = SAMPLES.build(t_ns=[1, 1, 1, 1], device_id=[0, 0, 1, 1], name=["own_sm_pct", "others_sm_pct"] * 2,
                            value=[60.0, 3, 0, 95])
    assert co_tenants.others(samples)["value"].to_pylist() == [3]


def test_a_device_is_shared_where_others_compute_on_it():
    """What they had before is not of the measured time. Mutations: the first second counts; the rule from 50 on."""
    assert shared([60] * 40, [90] * 5 + [8] * 35) == (8, ["shared_device"])
    assert shared([60] * 40, [90] * 5 + [0] * 35) == (0, [])
    with pytest.raises(Absent, match=r"none of the processes .* belongs to this run"):
        shared([0] * 40, [30] * 40)
    with pytest.raises(Absent, match="2 shares of others_sm_pct"):
        shared([60] * 7, [30] * 7)


def two_devices(mine=(), theirs=()):
    """Telemetry and samples over a measured second: both devices busy, others' work and processes on the second.

    mine: own shares that the driver tells, by device; theirs: processes of ours that hold a device.
    """
    at = np.repeat(np.arange(20) * 100_000_000, 2)
    device = np.tile([0, 1], 20)
    events = GPU_EVENTS.build(t_ns=at, device_id=device, gpu_util_pct=np.where(device == 0, 50.0, 99.0),
                              processes=np.where(device == 0, 1, 7), power_w=np.where(device == 0, 300.0, 700.0),
                              throttle_reasons=[[], ["sw_power_cap"]] * 20, source=["nvml"] * 40)
    told = [(int(time), number, name, value) for time in at[::2] for name, values in (
        ("sm_pct", ((0, 40), (1, 90))), ("others_sm_pct", ((0, 3), (1, 95))), ("own_sm_pct", mine),
        ("own_processes", theirs)) for number, value in values]
    samples = SAMPLES.build(**dict(zip(("t_ns", "device_id", "name", "value"), zip(*told, strict=True), strict=True)))
    made = INFERENCE_ITERS.build(iteration=[0], phase=["measurement"], process=[0], t_start_ns=[0],
                                 t_end_ns=[2_000_000_000], latency_ms=[2000.0], batch=[1])
    return {"gpu_events": events, "samples": samples, "inference_iters": made}


@pytest.mark.parametrize(("tables", "examined", "devices", "known_by"), [
    (two_devices(mine=((0, 30), (1, 0))), {}, (0,), "worked there"),
    (two_devices(theirs=((0, 1),)), {"visible_devices": {"devices": [1]}}, (0,), "held it"),
    (two_devices(), {"visible_devices": {"devices": [0], "in_order": True}}, (0,), "what the run sees"),
    (two_devices(), {"visible_devices": {"devices": [1, 0], "in_order": True}, "cuda_numbers": (1,)}, (0,),
     "what CUDA calls 1 in the run"),
    (two_devices(), {"visible_devices": {"devices": [1, 0], "in_order": False}, "cuda_numbers": (1,)}, (0, 1),
     "what the run sees"),
    (two_devices(), {"visible_devices": {"devices": [0], "in_order": True}, "cuda_numbers": (3,)}, (0,),
     "what the run sees"),
    (two_devices(), {}, (0, 1), "which of them the run used is not known")])
def test_only_devices_that_the_run_used_count(tables, examined, devices, known_by):
    """What is best known decides. Mutations: every busy device; CUDA's number taken for the library's."""
    readings = measure(tables, None, Analysis(), examined=examined)
    alone = devices == (0,)
    for name, of_one, of_both in (("device_sm_pct", 40, 65), ("device_processes_max", 1, 7),
                                  ("device_throttled_pct", 0, 50)):
        assert readings[name].value == pytest.approx(of_one if alone else of_both), name
    said = readings["device_processes_max"].method
    assert said.startswith("of device 0: " if alone else "of devices 0, 1: ") and said.endswith(known_by)


def test_others_on_the_runs_own_device_still_count():
    """Beside those of another, which do not. Mutation: the other device's own processes are looked at."""
    readings = measure(two_devices(mine=((1, 30),)), None, Analysis())
    assert readings["device_others_sm_pct"].value == 95 and readings["device_processes_max"].value == 7
    assert readings["device_others_sm_pct"].method == "of device 1: the run's processes worked there"
    assert [one.label for one in diagnose(readings).conditions if one.label == "shared_device"]


@pytest.mark.parametrize(("seen", "why"), [
    ({"why_not": visible.OF_INSTANCE, "instance": True}, "an instance of a device"),
    ({"why_not": visible.OF_KINDS, "instance": False}, "which of 2 devices the run used is not known: CUDA_VISIBLE"),
    ({"devices": [], "in_order": True}, "hides every device")])
def test_where_the_runs_device_is_not_known_nothing_is_said_of_it(seen, why):
    """Mutation: every busy device."""
    readings = measure(two_devices(), None, Analysis(), examined={"visible_devices": seen})
    for name in ("device_sm_pct", "device_processes_max", "device_others_sm_pct", "device_throttled_pct"):
        assert readings[name].value is None and why in readings[name].why_absent


def test_an_instance_is_not_told_by_what_processes_hold_but_another_kind_is():
    """Mutations: an instance believed to be its device; a doubt about names put before what is seen."""
    held = two_devices(theirs=((0, 1),))
    for seen, value in (({"why_not": visible.OF_INSTANCE, "instance": True}, None),
                        ({"why_not": visible.OF_KINDS, "instance": False}, 1)):
        readings = measure(held, None, Analysis(), examined={"visible_devices": seen})
        assert readings["device_processes_max"].value == value


def test_devices_of_another_maker_are_not_hidden_by_cudas_variable():
    """And its numbers are not CUDA's. Mutation: what CUDA does not show is nothing that the run uses."""
    tables = two_devices()
    source = pa.array(["nvml", "amdgpu"] * 20).dictionary_encode()
    events = replaced(tables["gpu_events"], "source", source)
    assert run_devices(events, None, {"devices": [], "in_order": True}, (0,)).numbers == (1,)


def test_a_trace_has_no_cost_of_noise_but_waits():
    """Mutation: waits speak where the cost of noise is known, too."""
    assert conditions(scheduler_interference=0.06) == ["interference"]
    assert conditions(scheduler_interference=0.04) == []
    assert conditions(scheduler_interference=0.06, noise_impact_pct=1) == []


def test_only_what_was_sampled_while_measuring_counts():
    """Mutation: every sample."""
    with pytest.raises(Absent, match="no device was busy"):
        read("device_throttled_pct", AT[0], AT[0] + 1_000_000_000)


@pytest.mark.parametrize(("kernels", "seen", "told"), [
    ({0}, {"devices": [1], "in_order": True}, {0: 1}),  # CUDA_VISIBLE_DEVICES=1
    ({0, 1}, {"devices": [1, 0], "in_order": True}, {0: 1, 1: 0}),
    ({1}, {"devices": [0], "in_order": False}, {1: 0}),  # one of either
    ({0, 1}, {}, {0: 0, 1: 1}),
    ({0}, {}, None), ({0}, {"why_not": "CUDA numbers the fastest first", "instance": False}, None),
    ({0}, {"why_not": "an instance", "instance": True}, None)])
def test_telemetry_beside_kernels_is_of_their_devices_whatever_those_are_called(kernels, seen, told):
    """The first device is held down, the second idles. Mutation: numbers of the driver's library taken for CUDA's."""
    found = co_tenants.as_numbered(EVENTS, kernels, None, seen)
    if told is None:
        assert found is None
        return
    assert set(found["device_id"].to_pylist()) == set(told)
    held = idle.conditions(None, found).held_down
    assert {number: bool(held[number][1].any()) for number in told} == {number: of == 0 for number, of in told.items()}
