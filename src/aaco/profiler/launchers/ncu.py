"""Nsight Compute: counters of every kernel, as the raw page of its CSV.

Options: `ncu --help`, 2022 to 2025. It holds the clock at its base and empties caches unless told otherwise: the clock
is left as it is, so that counts are those of the program as it runs. A kernel is replayed until all counters are had
(--replay-mode kernel, --graph-profiling node): its duration is one under the profiler, and the time of other kernels is
worth nothing, so a trace tells the times. Asking for one suffix gives others too; the parser keeps full names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.core.errors import Missing, UsageError
from aaco.core.near import meant
from aaco.profiler.launchers import COUNTERS, Counter, Kind, Pass, Takes, Tool, Wanted, known, literal, options

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
    "into a file of /etc/modprobe.d and load the driver anew")}
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
    """ncu by its version, its help and the metrics of the chips of this machine."""
    version = _VERSION.search(answers.get("version", ""))
    listed = {name: Counter() for name in _LISTED.findall(answers.get(COUNTERS, ""))}
    return Tool(path, version[1] if version else None, options(answers.get("help", "")), counters=listed or None)


def passes(tool: Tool, wanted: Wanted, command: Sequence[str], raw: Path) -> list[Pass]:
    """One execution for all counters: ncu replays each kernel as often as they take.

    Raises UsageError for a name that is none, Missing for a metric that the chip does not have.
    """
    for name in wanted.counters:
        _check(tool, name)
    asked = [word for option, value in ASKED.items() for word in (known(tool, NAME, option), value)]
    asked += [word for option, value in WHERE_KNOWN.items() if option in tool.options for word in (option, value)]
    asked += [known(tool, NAME, "--kernel-name"), f"regex:{wanted.kernels}"] if wanted.kernels else []
    asked += [known(tool, NAME, "--profile-from-start"), "off"] if wanted.region else []
    folder = "counters-01"
    argv = (tool.path, known(tool, NAME, "--csv"), *asked, known(tool, NAME, "--metrics"),
            ",".join(dict.fromkeys([*wanted.counters, DURATION])), known(tool, NAME, "--log-file"),
            str(literal(raw, NAME, MACROS) / folder / TABLE), *command)
    return [Pass("counters", folder, argv, counters=tuple(wanted.counters), tells=TABLE)]


def had(tool: Tool, names: Sequence[str]) -> tuple[str, ...]:
    """Of these metrics those that the chip has; all of them where the tool could not say."""
    return tuple(name for name in names if tool.counters is None or _base(tool.counters, name))


def _check(tool: Tool, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a metric", "as ncu names them: dram__bytes_read.sum")
    if tool.counters is not None and not _base(tool.counters, name):
        raise Missing(f"this GPU has no metric {name}{meant(name.partition('.')[0], tool.counters)}",
                      "ncu --query-metrics  # lists those it has, to which .sum, .avg, .min or .max is added")


def _base(listed: Mapping[str, Counter], name: str) -> bool:
    """Whether the name is a listed one, with suffixes or without."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in listed for count in range(1, len(parts) + 1))
