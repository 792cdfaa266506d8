"""The guards on our recording of an H100 at its power cap."""

from pathlib import Path

import numpy as np
import pytest

from aaco.analytics import features
from aaco.analytics import metrics as every
from aaco.analytics.inputs import Spans
from aaco.collectors import nvml
from aaco.core import registry
from aaco.core.readings import Absent
from aaco.core.tables import INFERENCE_ITERS

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
    rows = features.of_iterations(made, None, held).to_pylist()
    assert [row["throttled"] for row in rows] == [0, 1, 0]
    assert rows[1]["gpu_util_pct"] > 95 and rows[1]["power_w"] > 600 and rows[0]["power_w"] < 200
    assert [row["device_processes"] for row in rows] == [2, 2, 2]


def test_only_what_was_sampled_while_measuring_counts():
    """Mutation: every sample."""
    with pytest.raises(Absent, match="no device was busy"):
        read("device_throttled_pct", AT[0], AT[0] + 1_000_000_000)
