"""A program of ours in a process of its own, which answers each line on its stdin with one line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from aaco.core.errors import Missing


class Program:
    """A running one; `begin` waits until it is ready."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True, env=environment)

    def begin(self) -> None:
        """Wait until it says `ready`. Raises Missing where it does not."""
        if self.line() != "ready":
            raise self._gone()

    def line(self) -> str:
        """Its next line; empty at its end."""
        assert self._process.stdout
        return self._process.stdout.readline().rstrip("\n")

    def ask(self, text: str) -> str:
        """Its answer to a line. Raises Missing where it has ended."""
        assert self._process.stdin
        try:
            print(text, file=self._process.stdin, flush=True)
            answer = self.line()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise self._gone()
        return answer

    def end(self) -> None:
        """Close its stdin, which ends it."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _gone(self) -> Missing:
        assert self._process.stderr
        last = (self._process.stderr.read().splitlines() or ["it said nothing"])[-1]
        return Missing(f"the program does not run on the device: {last}", "pip install torch, built for CUDA")


@contextmanager
def running(argv: Sequence[str], *environments: Mapping[str, str] | None) -> Iterator[list[Program]]:
    """The program, in each of the environments at one time (by default in this one), until the end of the block.

    Raises Missing where one does not begin.
    """
    programs = [Program(argv, environment) for environment in environments or (None,)]
    try:
        for program in programs:
            program.begin()
        yield programs
    finally:
        for program in programs:
            program.end()
