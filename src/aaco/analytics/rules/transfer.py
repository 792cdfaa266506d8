"""The bus between host and device limits the session."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.advice.action import OWN_CODE, PYTORCH
from aaco.analytics.bottleneck import calibration
from aaco.analytics.rules import roof
from aaco.core.advice import Step, fact_is
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule


@rule(label="transfer_bound", source="docs/concepts/diagnosis.md", advice=(
    Step("copy while computing: a stream of its own, the next batch during this step", (OWN_CODE,)),
    Step("pin the host's memory: DataLoader(pin_memory=True)", (fact_is("data_loader", "single_process", "workers"),),
         (fact_is("copies", "pinned"),)),
    Step("pin the host's memory: tensor.pin_memory(), then non_blocking=True", (PYTORCH, OWN_CODE),
         (fact_is("copies", "pinned"),)),
    Step("bind inputs on the device: io_binding()", (fact_is("framework", "onnxruntime"),)),
    "move less: narrower types, preprocessing on the device, data that stays there"))
def transfer_bound(transfer_limited_pct: Reading, device_limited_pct: Reading, host_limited_pct: Reading,
                   dispatch_overhead_pct: Reading) -> Iterator[Evidence]:
    """Most time passes in copies between host and device while nothing computes."""
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        return  # a run profiled by its nodes: it has no trace of the device
    device = 0.0 if device_limited_pct.value is None else device_limited_pct.value
    yield transfer_limited_pct.above(calibration.FITTED.transfer_pct, "only transfers run", 0.5, essential=True)
    yield transfer_limited_pct.above(device, "longer than the device computes", 0.3, essential=True)
    yield host_limited_pct.below(50, "the host is not what they wait for", 0.2)
