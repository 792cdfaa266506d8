"""Which devices a run saw, and which of them its provider was set to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aaco.collectors.gpu import device_accounts
from aaco.core.providers import CPU, ON_CUDA
from aaco.core.session import Session
from aaco.tracelake import layout


def devices_used(session: Session, runtime: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of metrics that say which of the recorded devices a run used.

    visible_devices: those that the run saw, or why it used none. cuda_numbers: those that its provider was set to.
    """
    provider = runtime.get("provider")
    if provider == CPU:
        return {"visible_devices": {"unused": f"the run used no device: {CPU} works on the host"}, "cuda_numbers": ()}
    options = (runtime.get("provider_options") or {}).get(provider) or {}
    asked = str(options.get("device_id", "")) if provider in ON_CUDA else ""
    return {"visible_devices": device_accounts.visible(session.folder / layout.DEVICE_RAW),
            "cuda_numbers": (int(asked),) if asked.isdecimal() else ()}
