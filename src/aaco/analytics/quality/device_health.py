"""The health of a device while a session ran, in one word with its evidence, from what its telemetry recorded.

critical: at TEMPERATURE_LIMITS' highest, or the hardware itself lowered the clock. degraded: too hot, or its clock
was lowered for heat. A clock that the power limit lowers is healthy. Errors of memory or links are not
recorded in telemetry: no state counts them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aaco.analytics.quality.thermal import TEMPERATURE_LIMITS, throttling
from aaco.core.readings import Absent

HEALTHY, DEGRADED, CRITICAL = "healthy", "degraded", "critical"
STATES = (HEALTHY, DEGRADED, CRITICAL)  # the worst is the last
CRITICAL_C, DEGRADED_C = (limit for limit, _ in TEMPERATURE_LIMITS[:2])
# By the names of NVML, amd-smi and amdgpu: what the hardware does without asking the driver, and what is done for heat.
BY_HARDWARE = re.compile(r"hw_|prochot|vrhot")
FOR_HEAT = re.compile(r"thermal|temp_|hot")
REASON = re.compile(r"[a-z][a-z0-9_]{0,40}", re.ASCII)


@dataclass(frozen=True)
class DeviceHealth:
    """A device's state during a session, and why it is that."""

    device_id: int
    state: str
    evidence: str


def of_samples(device_id: int, temperatures_c: Sequence[float], reasons: Sequence[Iterable[str]]) -> DeviceHealth:
    """Return a device's health. temperatures_c: of the samples that have one. reasons: for the samples that know them,
    why the clock was lowered. Raise Absent where there is neither."""
    if not temperatures_c and not reasons:
        raise Absent("no temperature and no reason of a clock was recorded")
    held = Counter(reason for sample in reasons for reason in set(throttling(sample)) if REASON.fullmatch(reason))
    hottest = max(temperatures_c, default=None)
    signs = [(_by_heat(hottest), f"at most {hottest:.0f} degC")] if hottest is not None else []
    signs += [(_by_reason(reason), f"{reason} held the clock down in {held[reason]} of {len(reasons)} samples")
              for reason in sorted(held, key=lambda reason: (-held[reason], reason))]
    if not held:
        signs.append((HEALTHY, "no clock was held down" if reasons else "reasons of clocks were not recorded"))
    state = max((state for state, _ in signs), key=STATES.index)
    return DeviceHealth(device_id, state, "; ".join(text for of, text in signs if of == state))


def _by_heat(hottest_c: float) -> str:
    return CRITICAL if hottest_c >= CRITICAL_C else DEGRADED if hottest_c >= DEGRADED_C else HEALTHY


def _by_reason(reason: str) -> str:
    return CRITICAL if BY_HARDWARE.match(reason) else DEGRADED if FOR_HEAT.search(reason) else HEALTHY
