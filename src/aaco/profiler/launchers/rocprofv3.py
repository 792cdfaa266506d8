"""rocprofv3: traces from ROCm 6.2 on, counters and samples of program counters from 6.3 on, thread traces from 7.0 on.

Options: rocprofiler-sdk, source/bin/rocprofv3.py. Only options in the help of the installed version are used. Without
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
    Kind,
    ProfilerPass,
    Sampling,
    Takes,
    Tool,
    ToolCounter,
    Wanted,
    options,
    require_literal_path,
    require_option,
)
from aaco.profiler.launchers.counter_passes import plan

NAME, VENDOR = "rocprofv3", "AMD"
DOES: frozenset[Kind] = frozenset({"trace", "counters", "thread_trace", "pc_sampling"})
TAKES: Takes = "command"
INSTALL = "install ROCm's rocprofiler-sdk, or add its folder: PATH=/opt/rocm/bin:$PATH; aaco doctor"
QUESTIONS: Mapping[str, tuple[str, ...]] = {"version": ("--version",), "help": ("--help",), COUNTERS: ("-L",)}
TRACED = ("--kernel-trace", "--memory-copy-trace", "--hip-runtime-trace", "--marker-trace")
TRACED_WITHOUT_CALLS = ("--kernel-trace", "--memory-copy-trace")
WHERE_KNOWN = ("--memory-allocation-trace", "--scratch-memory-trace", "--rccl-trace")  # not of every version
BEST_FIRST = ("rocpd", "csv")  # rocpd came with ROCm 7.0; both are read piece by piece
REFUSALS: Mapping[str, tuple[str, str]] = {
    "rocprof-trace-decoder library path not found": (
        "it found no decoder of thread traces",
        "install AMD's rocprof-trace-decoder, or say where it is: --att-with library-path=/opt/rocm/lib"),
    "PC sampling unavailable": ("it does not sample program counters here", "rocprofv3 -L  # says what the GPU can"),
    "entire set of counters cannot be collected in single pass": (
        "the counters need more than one execution", "name fewer in one --pmc")}
# The default sampling interval of program counters, in the unit of each method.
INTERVAL = {"time": 1000, "cycles": 1 << 20, "instructions": 1 << 20}
HOST_TRAP = Sampling("host_trap", "time", 1, (1 << 64) - 1)  # what every GPU can that can sample at all
# PC sampling is refused without it: rocprofiler-sdk, docs/how-to/using-pc-sampling.rst.
SAMPLING_ALLOWED = {"ROCPROFILER_PC_SAMPLING_BETA_ENABLED": "on"}
MACROS = "%{$"  # %pid%, {pid}, $ENV{X}: rocprofiler-sdk, source/lib/output/{format_path,output_key}.cpp
_FIELD = re.compile(r"^\s*([A-Za-z_]+)\s*:\s*(.*?)\s*$")


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """Return rocprofv3 by its version, help and list of counters."""
    help_text = answers.get("help", "")
    formats = re.search(r"--output-format\s+\{([\w,]+)\}|supported formats:\s*([\w, ]+)", help_text)
    listed = re.findall(r"\w+", (formats[1] or formats[2]).lower()) if formats else []
    version = re.search(r"rocm_version:\s*(\S+)", answers.get("version", "")) or re.search(
        r"version:\s*(\S+)", answers.get("version", ""))
    arch = re.search(r"^\s*Name\s*:\s*(gfx\w+)", answers.get(COUNTERS, ""), re.MULTILINE)
    return Tool(path, version[1] if version else None, options(help_text), frozenset(listed),
                arch=arch[1] if arch else None,
                counters=_parse_counters(answers.get(COUNTERS, "")) or None,
                samplings=_parse_samplings(answers.get(COUNTERS)))


def passes(tool: Tool, request: Wanted, command: Sequence[str], raw: Path) -> list[ProfilerPass]:
    """Return a trace without counters, whose times count; then as many executions as the counters need, and the
    samplings.
    """
    trace_options = [require_option(tool, NAME, option)
                     for option in (*TRACED, *(["--hsa-trace"] if request.hsa else []))]
    trace_options += [option for option in WHERE_KNOWN if option in tool.options]
    kernel_filter = [require_option(tool, NAME, "--kernel-include-regex"), request.kernels] if request.kernels else []
    passes = [_build_pass(tool, "trace", "trace", trace_options, command, raw)]
    for number, group in enumerate(plan(request.counters, tool.counters, request.together), 1):
        arguments = [*kernel_filter, require_option(tool, NAME, "--pmc"), *group]
        passes.append(_build_pass(tool, "counters", f"counters-{number:02d}", arguments, command, raw, group))
    if request.thread_trace:
        arguments = [*kernel_filter, require_option(tool, NAME, "--att"), *_thread_trace_options(tool, request.att)]
        passes.append(_build_pass(tool, "thread_trace", "thread-trace", arguments, command, raw))
    if request.pc_sampling:
        arguments = _sampling_options(tool, request.sampling)  # kernels cannot be chosen: --help
        passes.append(_build_pass(tool, "pc_sampling", "pc-sampling", arguments, command, raw))
    return passes


def before(tool: Tool, folder: Path, calls: bool) -> tuple[str, ...]:
    """Return the words before a command that trace it into the folder: kernels and copies, with the calls of HIP or
    without.

    As CSV, which unlike rocpd holds nothing of the program's environment. Raise Missing, UsageError.
    """
    arguments = [require_option(tool, NAME, option) for option in (TRACED if calls else TRACED_WITHOUT_CALLS)]
    return (tool.path, *arguments, require_option(tool, NAME, "--output-directory"),
            str(require_literal_path(folder, NAME, MACROS)),
            require_option(tool, NAME, "--output-format"), "csv", "--")


def _thread_trace_options(tool: Tool, requested: Mapping[str, str]) -> list[str]:
    """Return options of a thread trace. Raise UsageError for one that the tool does not have, with those it has."""
    option_names = sorted(option.removeprefix("--att-") for option in tool.options if option.startswith("--att-"))
    for name in requested:
        if name not in option_names:
            raise UsageError(f"--att-with {name}: {NAME} has no option --att-{name}{meant(name, option_names)}",
                             f"it has {', '.join(option_names) or 'none'}")
    return [word for name, value in requested.items() for word in (f"--att-{name}", value)]


def _sampling_options(tool: Tool, requested: Mapping[str, str]) -> list[str]:
    """Return the options of sampling: as requested, if the GPU can, else as it reports that it can, by time if
    possible.

    Raise UsageError for invalid options, Missing if the GPU cannot.
    """
    if unknown := requested.keys() - {"method", "unit", "interval"}:
        raise UsageError(f"--pc-sampling-with {min(unknown)}: no such option", "it has method, unit, interval")
    samplings = (HOST_TRAP,) if tool.samplings is None else tool.samplings
    listed = ", ".join(f"{sampling.method} by {sampling.unit}" for sampling in samplings) or "none"
    fitting = [sampling for sampling in samplings if requested.get("method", sampling.method) == sampling.method
               and requested.get("unit", sampling.unit) == sampling.unit]
    if not fitting:
        requested_words = " and ".join(requested[key] for key in ("method", "unit") if key in requested and samplings)
        raise Missing(f"this GPU does not sample program counters{requested_words and f' by {requested_words}'}",
                      f"rocprofv3 -L says what it can: {listed}")
    sampling = next((sampling for sampling in fitting if sampling.unit == "time"), fitting[0])
    interval = requested.get("interval", str(min(max(INTERVAL.get(sampling.unit, 1), sampling.least), sampling.most)))
    if not interval.isdecimal() or not sampling.least <= int(interval) <= sampling.most:
        raise UsageError(f"--pc-sampling-with interval={interval}: this GPU takes {sampling.least} to "
                         f"{sampling.most} {sampling.unit}",
                         f"--pc-sampling-with interval={max(INTERVAL.get(sampling.unit, 1), sampling.least)}")
    return [require_option(tool, NAME, "--pc-sampling-beta-enabled"),
            require_option(tool, NAME, "--pc-sampling-method"), sampling.method,
            require_option(tool, NAME, "--pc-sampling-unit"), sampling.unit,
            require_option(tool, NAME, "--pc-sampling-interval"), interval]


def _build_pass(tool: Tool, kind: Kind, folder: str, arguments: Sequence[str], command: Sequence[str], raw: Path,
                counters: tuple[str, ...] = ()) -> ProfilerPass:
    """Return a pass. Requested options precede options of one value, as --pmc takes every word up to the next option.
    """
    form = "csv" if kind == "pc_sampling" else next((format_name for format_name in BEST_FIRST
                                                     if format_name in tool.formats), "csv")
    argv = (tool.path, *arguments, require_option(tool, NAME, "--output-directory"),
            str(require_literal_path(raw, NAME, MACROS) / folder),
            require_option(tool, NAME, "--output-format"), form, "--", *command)
    return ProfilerPass(kind, folder, argv, SAMPLING_ALLOWED if kind == "pc_sampling" else {}, counters)


def _parse_counters(listing: str) -> dict[str, ToolCounter]:
    """Return the counters that `rocprofv3 -L` lists: paragraphs of `Counter_Name : X` with `Block : Y` or `Expression :
    Z`.
    """
    counter_by_name: dict[str, ToolCounter] = {}
    name = None
    for line in listing.splitlines():
        field = _FIELD.match(line)
        if field is None:
            continue
        key, value = field[1].lower(), field[2]
        if key == "counter_name":
            name = value
            counter_by_name.setdefault(name, ToolCounter())
        elif name and key == "block":
            counter_by_name[name] = ToolCounter(block=value)
        elif name and key == "expression":
            counter_by_name[name] = ToolCounter(expression=value)
    return counter_by_name


def _parse_samplings(listing: str | None) -> tuple[Sampling, ...] | None:
    """Return the configurations that `rocprofv3 -L` lists, in the words of its options; None if it lists nothing at
    all.

    Releases wrote `Method: ROCPROFILER_PC_SAMPLING_METHOD_HOST_TRAP` and `Method : host_trap`.
    """
    if not listing or not _parse_counters(listing):
        return None
    configurations: list[dict[str, str]] = []
    for field in filter(None, map(_FIELD.match, listing.splitlines())):
        key = field[1].lower().replace("minimum", "min").replace("maximum", "max")
        if key == "method":
            configurations.append({})
        if configurations and key in ("method", "unit", "min_interval", "max_interval"):
            configurations[-1].setdefault(key, field[2].lower().rpartition("_method_")[2].rpartition("_unit_")[2])
    complete = [configuration for configuration in configurations if len(configuration) == 4]
    return tuple(dict.fromkeys(
        Sampling(configuration["method"], configuration["unit"], int(configuration["min_interval"]),
                 int(configuration["max_interval"]))
        for configuration in complete if configuration["min_interval"].isdecimal()
        and configuration["max_interval"].isdecimal()))
