"""The device's clock is held down while it is at work."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.advice import Step, fact_is
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = "docs/concepts/diagnosis.md; NVML clocks event reasons; not calibrated: no labelled recording is throttled"


@rule(label="throttled", source=SOURCE, advice=(
    "let the device cool, or raise its power limit",
    Step("nvidia-smi -pl WATTS raises it", (fact_is("vendor", "nvidia"),)),
    Step("amd-smi set --power-cap WATTS raises it", (fact_is("vendor", "amd"),)),
    "compare only runs that were held back alike: lock the clock (aaco run --lab strict)"))
def throttled(device_throttled_pct: Reading, device_clock_below_max_pct: Reading, gpu_active_ratio: Reading
              ) -> Iterator[Evidence]:
    """The driver holds the clock down for heat or power, far and long enough to explain the time."""
    if device_throttled_pct.value is None and device_clock_below_max_pct.value is None:
        return
    yield device_throttled_pct.above(50, "samples with a throttle reason", 0.5, essential=True)
    yield device_clock_below_max_pct.above(15, "how far the clock is below its highest", 0.4, essential=True)
    yield gpu_active_ratio.above(0.7, "the device is at work", 0.1)
