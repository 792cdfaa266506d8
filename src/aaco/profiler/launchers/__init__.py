"""Command lines that run a program under a vendor's profiler, one file per profiler. Nothing is started here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from aaco.core.errors import Missing, UsageError

COUNTERS = "counters"  # questions that begin so list them, which takes a tool its time
Kind = Literal["trace", "counters", "thread_trace", "pc_sampling", "compile"]
Takes = Literal["command", "model", "python"]


@dataclass(frozen=True)
class Wanted:
    """What a profiler is asked for, beside kernels, copies, host calls of HIP or CUDA and markers.

    counters: as the profiler names them. kernels: a regular expression; counters and thread traces of others are left
    out. hsa: host calls of HSA too, which are many. att, sampling: further options of a thread trace and of the
    sampling of program counters, by their names without what they begin with (`target-cu`, `method`). together: of the
    counters, those that one execution must count. region: count only between the marks that the program itself sets
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


@dataclass(frozen=True)
class Tool:
    """A profiler as it is installed: what it says of its version, its options and its counters.

    counters: by name the hardware block that counts it, or the expression it is computed by; None where the tool could
    not list them. samplings: the ways in which the device can sample program counters, None where it does not say.
    arch: of the first GPU, where it says that.
    """

    path: str
    version: str | None
    options: frozenset[str]
    formats: frozenset[str] = frozenset()
    counters: Mapping[str, Counter] | None = None
    samplings: tuple[Sampling, ...] | None = None
    arch: str | None = None


@dataclass(frozen=True)
class Counter:
    """A counter of the hardware, or a value that is computed from such."""

    block: str | None = None
    expression: str | None = None


@dataclass(frozen=True)
class Sampling:
    """A way to sample program counters, and the intervals it takes, in its unit."""

    method: str
    unit: str
    least: int
    most: int


@dataclass(frozen=True)
class Pass:
    """One execution of the program under the profiler, and the folder (relative) that its files go to.

    inputs: files that it reads, by name in that folder. prints: the file that its standard output is kept in, behind
    what is there. tells: the file in which the profiler says what went wrong, if that is not an output. reads: the
    files that matter, the first that is there; every capture in the folder if none is named. closed: files that only
    the tool can read, so that what is secret in them cannot be withheld: they are not kept. after: what makes the
    profiler's files readable once it has ended, one command line after the other.
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

    NAME: of the executable, and of --tool. VENDOR: whose devices it observes, as core/machine.py calls it. DOES: the
    kinds of execution it can do. TAKES: what stands behind its own options; "python": it is no executable of its own,
    and the command's Python is asked. INSTALL: what to do where it is missing. QUESTIONS: by name the arguments that
    make it answer. REFUSALS: what it says when it may not or cannot, with what that means and what to do.
    """

    NAME: str
    VENDOR: str
    DOES: frozenset[Kind]
    TAKES: Takes
    INSTALL: str
    QUESTIONS: Mapping[str, tuple[str, ...]]
    REFUSALS: Mapping[str, tuple[str, str]]

    def tool(self, path: str, answers: Mapping[str, str]) -> Tool:
        """The tool by its answers to QUESTIONS (name -> arguments); a question it failed at is not in them."""

    def passes(self, tool: Tool, wanted: Wanted, command: Sequence[str], raw: Path) -> list[Pass]:
        """The executions it takes, each with its folder below `raw`. Raises Missing where the tool cannot do it."""


def options(help_text: str) -> frozenset[str]:
    """Every option that a tool's help names."""
    return frozenset(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", help_text))


def known(tool: Tool, name: str, option: str) -> str:
    """The option, if the tool has it. Raises Missing."""
    if option not in tool.options:
        version = f" {tool.version}" if tool.version else ""
        raise Missing(f"{name}{version} at {tool.path} does not know {option}",
                      f"{name} --help  # a newer version may")
    return option


def literal(path: Path, name: str, marks: str) -> Path:
    """The path, if the profiler writes to just that. Raises UsageError where a character of `marks` stands in it, which
    the profiler replaces (by a process id, a variable of the environment), so that nobody finds its files.
    """
    if found := "".join(mark for mark in marks if mark in str(path)):
        raise UsageError(f"{name} cannot write to {str(path)!r}: it replaces what {' and '.join(found)} "
                         "mark in a path", f"--sessions-dir with a path that has none of {' '.join(marks)}")
    return path
