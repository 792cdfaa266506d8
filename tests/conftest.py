"""Golden files (`pytest --regold` writes them anew; read the difference before committing), captures, programs."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests import third_party
from tests.browser import chromium

# A neighbour's load must not fail a test. Sixty examples each time add up over the runs: each draws others.
settings.register_profile("shared machine", deadline=None, max_examples=60)
# Of a mutant it is enough to know that some example fails; to shrink it took up to 100 s.
settings.register_profile("mutant", deadline=None, derandomize=True, database=None,
                          phases=(Phase.explicit, Phase.generate))
settings.load_profile("shared machine")
# What a script started in the background ignores it, and so would every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test cuts the power. A session is some fifty files, and to wait for the disk after each takes as long as the rest.
os.fsync = lambda descriptor: None
gc.set_threshold(50_000)  # as aaco does
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="write the golden files anew instead of comparing")


def pytest_collection_finish() -> None:
    """What lives to the end, modules and tests, is not looked through for garbage again and again."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end all of it is given back: libraries complain of what is left."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of third-party captures; a test that needs it is skipped where it is not."""
    return third_party.captures()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """Compares a text with tests/golden/NAME, or with the file of an absolute path."""

    def check(name: str | Path, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--regold"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, newline="")
        assert text == path.read_text(), f"{path.name} differs; if that is intended: pytest --regold"

    return check


@pytest.fixture
def start() -> Iterator[Any]:
    """Starts Python programs that have said "ready", and ends them after the test."""
    running = []

    def program(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        running.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield program
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """Chromium, started once; tests open pages in it."""
    started = chromium.started(tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder
