"""rocprofv3: traces from ROCm 6.2 on, counters and samples of program counters from 6.3 on, thread traces from 7.0 on.

Options: rocprofiler-sdk, source/bin/rocprofv3.py. Only those that the installed one's help names are used. Without
--output-file each process writes files of its own, `HOST/PID_*`, so that children do not overwrite their parent's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.core.errors import Missing, UsageError
from aaco.core.near import meant
from aaco.profiler.launchers import (
    COUNTERS,
    Counter,
    Kind,
    Pass,
    Sampling,
    Takes,
    Tool,
    Wanted,
    known,
    literal,
    options,
)
from aaco.profiler.launchers.counter_passes import plan

NAME, VENDOR = "rocprofv3", "AMD"
DOES: frozenset[Kind] = frozenset({"trace", "counters", "thread_trace", "pc_sampling"})
TAKES: Takes = "command"
INSTALL = "install ROCm's rocprofiler-sdk, or add its folder: PATH=/opt/rocm/bin:$PATH; aaco doctor"
QUESTIONS: Mapping[str, tuple[str, ...]] = {"version": ("--version",), "help": ("--help",), COUNTERS: ("-L",)}
TRACED = ("--kernel-trace", "--memory-copy-trace", "--hip-runtime-trace", "--marker-trace")
ALONE = ("--kernel-trace", "--memory-copy-trace")
WHERE_KNOWN = ("--memory-allocation-trace", "--scratch-memory-trace", "--rccl-trace")  # not of every version
BEST_FIRST = ("rocpd", "csv")  # rocpd came with ROCm 7.0; both are read piece by piece
REFUSALS: Mapping[str, tuple[str, str]] = {
    "rocprof-trace-decoder library path not found": (
        "it found no decoder of thread traces",
        "install AMD's rocprof-trace-decoder, or say where it is: --att-with library-path=/opt/rocm/lib"),
    "PC sampling unavailable": ("it does not sample program counters here", "rocprofv3 -L  # says what the GPU can"),
    "entire set of counters cannot be collected in single pass": (
        "the counters need more than one execution", "name fewer in one --pmc")}
# How often program counters are sampled where nobody says: in the unit of each method.
INTERVAL = {"time": 1000, "cycles": 1 << 20, "instructions": 1 << 20}
HOST_TRAP = Sampling("host_trap", "time", 1, (1 << 64) - 1)  # what every GPU can that can sample at all
# PC sampling is refused without it: rocprofiler-sdk, docs/how-to/using-pc-sampling.rst.
SAMPLING_ALLOWED = {"ROCPROFILER_PC_SAMPLING_BETA_ENABLED": "on"}
MACROS = "%{$"  # %pid%, {pid}, $ENV{X}: rocprofiler-sdk, source/lib/output/{format_path,output_key}.cpp
_FIELD = re.compile(r"^\s*([A-Za-z_]+)\s*:\s*(.*?)\s*$")


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """rocprofv3 by its version, help and list of counters."""
    told = answers.get("help", "")
    formats = re.search(r"--output-format\s+\{([\w,]+)\}|supported formats:\s*([\w, ]+)", told)
    listed = re.findall(r"\w+", (formats[1] or formats[2]).lower()) if formats else []
    version = re.search(r"rocm_version:\s*(\S+)", answers.get("version", "")) or re.search(
        r"version:\s*(\S+)", answers.get("version", ""))
    arch = re.search(r"^\s*Name\s*:\s*(gfx\w+)", answers.get(COUNTERS, ""), re.MULTILINE)
    return Tool(path, version[1] if version else None, options(told), frozenset(listed), arch=arch[1] if arch else None,
                counters=_counters(answers.get(COUNTERS, "")) or None, samplings=_samplings(answers.get(COUNTERS)))


def passes(tool: Tool, wanted: Wanted, command: Sequence[str], raw: Path) -> list[Pass]:
    """A trace without counters, whose times count; then as many executions as the counters take, and the samplings."""
    some = [known(tool, NAME, option) for option in (*TRACED, *(["--hsa-trace"] if wanted.hsa else []))]
    some += [option for option in WHERE_KNOWN if option in tool.options]
    chosen = _filter(tool, wanted)
    made = [_pass(tool, "trace", "trace", some, command, raw)]
    for number, group in enumerate(plan(wanted.counters, tool.counters, wanted.together), 1):
        asked = [*chosen, known(tool, NAME, "--pmc"), *group]
        made.append(_pass(tool, "counters", f"counters-{number:02d}", asked, command, raw, group))
    if wanted.thread_trace:
        asked = [*chosen, known(tool, NAME, "--att"), *_att(tool, wanted.att)]
        made.append(_pass(tool, "thread_trace", "thread-trace", asked, command, raw))
    if wanted.pc_sampling:
        asked = _sampling(tool, wanted.sampling)  # kernels cannot be chosen: --help
        made.append(_pass(tool, "pc_sampling", "pc-sampling", asked, command, raw))
    return made


def before(tool: Tool, folder: Path, calls: bool) -> tuple[str, ...]:
    """What stands before a command to trace it into the folder: kernels and copies, with the calls of HIP or without.

    As CSV, which unlike rocpd holds nothing of the program's environment. Raises Missing, UsageError.
    """
    asked = [known(tool, NAME, option) for option in (TRACED if calls else ALONE)]
    return (tool.path, *asked, known(tool, NAME, "--output-directory"), str(literal(folder, NAME, MACROS)),
            known(tool, NAME, "--output-format"), "csv", "--")


def _att(tool: Tool, asked: Mapping[str, str]) -> list[str]:
    """Options of a thread trace. Raises UsageError for one that the tool does not know, with those it does."""
    there = sorted(option.removeprefix("--att-") for option in tool.options if option.startswith("--att-"))
    for name in asked:
        if name not in there:
            raise UsageError(f"--att-with {name}: {NAME} has no option --att-{name}{meant(name, there)}",
                             f"it has {', '.join(there) or 'none'}")
    return [word for name, value in asked.items() for word in (f"--att-{name}", value)]


def _sampling(tool: Tool, asked: Mapping[str, str]) -> list[str]:
    """How program counters are sampled: as asked, where the GPU can, else as it says it can, by time rather than not.

    Raises UsageError for what there is not, Missing for what the GPU cannot.
    """
    if unknown := asked.keys() - {"method", "unit", "interval"}:
        raise UsageError(f"--pc-sampling-with {min(unknown)}: no such option", "it has method, unit, interval")
    ways = (HOST_TRAP,) if tool.samplings is None else tool.samplings
    said = ", ".join(f"{one.method} by {one.unit}" for one in ways) or "none"
    fitting = [one for one in ways if asked.get("method", one.method) == one.method
               and asked.get("unit", one.unit) == one.unit]
    if not fitting:
        how = " and ".join(asked[key] for key in ("method", "unit") if key in asked and ways)
        raise Missing(f"this GPU does not sample program counters{how and f' by {how}'}",
                      f"rocprofv3 -L says what it can: {said}")
    way = next((one for one in fitting if one.unit == "time"), fitting[0])
    interval = asked.get("interval", str(min(max(INTERVAL.get(way.unit, 1), way.least), way.most)))
    if not interval.isdecimal() or not way.least <= int(interval) <= way.most:
        raise UsageError(f"--pc-sampling-with interval={interval}: this GPU takes {way.least} to {way.most} {way.unit}",
                         f"--pc-sampling-with interval={max(INTERVAL.get(way.unit, 1), way.least)}")
    return [known(tool, NAME, "--pc-sampling-beta-enabled"), known(tool, NAME, "--pc-sampling-method"), way.method,
            known(tool, NAME, "--pc-sampling-unit"), way.unit, known(tool, NAME, "--pc-sampling-interval"), interval]


def _filter(tool: Tool, wanted: Wanted) -> list[str]:
    return [known(tool, NAME, "--kernel-include-regex"), wanted.kernels] if wanted.kernels else []


def _pass(tool: Tool, kind: Kind, folder: str, asked: Sequence[str], command: Sequence[str], raw: Path,
          counters: tuple[str, ...] = ()) -> Pass:
    """What is asked stands before options of one value, as --pmc takes every word up to the next option."""
    form = "csv" if kind == "pc_sampling" else next((one for one in BEST_FIRST if one in tool.formats), "csv")
    argv = (tool.path, *asked, known(tool, NAME, "--output-directory"), str(literal(raw, NAME, MACROS) / folder),
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


def _samplings(listing: str | None) -> tuple[Sampling, ...] | None:
    """The configurations that `rocprofv3 -L` lists, in the words of its options; None where it lists nothing at all.

    Releases wrote `Method: ROCPROFILER_PC_SAMPLING_METHOD_HOST_TRAP` and `Method : host_trap`.
    """
    if not listing or not _counters(listing):
        return None
    found: list[dict[str, str]] = []
    for field in filter(None, map(_FIELD.match, listing.splitlines())):
        key = field[1].lower().replace("minimum", "min").replace("maximum", "max")
        if key == "method":
            found.append({})
        if found and key in ("method", "unit", "min_interval", "max_interval"):
            found[-1].setdefault(key, field[2].lower().rpartition("_method_")[2].rpartition("_unit_")[2])
    whole = [one for one in found if len(one) == 4]
    return tuple(dict.fromkeys(
        Sampling(one["method"], one["unit"], int(one["min_interval"]), int(one["max_interval"]))
        for one in whole if one["min_interval"].isdecimal() and one["max_interval"].isdecimal()))
