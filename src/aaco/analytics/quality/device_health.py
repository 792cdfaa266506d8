"""The health of a device while a session ran, in one word with its evidence, from what its telemetry recorded.

critical: at TEMPERATURE_LIMITS' highest, the hardware itself lowered the clock, an error that was not corrected, or a
fault (XID) that no program causes. degraded: too hot, its clock was lowered for heat, or an error was corrected. A
clock that the power limit lowers is healthy. Errors are those counted during the session; those of links between
devices only where their driver counts them among the device's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from aaco.analytics.quality.thermal import TEMPERATURE_LIMITS, throttling
from aaco.core.readings import Absent
from aaco.core.words import plural

HEALTHY, DEGRADED, CRITICAL = "healthy", "degraded", "critical"
STATES = (HEALTHY, DEGRADED, CRITICAL)  # the worst is the last
CRITICAL_C, DEGRADED_C = (limit for limit, _ in TEMPERATURE_LIMITS[:2])
# By the names of NVML, amd-smi and amdgpu: what the hardware does without asking the driver, and what is done for heat.
BY_HARDWARE = re.compile(r"hw_|prochot|vrhot")
FOR_HEAT = re.compile(r"thermal|temp_|hot")
REASON = re.compile(r"[a-z][a-z0-9_]{0,40}", re.ASCII)
# Counts of telemetry that only grow -> the state that a new error makes, and its name.
COUNTED = {"uncorrected_errors": (CRITICAL, "uncorrected"), "corrected_errors": (DEGRADED, "corrected")}
XID = "xid"
MOST_XIDS = 8  # that are named
# NVIDIA's catalogue of XIDs: exceptions of a kernel, its faulty addresses, and what ends with the program.
OF_PROGRAMS = (13, 31, 43, 45)


class DeviceHealth(Struct, frozen=True):
    """A device's state during a session, and why it is that."""

    device_id: int
    state: str
    evidence: str


def of_samples(device_id: int, temperatures_c: Sequence[float], reasons: Sequence[Iterable[str]],
               errors: Mapping[str, Sequence[float]] = MappingProxyType({})) -> DeviceHealth:
    """Return a device's health. temperatures_c: of the samples that have one. reasons: for the samples that know them,
    why the clock was lowered. errors: samples of COUNTED's names and of XID. Raise Absent where there is none of
    these."""
    if not temperatures_c and not reasons and not errors:
        raise Absent("no temperature, no reason of a clock and no count of errors was recorded")
    held = Counter(reason for sample in reasons for reason in set(throttling(sample)) if REASON.fullmatch(reason))
    hottest = max(temperatures_c, default=None)
    signs = [(_by_heat(hottest), f"at most {hottest:.0f} degC")] if hottest is not None else []
    samples = plural(len(reasons), "sample")
    signs += [(_by_reason(reason), f"{reason} held the clock down in {held[reason]} of {samples}")
              for reason in sorted(held, key=lambda reason: (-held[reason], reason))]
    if not held:
        signs.append((HEALTHY, "no clock was held down" if reasons else "reasons of clocks were not recorded"))
    signs += [*_by_errors(errors), *_by_xid(errors.get(XID, ()))]
    state = max((state for state, _ in signs), key=STATES.index)
    return DeviceHealth(device_id, state, "; ".join(text for of, text in signs if of == state))


def _by_errors(errors: Mapping[str, Sequence[float]]) -> Iterator[tuple[str, str]]:
    new = {name: int(max(errors[name]) - min(errors[name])) for name in COUNTED if len(errors.get(name, ())) > 1}
    for name, count in new.items():
        state, word = COUNTED[name]
        if count:
            yield state, f"{plural(count, f'{word} error')} during the session"
    if new and not any(new.values()):
        yield HEALTHY, "no new error was counted"


def _by_xid(numbers: Sequence[float]) -> Iterator[tuple[str, str]]:
    for number, count in sorted(Counter(map(int, numbers)).items())[:MOST_XIDS]:
        yield HEALTHY if number in OF_PROGRAMS else CRITICAL, f"XID {number}" + (f", {count} times" * (count > 1))


def _by_heat(hottest_c: float) -> str:
    return CRITICAL if hottest_c >= CRITICAL_C else DEGRADED if hottest_c >= DEGRADED_C else HEALTHY


def _by_reason(reason: str) -> str:
    return CRITICAL if BY_HARDWARE.match(reason) else DEGRADED if FOR_HEAT.search(reason) else HEALTHY
