"""The guards on our recording of an H100 at its power cap."""

from pathlib import Path

import numpy as np
import pytest

from aaco.analytics import features, neighbours
from aaco.analytics import metrics as every
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.inputs import Spans
from aaco.collectors import nvml
from aaco.core import registry
from aaco.core.readings import Absent, Reading
from aaco.core.tables import INFERENCE_ITERS, SAMPLES

registry.load(every, "aaco.metrics")  # in their usual order, whichever test comes first
EVENTS = nvml.parse(Path(__file__).parents[1] / "captures/nvml_h100/nvml.bin")
AT = EVENTS["t_ns"].to_numpy()


def read(name, first=AT[0] + 8_000_000_000, last=AT[0] + 16_000_000_000):
    return registry.METRICS[name].compute(EVENTS, Spans(np.array([first]), np.array([last])))


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
    rows = features.of_iterations(made, None, held, samples=told).to_pylist()
    assert [row["device_others_sm_pct"] for row in rows] == [0, 40, 0]
    unseen = features.of_iterations(made, None, held, samples=told.slice(0, 3))
    assert unseen["device_others_sm_pct"].null_count == 3
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
    spans = Spans(np.array([at[0]]), np.array([at[0] + 8_000_000_000]))
    value = registry.METRICS["device_others_sm_pct"].compute(samples, EVENTS, spans)
    return value, conditions(device_others_sm_pct=value)


def test_who_has_another_device_is_no_neighbour():
    """Mutation: every device counts."""
    samples = SAMPLES.build(t_ns=[1, 1, 1, 1], device_id=[0, 0, 1, 1], name=["own_sm_pct", "others_sm_pct"] * 2,
                            value=[60.0, 3, 0, 95])
    assert neighbours.others(samples)["value"].to_pylist() == [3]


def test_a_device_is_shared_where_others_compute_on_it():
    """What they had before is not of the measured time. Mutations: the first second counts; the rule from 50 on."""
    assert shared([60] * 40, [90] * 5 + [8] * 35) == (8, ["shared_device"])
    assert shared([60] * 40, [90] * 5 + [0] * 35) == (0, [])
    with pytest.raises(Absent, match=r"none of the processes .* is seen to be ours"):
        shared([0] * 40, [30] * 40)
    with pytest.raises(Absent, match="2 shares of others_sm_pct"):
        shared([60] * 7, [30] * 7)


def test_a_trace_has_no_cost_of_noise_but_waits():
    """Mutation: waits speak where the cost of noise is known, too."""
    assert conditions(scheduler_interference=0.06) == ["interference"]
    assert conditions(scheduler_interference=0.04) == []
    assert conditions(scheduler_interference=0.06, noise_impact_pct=1) == []


def test_only_what_was_sampled_while_measuring_counts():
    """Mutation: every sample."""
    with pytest.raises(Absent, match="no device was busy"):
        read("device_throttled_pct", AT[0], AT[0] + 1_000_000_000)
