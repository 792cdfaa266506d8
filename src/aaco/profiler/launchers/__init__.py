"""Command lines that run a program under a vendor's profiler, one file per profiler. Nothing is started here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct, field

from aaco.core.errors import Missing, UsageError

COUNTERS = "counters"  # questions that begin so list them, which is slow
Kind = Literal["trace", "counters", "thread_trace", "pc_sampling", "compile"]
Takes = Literal["command", "model", "python"]


class Wanted(Struct, frozen=True):
    """The request to a profiler, in addition to kernels, copies, host calls of HIP or CUDA and markers.

    counters: the profiler's names. kernels: a regular expression; counters and thread traces of others are left
    out. hsa: host calls of HSA too, which are many. att, sampling: further options of a thread trace and of the
    sampling of program counters, by their names without their prefix (`target-cu`, `method`). together: groups of
    counters that one execution must count. region: count only between the marks that the program itself sets
    (CUDA's cuProfilerStart and cuProfilerStop).
    """

    counters: tuple[str, ...] = ()
    kernels: str | None = None
    hsa: bool = False
    thread_trace: bool = False
    pc_sampling: bool = False
    att: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, str] = field(default_factory=dict)
    together: tuple[tuple[str, ...], ...] = ()
    region: bool = False


class Tool(Struct, frozen=True):
    """A profiler as it is installed: its version, its options and its counters.

    counters: by name the hardware block that counts it, or the expression it is computed by; None if the tool could
    not list them. samplings: the device's methods of sampling program counters, None if the tool does not state them.
    arch: of the first GPU, if the tool states it.
    """

    path: str
    version: str | None
    options: frozenset[str]
    formats: frozenset[str] = frozenset()
    counters: Mapping[str, ToolCounter] | None = None
    samplings: tuple[Sampling, ...] | None = None
    arch: str | None = None


class ToolCounter(Struct, frozen=True):
    """A hardware counter, or a value that is computed from such."""

    block: str | None = None
    expression: str | None = None


class Sampling(Struct, frozen=True):
    """A method of sampling program counters, and its intervals, in its unit."""

    method: str
    unit: str
    least: int
    most: int


class ProfilerPass(Struct, frozen=True):
    """One execution of the program under the profiler, and the (relative) folder of its files.

    inputs: files that it reads, by name in that folder. prints: the file to which its standard output is appended.
    tells: the file of the profiler's error messages, if that is not an output. reads: the files that matter, the
    first that exists; every capture in the folder if none is named. closed: files that only the tool can read, so
    that secrets in them cannot be redacted: they are not kept. after: command lines, in order, that make the
    profiler's files readable after it has ended.
    """

    kind: Kind
    folder: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    prints: str | None = None
    tells: str | None = None
    reads: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    after: tuple[tuple[str, ...], ...] = ()


class Launcher(Protocol):
    """A module of this package.

    NAME: of the executable, and of --tool. VENDOR: of the devices it observes, as in core/machine.py. DOES: its
    kinds of execution. TAKES: what follows its own options; "python": it is not an executable of its own, and the
    command's Python answers. INSTALL: what to do if it is missing. QUESTIONS: by name the arguments of each question.
    REFUSALS: its messages when it may not or cannot run, with their meaning and what to do.
    """

    NAME: str
    VENDOR: str
    DOES: frozenset[Kind]
    TAKES: Takes
    INSTALL: str
    QUESTIONS: Mapping[str, tuple[str, ...]]
    REFUSALS: Mapping[str, tuple[str, str]]

    def tool(self, path: str, answers: Mapping[str, str]) -> Tool:
        """Return the tool by its answers to QUESTIONS (name -> arguments), without those at which it failed."""

    def passes(self, tool: Tool, request: Wanted, command: Sequence[str], raw: Path) -> list[ProfilerPass]:
        """Return the executions, each with its folder below `raw`. Raise Missing if the tool cannot do one."""


def options(help_text: str) -> frozenset[str]:
    """Return every option that a tool's help names."""
    return frozenset(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", help_text))


def require_option(tool: Tool, name: str, option: str) -> str:
    """Return the option, if the tool has it. Raise Missing."""
    if option not in tool.options:
        version = f" {tool.version}" if tool.version else ""
        raise Missing(f"{name}{version} at {tool.path} does not know {option}",
                      f"{name} --help  # a newer version may")
    return option


def require_literal_path(path: Path, name: str, marks: str) -> Path:
    """Return the path, if the profiler writes to exactly that. Raise UsageError if it has a character of `marks`, which
    the profiler replaces (by a process id, a variable of the environment), so that its files would not be found.
    """
    if replaced := "".join(mark for mark in marks if mark in str(path)):
        raise UsageError(f"{name} cannot write to {str(path)!r}: it replaces what {' and '.join(replaced)} "
                         "mark in a path", f"--sessions-dir with a path that has none of {' '.join(marks)}")
    return path
