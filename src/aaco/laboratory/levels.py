"""The levels: the knobs that each turns, and the essential ones among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from aaco.laboratory.knobs.knob import Want

Level = Literal["none", "basic", "standard", "strict", "paranoid"]
ALIASES: dict[str, Level] = {"soft": "basic"}

# What each level adds to the one before it, in the order of turning; True: essential.
ADDED: dict[Level, dict[str, bool]] = {
    "none": {},
    "basic": {"affinity": True, "memory_nodes": False, "nice": False, "io_priority": False, "locked_memory": False},
    "standard": {"controllers": False, "group": True, "cpu_weight": True, "group_cpus": False,
                 "real_time_budget": False, "membership": True, "real_time": True},
    "strict": {"partition": True, "interrupts": True, "governor": True, "turbo": True, "energy_preference": False,
               "amd_performance": True, "nvidia_clock": True,
               "address_randomness": False},
    "paranoid": {"huge_pages": False, "swap_max": False, "swap": True},
}
LEVELS: tuple[Level, ...] = tuple(ADDED)
# Knobs that are turned on request, at every level; and the fields of Want that request them.
ON_REQUEST: Mapping[str, tuple[str, ...]] = {
    "cpu_max": ("cpu_max_pct",), "memory_high": ("memory_high",), "memory_max": ("memory_max",), "io_max": ("io_max",),
    "amd_performance": ("gpu_level",), "amd_clock": ("gpu_clock_mhz", "gpu_memory_clock_mhz"),
    "nvidia_clock": ("gpu_clock_mhz", "gpu_memory_clock_mhz"), "amd_power": ("gpu_power_w",),
    "nvidia_power": ("gpu_power_w",), "caches": ("drop_caches",)}

LIMITS = ("cpu_max", "memory_high", "memory_max", "io_max")
GROUP = ("controllers", "group", "membership")  # what a limit needs, at every level


def level(name: str) -> Level:
    """Return the level of a name or an alias."""
    return next((candidate for candidate in LEVELS if candidate == name), None) or ALIASES[name]


def knobs(asked: Level, want: Want) -> list[str]:
    """Return the knobs of a level and of those below it, then those on request."""
    below = LEVELS[:LEVELS.index(asked) + 1]
    requested = [name for name, fields in ON_REQUEST.items() if any(getattr(want, field) for field in fields)]
    group = GROUP if set(LIMITS) & set(requested) else ()
    return list(dict.fromkeys([*(name for lower in below for name in ADDED[lower]), *group, *requested]))


def achieved(asked: Level, held: Mapping[str, bool | None]) -> Level:
    """Return the highest level up to the requested one whose essential knobs all hold, and those of every level below.

    held: per knob whether it holds; None if there is nothing to turn, which counts for and against nothing. A knob that
    is not in it was not turned, and does not hold.
    """
    reached: Level = "none"
    for candidate in LEVELS[:LEVELS.index(asked) + 1]:
        if not all(held.get(name, False) in (True, None) for name, essential in ADDED[candidate].items() if essential):
            break
        reached = candidate
    return reached
