"""Another process has the device while this program's launched work waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck import calibration
from aaco.core.advice import Step, fact_is
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = "docs/concepts/diagnosis.md"


@rule(label="shared_device_bound", source=SOURCE, advice=(
    Step("find who else computes on the device: nvidia-smi pmon -c 5", (fact_is("vendor", "nvidia"),)),
    Step("find who else computes on the device: amd-smi process", (fact_is("vendor", "amd"),)),
    Step("have the device to yourself (CUDA_VISIBLE_DEVICES), or share it under MPS or MIG",
         (fact_is("vendor", "nvidia"),)),
    Step("have the device to yourself (HIP_VISIBLE_DEVICES), or a partition of it", (fact_is("vendor", "amd"),)),
    "do not judge the program by this capture: record it again alone"))
def shared_device_bound(shared_device_limited_pct: Reading, host_limited_pct: Reading,
                        device_others_sm_pct: Reading) -> Iterator[Evidence]:
    """Launched work waits because the device does another process's: time slices."""
    if shared_device_limited_pct.value is None:
        return  # no trace of the device and its launches
    yield shared_device_limited_pct.above(calibration.FITTED.host_pct, "launched work waits for another process", 0.45,
                                          essential=True)
    yield shared_device_limited_pct.above(host_limited_pct.value or 0.0, "more than for the host", 0.45, essential=True)
    yield device_others_sm_pct.above(5, "the device's time that others had", 0.1)
