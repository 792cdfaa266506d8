"""Completion as the shells do it themselves: TAB at a terminal in bash and zsh, `complete -C` in fish."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SHELLS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"], "fish": ["fish", "--no-config"]}


def require(shell: str) -> None:
    if shutil.which(shell) is None:
        assert os.environ.get("CI") != "true", f"{shell} is to be there on CI"
        pytest.skip(f"{shell} is not installed")


@pytest.fixture
def environment(recorded, tmp_path: Path) -> dict[str, str]:
    """Finds this tree's program under its name, and nobody's settings."""
    program = tmp_path / "bin" / "aaco"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aaco "$@"\n')
    program.chmod(0o755)
    found = recorded.environment(PATH=f"{program.parent}:{os.environ['PATH']}", HOME=str(tmp_path), TERM="dumb",
                                 PS1="READY> ", PROMPT="READY> ", LC_ALL="C.UTF-8")
    source = str(Path(__file__).parents[2] / "src")
    return found | {"PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}


class Terminal:
    """An interactive shell at a terminal of its own."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.pid, self.file = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def until(self, wanted: str, seconds: float = 60) -> str:
        """What came, up to what is wanted in it."""
        end = time.monotonic() + seconds
        while not (found := re.search(wanted, self.seen)):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.file], [], [], left)[0], f"{wanted} never came: {self.seen!r}"
            self.seen += os.read(self.file, 1 << 16).decode(errors="replace")
        came, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return came

    def close(self) -> None:
        os.close(self.file)  # the shell gets SIGHUP
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_completes_verbs_options_and_names(shell, recorded, environment):
    require(shell)
    terminal = Terminal(SHELLS[shell], recorded.folder, environment)
    name = recorded.latest.name
    try:
        terminal.until("READY> ")
        first = "autoload -Uz compinit; compinit -u; " if shell == "zsh" else ""
        terminal.type(f'{first}eval "$(aaco completion {shell})"; echo LOA""DED\n')
        terminal.until("LOADED")
        terminal.until("READY> ")
        for typed, wanted in (("aaco summ\t", r"summary"), ("aaco report --form\t", "--format"),
                              (f"aaco report {name[:-2]}\t", name), ("aaco report --session reco\t", "recorded"),
                              ("aaco run gpt2-ti\t", "gpt2-tiny"), ("aaco explain latency_p5\t", "latency_p50_ms"),
                              ("aaco ls --model bert-ti\t", "bert-tiny"), ("aaco lab ent\t", "enter")):
            terminal.type(typed)
            terminal.until(wanted)
            terminal.type("\x15\n")  # empty the line
            terminal.until("READY> ")
    finally:
        terminal.close()


def test_fish_completes_with_descriptions(recorded, environment):
    require("fish")

    def complete(line: str) -> list[str]:
        script = f"aaco completion fish | source; complete -C '{line}'"
        done = subprocess.run([*SHELLS["fish"], "-c", script], cwd=recorded.folder, env=environment, text=True,
                              capture_output=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout.splitlines()

    assert any(line.startswith("summary\tA session in a few lines") for line in complete("aaco summ"))
    assert any(line.startswith(f"{recorded.latest.name}\tgpt2-tiny") for line in complete("aaco report 2"))
    assert "KAR\tkernel_amplification_ratio" in complete("aaco explain KA")


def test_nothing_is_offered_and_nothing_said_where_nothing_can_be_read(aaco):
    (aaco.folder / "aaco.yaml").write_text("storage: [")
    asked = {"_AACO_COMPLETE": "bash_complete", "COMP_WORDS": "aaco report x", "COMP_CWORD": "2"}
    done = aaco(**asked)
    assert not done.stdout.strip() and not done.stderr
