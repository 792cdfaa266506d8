"""The program as a user runs it: a fresh process in an empty folder."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from tests import installed

if TYPE_CHECKING:
    from tests.pages import Walked

Outcome = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Aaco:
    """Runs `aaco` in a folder, with a cache of its own so that nothing of the user's is read or written."""

    folder: Path
    cache: Path

    def __post_init__(self) -> None:
        """Ceilings are measured only where a test is about them: on a busy machine it takes seconds a run."""
        settings = self.folder / ".config" / "aaco" / "config.yaml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("profiling: {calibrate: false}\n")

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AACO_")}
        return kept | {"AACO_CACHE_DIR": str(self.cache), "XDG_CONFIG_HOME": str(self.folder / ".config"), **extra}

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "aaco", *map(str, arguments)]

    def __call__(self, *arguments: object, expect: int = 0, **extra: str) -> Outcome:
        done = subprocess.run(self.command(*arguments), cwd=self.folder, env=self.environment(**extra), text=True,
                              capture_output=True, timeout=240)
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr
        return done

    def inside(self, *arguments: object, expect: int | tuple[int, ...] = 0, **extra: str) -> Outcome:
        """The same within this process, which is fast; whatever exception would be a traceback comes out of it."""
        from aaco import cli

        out, err = io.StringIO(), io.StringIO()
        with chdir(self.folder), patch.dict(os.environ, self.environment(**extra), clear=True), redirect_stdout(out), \
                redirect_stderr(err):
            code = cli.outcome(cli.app, "aaco", [str(argument) for argument in arguments])
        expected = expect if isinstance(expect, tuple) else (expect,)
        assert code in expected, f"exit {code}\n{out.getvalue()[-2000:]}\n{err.getvalue()[-2000:]}"
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    @property
    def latest(self) -> Path:
        """The newest session, however it ended."""
        return max((self.folder / "sessions").glob("2*/[!.]*"), key=lambda folder: folder.name,
                   default=self.folder / "sessions/latest")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def aaco(tmp_path: Path, cache: Path) -> Aaco:
    return Aaco(tmp_path, cache)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Aaco:
    """A folder with one real session of a small model; tests must not change it."""
    made = Aaco(tmp_path_factory.mktemp("recorded"), cache)
    made("run", "--model", "gpt2-tiny", "--warmup", 5, "--iterations", 120, "--telemetry", "--tag", "recorded")
    return made


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git would give a newcomer, with `pip install .` executed beside the packages of the lock file."""
    tree = installed.tree(tmp_path_factory.mktemp("clone"))
    installed.environment(tree / ".venv", tree)
    (tree / ".venv/requirements.lock.installed").touch()  # what scripts/env leaves when it has installed them
    return tree


@pytest.fixture(scope="session")
def walked(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Callable[[str], Walked]:
    """What a page of the documentation printed when its blocks were run; each page is run once."""
    from tests import pages

    done: dict[str, Walked] = {}

    def once(page: str) -> Walked:
        if page not in done:
            done[page] = pages.walk(page, tmp_path_factory.mktemp("page"), cache)
        return done[page]

    return once


RunAaco = Callable[..., Outcome]
