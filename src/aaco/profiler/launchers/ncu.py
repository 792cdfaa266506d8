"""Nsight Compute: counters of every kernel, as the raw page of its CSV.

Options: `ncu --help`, 2022 to 2025. It fixes the clock at its base and empties caches unless told otherwise: here the
clock is left alone, so that counts are those of the program as it runs. A kernel is replayed until all counters are
collected (--replay-mode kernel, --graph-profiling node): its duration is one under the profiler, and the times of other
kernels mean nothing, so a trace measures times. A request for one suffix returns others too; the parser keeps full
names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.core.errors import Missing, UsageError
from aaco.core.near import meant
from aaco.profiler.launchers import (
    COUNTERS,
    Kind,
    ProfilerPass,
    Takes,
    Tool,
    ToolCounter,
    Wanted,
    options,
    require_literal_path,
    require_option,
)

NAME, VENDOR = "ncu", "NVIDIA"
DOES: frozenset[Kind] = frozenset({"counters"})
TAKES: Takes = "command"
INSTALL = ("install NVIDIA Nsight Compute, which comes with the CUDA toolkit, or add its folder: "
           "PATH=/usr/local/cuda/bin:$PATH")
QUESTIONS: Mapping[str, tuple[str, ...]] = {"version": ("--version",), "help": ("--help",),
                                            COUNTERS: ("--query-metrics",)}
REFUSALS: Mapping[str, tuple[str, str]] = {"ERR_NVGPUCTRPERM": (
    "the driver lets only an administrator read the GPU's counters",
    "run as root (in a container: --cap-add SYS_ADMIN), or put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` "
    "into a file of /etc/modprobe.d and reload the driver")}
ASKED = {"--target-processes": "all", "--replay-mode": "kernel", "--clock-control": "none", "--page": "raw",
         "--print-units": "base"}
WHERE_KNOWN = {"--graph-profiling": "node", "--print-kernel-base": "demangled"}
REPLAYED = ("counters are of kernels that ncu ran one by one, as often as they took, with empty caches and the clock "
            "as it was: what they read from memory may be more than in a run of the program")
DURATION = "gpu__time_duration.sum"  # without it a kernel has no duration at all
TABLE, MACROS = "ncu.csv", "%"  # %h, %p, %q{X}
_VERSION = re.compile(r"Version\s+(\d+(?:\.\d+)+)")
_LISTED = re.compile(r"^([\w.]+__\w+)\s+(?:Counter|Ratio|Throughput)\b", re.MULTILINE | re.ASCII)
_NAME = re.compile(r"(?:\w+\.)*\w+__\w+(?:\.[a-z_]+)*", re.ASCII)


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """Return ncu by its version, its help and the metrics of the chips of this machine."""
    version = _VERSION.search(answers.get("version", ""))
    listed = {name: ToolCounter() for name in _LISTED.findall(answers.get(COUNTERS, ""))}
    return Tool(path, version[1] if version else None, options(answers.get("help", "")), counters=listed or None)


def passes(tool: Tool, request: Wanted, command: Sequence[str], raw: Path) -> list[ProfilerPass]:
    """Return one execution for all counters: ncu replays each kernel as often as they need.

    Raise UsageError for an invalid name, Missing for a metric that the chip does not have.
    """
    for name in request.counters:
        _check_metric(tool, name)
    arguments = [word for option, value in ASKED.items() for word in (require_option(tool, NAME, option), value)]
    arguments += [word for option, value in WHERE_KNOWN.items() if option in tool.options for word in (option, value)]
    arguments += [require_option(tool, NAME, "--kernel-name"), f"regex:{request.kernels}"] if request.kernels else []
    arguments += [require_option(tool, NAME, "--profile-from-start"), "off"] if request.region else []
    folder = "counters-01"
    argv = (tool.path, require_option(tool, NAME, "--csv"), *arguments, require_option(tool, NAME, "--metrics"),
            ",".join(dict.fromkeys([*request.counters, DURATION])), require_option(tool, NAME, "--log-file"),
            str(require_literal_path(raw, NAME, MACROS) / folder / TABLE), *command)
    return [ProfilerPass("counters", folder, argv, counters=tuple(request.counters), tells=TABLE)]


def had(tool: Tool, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of these metrics that the chip has; all of them if the tool could not list them."""
    return tuple(name for name in names if tool.counters is None or _is_listed(tool.counters, name))


def _check_metric(tool: Tool, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a metric", "as ncu names them: dram__bytes_read.sum")
    if tool.counters is not None and not _is_listed(tool.counters, name):
        raise Missing(f"this GPU has no metric {name}{meant(name.partition('.')[0], tool.counters)}",
                      "ncu --query-metrics  # lists those it has, to which .sum, .avg, .min or .max is added")


def _is_listed(listed: Mapping[str, ToolCounter], name: str) -> bool:
    """Return whether the name is a listed one, with suffixes or without."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in listed for count in range(1, len(parts) + 1))
