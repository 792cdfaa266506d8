"""migraphx-driver: what a model is compiled to, with the nodes each instruction computes, and how long each one takes.

Commands and options: AMDMIGraphX, docs/reference/driver-options and docs/dev/debug_symbols. Both print: `compile` the
program with the names of the model's nodes (`--debug-symbols`, where it has that), `perf` its instructions with their
times, one by one and waiting for each. One file keeps both, and the parser puts them together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.profiler.launchers import Kind, Pass, Takes, Tool, Wanted, known, options

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
    """The driver by its version and the help of its commands."""
    version = _VERSION.search(answers.get("version", ""))
    named = options(answers.get("help", "")) | (options(answers.get("compile", "")) & {SYMBOLS})
    return Tool(path, version[1] if version else None, named)


def passes(tool: Tool, wanted: Wanted, command: Sequence[str], raw: Path) -> list[Pass]:
    """The program, and then its times. command: the model, and options of the driver for it."""
    symbols = [SYMBOLS] if SYMBOLS in tool.options else []
    return [Pass("compile", FOLDER, (tool.path, "compile", *symbols, *command), prints=PRINTED),
            Pass("trace", FOLDER, (tool.path, "perf", known(tool, NAME, "--detailed"), *command), prints=PRINTED)]
