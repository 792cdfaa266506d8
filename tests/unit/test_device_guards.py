"""The guards on our recording of an H100 at its power cap."""

from pathlib import Path

import numpy as np
import pytest

from aaco.analytics import metrics as every
from aaco.analytics.inputs import Spans
from aaco.collectors import nvml
from aaco.core import registry
from aaco.core.readings import Absent

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


def test_only_what_was_sampled_while_measuring_counts():
    """Mutation: every sample."""
    with pytest.raises(Absent, match="no device was busy"):
        read("device_throttled_pct", AT[0], AT[0] + 1_000_000_000)
