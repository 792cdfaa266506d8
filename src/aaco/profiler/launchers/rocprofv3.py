"""rocprofv3, of ROCm 6.2 and later.

Options: rocprofiler-sdk, source/bin/rocprofv3.py. Only those that the installed one's help names are used. Without
--output-file each process writes files of its own, `HOST/PID_*`, so that children do not overwrite their parent's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.profiler.launchers import COUNTERS, Counter, Kind, Pass, Takes, Tool, Wanted, known, options
from aaco.profiler.launchers.counter_passes import plan

NAME, VENDOR = "rocprofv3", "AMD"
DOES: frozenset[Kind] = frozenset({"trace", "counters", "thread_trace", "pc_sampling"})
TAKES: Takes = "command"
INSTALL = "install ROCm's rocprofiler-sdk, or add its folder: PATH=/opt/rocm/bin:$PATH; aaco doctor"
QUESTIONS: Mapping[str, tuple[str, ...]] = {"version": ("--version",), "help": ("--help",), COUNTERS: ("-L",)}
TRACED = ("--kernel-trace", "--memory-copy-trace", "--hip-runtime-trace", "--marker-trace")
WHERE_KNOWN = ("--memory-allocation-trace", "--scratch-memory-trace", "--rccl-trace")  # not of every version
BEST_FIRST = ("rocpd", "csv")  # rocpd came with ROCm 7.0; both are read piece by piece
INTERVAL_US = "1000"
# PC sampling is refused without it: rocprofiler-sdk, docs/how-to/using-pc-sampling.rst.
SAMPLING_ALLOWED = {"ROCPROFILER_PC_SAMPLING_BETA_ENABLED": "on"}
_FIELD = re.compile(r"^\s*([A-Za-z_]+)\s*:\s*(.*?)\s*$")


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """rocprofv3 by its version, help and list of counters."""
    told = answers.get("help", "")
    formats = re.search(r"--output-format\s+\{([\w,]+)\}|supported formats:\s*([\w, ]+)", told)
    listed = re.findall(r"\w+", (formats[1] or formats[2]).lower()) if formats else []
    version = re.search(r"rocm_version:\s*(\S+)", answers.get("version", "")) or re.search(
        r"version:\s*(\S+)", answers.get("version", ""))
    return Tool(path, version[1] if version else None, options(told), frozenset(listed),
                _counters(answers.get(COUNTERS, "")) or None)


def passes(tool: Tool, wanted: Wanted, command: Sequence[str], raw: Path) -> list[Pass]:
    """A trace without counters, whose times count; then as many executions as the counters take, and the samplings."""
    some = [known(tool, NAME, option) for option in (*TRACED, *(["--hsa-trace"] if wanted.hsa else []))]
    some += [option for option in WHERE_KNOWN if option in tool.options]
    chosen = _filter(tool, wanted)
    made = [_pass(tool, "trace", "trace", some, command, raw)]
    for number, group in enumerate(plan(wanted.counters, tool.counters), 1):
        asked = [*chosen, known(tool, NAME, "--pmc"), *group]
        made.append(_pass(tool, "counters", f"counters-{number:02d}", asked, command, raw, group))
    if wanted.thread_trace:
        made.append(_pass(tool, "thread_trace", "thread-trace", [*chosen, known(tool, NAME, "--att")], command, raw))
    if wanted.pc_sampling:
        asked = [known(tool, NAME, "--pc-sampling-beta-enabled"), "--pc-sampling-method", "host_trap",
                 "--pc-sampling-unit", "time", "--pc-sampling-interval", INTERVAL_US]
        made.append(_pass(tool, "pc_sampling", "pc-sampling", asked, command, raw))
    return made


def _filter(tool: Tool, wanted: Wanted) -> list[str]:
    return [known(tool, NAME, "--kernel-include-regex"), wanted.kernels] if wanted.kernels else []


def _pass(tool: Tool, kind: Kind, folder: str, asked: Sequence[str], command: Sequence[str], raw: Path,
          counters: tuple[str, ...] = ()) -> Pass:
    """What is asked stands before options of one value, as --pmc takes every word up to the next option."""
    form = "csv" if kind == "pc_sampling" else next((one for one in BEST_FIRST if one in tool.formats), "csv")
    argv = (tool.path, *asked, known(tool, NAME, "--output-directory"), str(raw / folder),
            known(tool, NAME, "--output-format"), form, "--", *command)
    return Pass(kind, folder, argv, SAMPLING_ALLOWED if kind == "pc_sampling" else {}, counters)


def _counters(listing: str) -> dict[str, Counter]:
    """What `rocprofv3 -L` lists: paragraphs of `Counter_Name : X` with `Block : Y` or `Expression : Z`."""
    found: dict[str, Counter] = {}
    name = None
    for line in listing.splitlines():
        field = _FIELD.match(line)
        if field is None:
            continue
        key, value = field[1].lower(), field[2]
        if key == "counter_name":
            name = value
            found.setdefault(name, Counter())
        elif name and key == "block":
            found[name] = Counter(block=value)
        elif name and key == "expression":
            found[name] = Counter(expression=value)
    return found
