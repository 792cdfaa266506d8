"""migraphx-driver: the compiled program of a model, with the nodes of each instruction, and the time of each
instruction.

Commands and options: AMDMIGraphX, docs/reference/driver-options and docs/dev/debug_symbols. `compile` prints the
program with the names of the model's nodes (`--debug-symbols`, if it has that), `perf` its instructions with their
times, one by one and waiting for each. One file keeps both, and the parser joins them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.profiler.launchers import Kind, ProfilerPass, Takes, Tool, Wanted, options, require_option

NAME, VENDOR = "migraphx-driver", "AMD"
DOES: frozenset[Kind] = frozenset({"trace", "compile"})
TAKES: Takes = "model"
INSTALL = "install the package migraphx of ROCm, or add its folder: PATH=/opt/rocm/bin:$PATH"
QUESTIONS: Mapping[str, tuple[str, ...]] = {"version": ("--version",), "help": ("perf", "--help"),
                                            "compile": ("compile", "--help")}
REFUSALS: Mapping[str, tuple[str, str]] = {}
FOLDER, PRINTED, SYMBOLS = "trace", "migraphx.txt", "--debug-symbols"
_VERSION = re.compile(r"MIGraphX Version:\s*([\w.-]+)")


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """Return the driver by its version and the help of its commands."""
    version = _VERSION.search(answers.get("version", ""))
    named = options(answers.get("help", "")) | (options(answers.get("compile", "")) & {SYMBOLS})
    return Tool(path, version[1] if version else None, named)


def passes(tool: Tool, request: Wanted, command: Sequence[str], raw: Path) -> list[ProfilerPass]:
    """Return the passes for the program, and then for its times. command: the model, and options of the driver for it.
    """
    symbols = [SYMBOLS] if SYMBOLS in tool.options else []
    return [ProfilerPass("compile", FOLDER, (tool.path, "compile", *symbols, *command), prints=PRINTED),
            ProfilerPass("trace", FOLDER, (tool.path, "perf", require_option(tool, NAME, "--detailed"), *command),
                         prints=PRINTED)]
