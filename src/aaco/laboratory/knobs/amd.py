"""AMD GPUs: performance level, clocks, power cap; by sysfs, or by amd-smi if sysfs is not writable.

Files: Documentation/gpu/amdgpu/thermal.rst (power_dpm_force_performance_level, pp_dpm_sclk, pp_dpm_mclk, power1_cap).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from aaco.core.host import Host, ask, number, text
from aaco.core.readings import Absent, known
from aaco.laboratory.knobs.knob import FileKnob, Knob, NotHere, Want, write_text

LEVEL, CLOCKS, MEMORY = "power_dpm_force_performance_level", "pp_dpm_sclk", "pp_dpm_mclk"
# The driver's levels, and what amd-smi calls those that it has another word for (amdsmi.h, amdsmi_dev_perf_level_t).
WORDS = {"profile_standard": "stable_std", "profile_peak": "stable_peak", "profile_min_sclk": "stable_min_sclk",
         "profile_min_mclk": "stable_min_mclk", "perf_determinism": "determinism"}
VENDOR = 0x1002
TOOL_PREFIX = "amd-smi:"  # a target of the tool: the GPU's number follows
TOOL_TIMEOUT_S = 20.0


def cards(host: Host) -> list[Path]:
    """Return the device folder of every AMD card. Raise NotHere."""
    folders = sorted((host.sys / "class/drm").glob("card[0-9]*"), key=lambda path: path.name)
    devices = [path / "device" for path in folders if "-" not in path.name
               and known(number, path / "device/vendor") == VENDOR]
    if not devices:
        raise NotHere(f"{host.sys / 'class/drm'}: no AMD GPU")
    return devices


class AmdPerformance(Knob):
    """The level at which the driver keeps the clocks: auto, low, high, manual, profile_peak and others."""

    name = "amd_performance"
    scope = "host"
    meaning = "the GPU's clocks do not follow the load"

    def wishes(self, want: Want) -> dict[str, str]:
        if want.gpu_clock_mhz or want.gpu_memory_clock_mhz:
            raise NotHere("the clock itself is held: amd_clock")
        level = want.gpu_level or "high"
        paths = [card / LEVEL for card in cards(self.host)]
        if all(os.access(path, os.W_OK) for path in paths):
            return dict.fromkeys(map(str, paths), level)
        return {f"{TOOL_PREFIX}{gpu['gpu']}": level for gpu in _ask_tool("list")}

    def read(self, target: str) -> str:
        if not target.startswith(TOOL_PREFIX):
            return text(Path(target))
        answer = _ask_tool("metric", "--gpu", target.removeprefix(TOOL_PREFIX), "--perf-level")
        level = str(answer[0].get("perf_level", ""))
        if not level:
            raise Absent(f"{target}: amd-smi names no perf_level")
        tool_level = level.rpartition("LEVEL_")[2].lower()
        return next((driver_word for driver_word, tool_word in WORDS.items() if tool_word == tool_level), tool_level)

    def write(self, target: str, value: str) -> None:
        if target.startswith(TOOL_PREFIX):
            ask(["amd-smi", "set", "--gpu", target.removeprefix(TOOL_PREFIX), "--perf-level", _tool_word(value)],
                TOOL_TIMEOUT_S)
        else:
            write_text(Path(target), value)

    def command(self, target: str, value: str) -> str:
        if target.startswith(TOOL_PREFIX):
            return f"sudo amd-smi set --gpu {target.removeprefix(TOOL_PREFIX)} --perf-level {_tool_word(value)}"
        return super().command(target, value)


def _tool_word(level: str) -> str:
    """Return amd-smi's name of a level."""
    return WORDS.get(level, level).upper()


class AmdClock(Knob):
    """One level of the shader clock, of the memory clock, or of both, under the performance level "manual".

    A target is the files of one card, "FOLDER/pp_dpm_sclk,pp_dpm_mclk"; its value "manual" and a level for each. The
    levels that a manual setting allows cannot be read, so a card that is in manual already is left unchanged.
    """

    name = "amd_clock"
    scope = "host"
    meaning = "the GPU's shader or memory clock is held at one level"

    def wishes(self, want: Want) -> dict[str, str]:
        asked = {name: mhz for name, mhz in ((CLOCKS, want.gpu_clock_mhz), (MEMORY, want.gpu_memory_clock_mhz)) if mhz}
        return {str(card / ",".join(asked)): self._wish(card, asked) for card in cards(self.host)}

    def _wish(self, card: Path, asked: dict[str, int]) -> str:
        if text(card / LEVEL) == "manual":
            raise Absent(f"{card / LEVEL}: manual already, and the levels that it allows cannot be read")
        return " ".join(["manual", *(_find_level(card / name, mhz) for name, mhz in asked.items())])

    def read(self, target: str) -> str:
        level, clocks = _split_target(target)
        if (held := text(level)) != "manual":
            return held
        active = [re.search(r"(\d+):[^\n]*\*", text(path)) for path in clocks]
        return " ".join(["manual", *(match[1] if match else "unknown" for match in active)])

    def write(self, target: str, value: str) -> None:
        (level, clocks), (held, *levels) = _split_target(target), value.split()
        write_text(level, held)
        for path, clock in zip(clocks, levels, strict=False):  # a level that is not manual has no clocks
            write_text(path, clock)

    def command(self, target: str, value: str) -> str:
        (level, clocks), (held, *levels) = _split_target(target), value.split()
        return "; ".join(f"echo {word} | sudo tee {path}" for path, word in zip((level, *clocks), (held, *levels),
                                                                                 strict=False))


def _split_target(target: str) -> tuple[Path, list[Path]]:
    """Return the file of the performance level and those of the clocks."""
    folder, _, names = target.rpartition("/")
    return Path(folder, LEVEL), [Path(folder, name) for name in names.split(",")]


def _find_level(path: Path, mhz: int) -> str:
    """Return the level of a clock. Raise Absent if no level has it."""
    clocks = {int(level): int(clock) for level, clock in re.findall(r"(\d+):\s*(\d+)Mhz", text(path))}
    level = next((level for level, clock in clocks.items() if clock == mhz), None)
    if level is None:
        raise Absent(f"{path}: offers {', '.join(map(str, clocks.values()))} MHz, not {mhz}")
    return str(level)


class AmdPower(FileKnob):
    """The power that the driver allows, in uW as in hwmon."""

    name = "amd_power"
    meaning = "the GPU's power cap"

    def wishes(self, want: Want) -> dict[str, str]:
        assert want.gpu_power_w is not None
        caps = [path for card in cards(self.host) for path in sorted(card.glob("hwmon/hwmon*/power1_cap"))]
        if not caps:
            raise Absent("no AMD GPU here has a power1_cap")
        for path in caps:
            low, high = (known(number, path.with_name(f"power1_cap_{end}")) for end in ("min", "max"))
            if low is not None and high is not None and not low <= want.gpu_power_w * 1_000_000 <= high:
                raise Absent(f"{path}: takes {low // 1_000_000} to {high // 1_000_000} W, not {want.gpu_power_w}")
        return dict.fromkeys(map(str, caps), str(want.gpu_power_w * 1_000_000))


def _ask_tool(*words: str) -> list[dict[str, Any]]:
    """Return amd-smi's answer, a mapping per GPU; from ROCm 7 on it names the list. Raise Absent."""
    answer = ask(["amd-smi", *words, "--json"], TOOL_TIMEOUT_S)
    try:
        gpus = json.loads(answer)
    except ValueError:
        raise Absent(f"amd-smi {words[0]}: not JSON: {answer[:60]!r}") from None
    if isinstance(gpus, dict):
        gpus = gpus.get("gpu_data")
    if not isinstance(gpus, list) or not gpus or not all(isinstance(gpu, dict) for gpu in gpus):
        raise Absent(f"amd-smi {words[0]}: names no GPU")
    return gpus
