"""rocprof (v1), of ROCm before 7: traces of HIP, HSA and rocTX, and counters of a file of `pmc` lines.

Options: ROCm/rocprofiler, bin/rpl_run.sh. Its help and its lists end with exit code 1. It puts the command line into
double quotes and passes it to a shell: a command that the shell would change is refused. A trace is written as a
database and, again, as JSON; the database is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.core.errors import UsageError
from aaco.profiler.launchers import (
    COUNTERS,
    Kind,
    ProfilerPass,
    Takes,
    Tool,
    ToolCounter,
    Wanted,
    options,
    require_option,
)
from aaco.profiler.launchers.counter_passes import plan

NAME, VENDOR = "rocprof", "AMD"
DOES: frozenset[Kind] = frozenset({"trace", "counters"})
TAKES: Takes = "command"
INSTALL = "install ROCm's rocprofiler, or better rocprofiler-sdk, which brings rocprofv3; PATH=/opt/rocm/bin:$PATH"
QUESTIONS: Mapping[str, tuple[str, ...]] = {"version": ("--version",), "help": ("-h",), COUNTERS: ("--list-basic",),
                                            f"{COUNTERS} derived": ("--list-derived",)}
REFUSALS: Mapping[str, tuple[str, str]] = {
    "Missing rocm_agent_enumerator": ("it found no rocm_agent_enumerator and did nothing", "install ROCm's rocminfo"),
    "Profiling error found": ("it could not count what was asked", "ask for fewer counters, or use rocprofv3")}
DATABASE, TABLE, INPUT = "results.db", "results.csv", "input.txt"
_CHANGED = re.compile(r"""["$`\\!*?\[\]]|\s\s|[\t\n]|^\s|\s$|^$""")
_VERSION = re.compile(r"ROC(?:m|Profiler)? version:\s*(\S+)", re.IGNORECASE)
_BASIC = re.compile(r"^\s*gpu-agent\d+ : (\w+)(?:\[[\d-]+\])? :.*\n\s+block (\w+) has", re.MULTILINE | re.ASCII)
_DERIVED = re.compile(r"^\s*gpu-agent\d+ : (\w+) :.*\n\s+\1 = (.+)$", re.MULTILINE | re.ASCII)


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """Return rocprof by its version, help and lists of counters."""
    version = _VERSION.search(answers.get("version", ""))
    basic, derived = answers.get(COUNTERS, ""), answers.get(f"{COUNTERS} derived", "")
    listed = {name: ToolCounter(expression=expression) for name, expression in _DERIVED.findall(derived)}
    listed |= {name: ToolCounter(block=block) for name, block in _BASIC.findall(basic)}
    return Tool(path, version[1] if version else None, options(answers.get("help", "")), counters=listed or None)


def passes(tool: Tool, request: Wanted, command: Sequence[str], raw: Path) -> list[ProfilerPass]:
    """Return a trace, then an execution per group of counters. Raise UsageError for a command that its shell would
    change.
    """
    for word in command:
        if _CHANGED.search(word):
            raise UsageError(f"rocprof hands the command to a shell, which would change {word!r}",
                             "put it into a script and trace that, or use rocprofv3")
    if re.search(r"\s", str(raw)) or _CHANGED.search(str(raw)):
        raise UsageError(f"rocprof cannot write to {str(raw)!r}: its script splits that into words",
                         "--sessions-dir with a path of letters and digits")
    trace_options = [require_option(tool, NAME, "--hip-trace"), require_option(tool, NAME, "--roctx-trace")]
    trace_options += [require_option(tool, NAME, "--hsa-trace")] if request.hsa else []
    passes = [_build_pass(tool, "trace", "trace", trace_options, command, raw)]
    for number, group in enumerate(plan(request.counters, tool.counters, request.together), 1):
        folder = f"counters-{number:02d}"
        arguments = [require_option(tool, NAME, "-i"), str(raw / folder / INPUT)]
        passes.append(_build_pass(tool, "counters", folder, arguments, command, raw, group,
                                  {INPUT: _write_input(group, request.kernels)}))
    return passes


def _write_input(group: Sequence[str], kernels: str | None) -> str:
    if kernels and not re.fullmatch(r"[\w ]+", kernels, re.ASCII):
        raise UsageError(f"--kernels {kernels}: rocprof takes parts of names, and no expressions",
                         "--kernels gemm, or use rocprofv3")
    return f"pmc : {' '.join(group)}\n" + (f"kernel: {kernels}\n" if kernels else "")


def _build_pass(tool: Tool, kind: Kind, folder: str, arguments: Sequence[str], command: Sequence[str], raw: Path,
                counters: tuple[str, ...] = (), inputs: Mapping[str, str] | None = None) -> ProfilerPass:
    """Return a pass. Its temporary files are below the session, and are removed at its end (-t)."""
    argv = (tool.path, *arguments, require_option(tool, NAME, "--timestamp"), "on", require_option(tool, NAME, "-t"),
            str(raw / folder / "work"), require_option(tool, NAME, "-o"), str(raw / folder / TABLE), *command)
    return ProfilerPass(kind, folder, argv, counters=counters, inputs=inputs or {}, reads=(DATABASE, TABLE))
