"""A program of ours in a process of its own, which answers each line on its stdin with one line."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from aaco.core.errors import Missing

END_S = 60.0


class Program:
    """A running one; `begin` waits until it is ready."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  not a pipe, which would hold it up once it is full
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
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
        """Close its stdin, which ends it; one that goes on is killed."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _gone(self) -> Missing:
        self._process.wait()
        self._said.seek(0)
        last = (self._said.read().splitlines() or ["it said nothing"])[-1]
        return Missing(f"the program does not run on the device: {last}", "pip install torch, built for CUDA")


@contextmanager
def running(argv: Sequence[str], *environments: Mapping[str, str] | None) -> Iterator[list[Program]]:
    """The program, in each of the environments at one time (by default in this one), until the end of the block.

    Raises Missing where one does not begin.
    """
    with ExitStack() as held:
        programs = []
        for environment in environments or (None,):
            programs.append(Program(argv, environment))
            held.callback(programs[-1].end)
        for program in programs:
            program.begin()
        yield programs
