"""Pages of Markdown as programs: every block of code is run, in order, in one folder, as a reader would.

What a block is follows from its language:

bash      each line is a command; it must exit with 0, or as its end says: `# exits with 3`. One that ends with `&` goes
          on in the background until the page ends; the next waits until it has said something. A command of aaco that
          needs no process of its own, and no shell, runs in the process of the tests, which has it imported.
python    all of a page run in one process.
a first line `# NAME.py` (`.yaml`, ...)  the block is a file of that name, written and not run.
yaml, json, toml   parsed.      text   what a program prints.

A comment before a block says what the reader does not see. `<!-- before` and commands: run first, what the page takes
for granted. `<!-- not run: WHY -->`: the block is not run here; WHY must be one of NOT_RUN. A page that takes more than
commands to set up says `<!-- run by TEST -->`, a file that names the page: it runs its blocks in place of this walk.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

from benchmarks.laboratory import alone
from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[1]
# Why a block may not be run here. Everything else is.
NOT_RUN = {
    "needs an AMD GPU": "the machines of continuous integration have none",
    "needs an NVIDIA GPU": "tests/system/test_replay.py gives the driver's answers",
    "needs a container engine": "tests/system/test_containers.py executes the steps of an image in a chroot",
    "needs the extra genai": "tests/system/test_llm_in_process.py does the same where it is installed",
    "changes the machine": "packages, groups or capabilities of the system",
    "installs into the reader's environment": "the wheel is installed by tests/system/test_packaging.py",
    "takes minutes": "measures for long; its parts are tested one by one",
}
# Pages that only one test or benchmark at a time may run on a machine.
AROUND: dict[str, Callable[[], AbstractContextManager[None]]] = {"docs/guides/laboratory.md": alone}
RUNNABLE, PARSED = ("bash", "python"), {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}
PRINTED = ("text",)
FILE = re.compile(r"# ([\w.-]+\.(?:py|yaml|yml|json|toml))\n")
EXITS = re.compile(r"\s+# exits with (\d)$")
# On a busy machine there may be a real change between two measurements, and a limit that is missed.
MAY_FIND = re.compile(r"aaco (compare|diff|regression|ci|sla check) ")
# Commands that only read and write files, and those whose models have processes of their own; where these options do
# not change the machine or need its administrator.
HERE = {"analyze", "baseline", "bundle", "check", "chi", "ci", "compare", "config", "critical-path", "diff", "drift",
        "env", "explain", "export", "fleet", "history", "import", "info", "instructions", "ir", "kernels", "llm",
        "ls", "models", "ops", "outputs", "perfetto", "profile", "ranks", "report", "roofline", "root-cause", "run",
        "sla", "sql", "steps", "summary", "sweep", "try", "what-if"}
OF_THE_MACHINE = {"--ebpf", "--lab"}
NEEDS_SHELL = re.compile(r"[][|&;<>$`*?{}~#!\\]")
PYTHON = """
import contextlib, io, json, sys, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    said, failed = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(json.loads(line), "block", "exec"), space)
    except BaseException:
        failed = traceback.format_exc()
    sys.__stdout__.write(json.dumps([said.getvalue(), failed]) + "\\n")
    sys.__stdout__.flush()
"""


@dataclass(frozen=True)
class Block:
    """A block of code: where it begins, and what its comments say of it."""

    line: int
    language: str
    text: str
    before: str = ""
    not_run: str = ""

    @property
    def file(self) -> str:
        """The name of the file that the block is; empty for others."""
        found = FILE.match(self.text)
        return found[1] if found and self.language != "bash" else ""

    @property
    def commands(self) -> list[str]:
        """The commands of a bash block, one that goes over several lines as one."""
        return commands(self.text)


def commands(text: str) -> list[str]:
    """Logical lines, without comments and empty ones."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def pages() -> list[str]:
    """Every page of the documentation and of the skill, by its path in the repository."""
    found = (path for top in ("docs", "skills") for path in (ROOT / top).rglob("*.md"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks(page: str) -> list[Block]:
    """The blocks of code of a page, in order; directives of the site (`{...}`) are none."""
    found, comment = [], ""
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text()):
        if token.type == "html_block":
            comment = token.content
        elif token.type in ("fence", "code_block"):
            if not token.info.startswith("{"):
                found.append(_block(token.map[0] + 1 if token.map else 0, token.info.strip(), token.content, comment))
            comment = ""
        elif token.nesting >= 0:
            comment = ""
    return found


def _block(line: int, language: str, text: str, comment: str) -> Block:
    before = re.search(r"<!-- before\n(.*?)-->", comment, re.DOTALL)
    not_run = re.search(r"<!-- not run: ([^-]*?)(?:;.*?)?-->", comment, re.DOTALL)
    return Block(line, language, text, before[1] if before else "", not_run[1].strip() if not_run else "")


def run_by(page: str) -> str:
    """The test that runs the page's blocks, where it is not this walk."""
    found = re.search(r"^<!-- run by (tests/\S+) -->$", (ROOT / page).read_text(), re.MULTILINE)
    return found[1] if found else ""


@dataclass
class Walked:
    """A page that was run: where, and what every command and block of Python printed, by its text."""

    aaco: Aaco
    said: dict[str, str] = field(default_factory=dict)

    @property
    def printed(self) -> list[str]:
        """What was printed, in order."""
        return list(self.said.values())


def walk(page: str, folder: Path, cache: Path) -> Walked:
    """Run a page in an empty folder that has the repository's tests, examples and benchmarks."""
    walked = Walked(Aaco(folder, cache))
    for name in ("tests", "examples", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    with AROUND.get(page, nullcontext)(), ExitStack() as background:
        extra = {"PATH": _path(folder), "COLUMNS": "80", "AACO_LAB_DIR": str(folder / "lab")}
        run = partial(_run, aaco=walked.aaco, extra=extra, background=background)
        interpreter = _Interpreter(folder, walked.aaco.environment(**extra), background)
        for block in blocks(page):
            for command in commands(block.before):
                run(command)
            if block.not_run:
                continue
            if block.file:
                (folder / block.file).write_text(block.text)
            elif block.language == "bash":
                for command in block.commands:
                    walked.said[command] = run(command)
            elif block.language == "python":
                walked.said[block.text] = interpreter.run(block.text)
    return walked


def _path(folder: Path) -> str:
    programs = folder / ".programs"
    programs.mkdir()
    (programs / "aaco").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m aaco "$@"\n')
    (programs / "aaco").chmod(0o755)
    return os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])


def _run(command: str, aaco: Aaco, extra: dict[str, str], background: ExitStack) -> str:
    """What a command says; what it says first, if it goes on in the background."""
    expected, environment = EXITS.search(command), aaco.environment(**extra)
    text = EXITS.sub("", command).rstrip()
    if text.endswith(" &"):
        return background.enter_context(_started(text.removesuffix("&"), aaco.folder, environment))
    codes = (int(expected[1]),) if expected else (0, 3) if MAY_FIND.match(text) else (0,)
    program, *words = shlex.split(text) if not NEEDS_SHELL.search(text) else [""]
    if program == "aaco" and words and words[0] in HERE and not OF_THE_MACHINE & set(words):
        return aaco.inside(*words, expect=codes, **extra).stdout
    done = subprocess.run(["bash", "-o", "pipefail", "-c", text], cwd=aaco.folder, env=environment, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=280)
    assert done.returncode in codes, f"{command}\nexit {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr
    return done.stdout


@contextmanager
def _started(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=folder, env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    assert process.stdout
    try:
        first = process.stdout.readline()
        assert first and process.poll() is None, f"{command}: {first}{process.stdout.read()}"
        yield first
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


class _Interpreter:
    """One Python process for the blocks of a page, started with the first."""

    def __init__(self, folder: Path, environment: dict[str, str], ending: ExitStack) -> None:
        self.folder, self.environment, self.ending = folder, environment, ending
        self.process: subprocess.Popen[str] | None = None

    def run(self, block: str) -> str:
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, "-c", PYTHON], cwd=self.folder, env=self.environment,
                                            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.ending.callback(self.process.communicate)
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(block) + "\n")
        self.process.stdin.flush()
        said, failed = json.loads(self.process.stdout.readline())
        assert not failed, f"{block}\n{failed}"
        return said
