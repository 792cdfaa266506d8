"""CONTRIBUTING's recipes: each adds as many files as it says, and what is added is found by being there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
METRIC = '''
from __future__ import annotations

from aaco.analytics.bottleneck.work import DeviceWork
from aaco.core.registry import metric


@metric(unit="count", better="lower", formula="parts of device_work.json that took time", source="here")
def limiter_count(device_work: DeviceWork) -> float:
    """How many limits took time of the devices."""
    return float(sum(ns > 0 for ns in device_work.parts_ns.values()))
'''
FINDING = '''
from __future__ import annotations

from dataclasses import dataclass

from aaco.core import documents
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.tracelake import layout, queries


@documents.document(layout.finding("longest_kernel"), version=1)
@dataclass(frozen=True)
class LongestKernel:
    """longest_kernel.json: how long the longest kernel took, ns."""

    dur_ns: int


@finding(reads=(KERNELS,), after=("trace",), report="longest_kernel")
def longest_kernel(session: Session, settings: Analysis) -> Results:
    """How long the longest kernel took."""
    longest = max(max(batch.column(0).to_pylist()) for batch in queries.batches(session, KERNELS, ["dur_ns"]))
    yield "longest_kernel", documents.encode(LongestKernel(longest))
'''
VIEW = '''
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row


@finding_view("longest_kernel", "the longest kernel", title="Longest kernel")
def rows(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield how long it took."""
    yield Row("Took", format.exact_ns(document["dur_ns"]))
'''
FORMAT = '''
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from aaco.core.tables import KERNELS
from aaco.profiler.capture import CaptureFacts, Subtotal

FORMAT = "tally"


def recognises(path: Path) -> bool:
    """Whether the file begins with the word tally."""
    with path.open("rb") as file:
        return file.read(6) == b"tally\\n"


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """A kernel of as many ns as each line says."""
    durations = [int(line) for line in path.read_text().splitlines()[1:]]
    yield KERNELS.build(kernel_id=list(range(len(durations))), kernel_name=["tallied"] * len(durations),
                        device_id=[0] * len(durations), dur_ns=durations, t_start_ns=[0] * len(durations),
                        t_end_ns=durations)
    yield CaptureFacts(FORMAT, records={"kernel": len(durations)}, kernels=Subtotal(len(durations), sum(durations)))
'''
COMMAND = '''
"""`aaco shout`."""

import click


@click.command()
@click.argument("word")
def shout(word: str) -> None:
    """Print WORD in capitals."""
    click.echo(word.upper())
'''


# The bars of the house: as many files may be touched to add one. Each is added below as its recipe says, and works.
MOST_FILES = {"finding": 3, "metric": 1, "format": 1, "command": 2}


class Copy:
    """A copy of the package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc.*"))  # what is compiled, too

    def add(self, texts: dict[str, str]) -> int:
        """Write files of the package, and return how many of its files are other than before."""
        before = self.content()
        for name, text in texts.items():
            (self.folder / "src/aaco" / name).write_text(text.lstrip())
        return len(set(self.content().items()) - set(before.items()))

    def content(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("src/aaco/**/*.py")}

    def replaced(self, name: str, old: str, new: str) -> str:
        text = (self.folder / "src/aaco" / name).read_text()
        assert text.count(old) == 1
        return text.replace(old, new)

    def aaco(self, *words: str | Path) -> str:
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "COLUMNS": "100"}
        done = subprocess.run([sys.executable, "-m", "aaco", *map(str, words)], cwd=self.folder, env=environment,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_metric_a_finding_and_a_format_are_one_file_each_and_a_view(copy: Copy) -> None:
    """What each leaves is in the bundle, in `aaco explain` and in every report."""
    capture = copy.folder / "made.tally"
    capture.write_text("tally\n300\n500\n")
    assert copy.add({"profiler/formats/tally.py": FORMAT}) <= MOST_FILES["format"]
    assert copy.add({"analytics/metrics/limiters.py": METRIC}) <= MOST_FILES["metric"]
    assert copy.add({"steps/findings/longest_kernel.py": FINDING,
                     "report/sections/findings/longest_kernel.py": VIEW}) <= MOST_FILES["finding"]
    copy.aaco("import", capture, "--quiet")
    report = json.loads(copy.aaco("report", "--json"))
    assert report["readings"]["limiter_count"]["value"] == 1
    assert "limits took time" in copy.aaco("explain", "limiter_count")
    assert json.loads((copy.folder / "sessions/latest/metrics/longest_kernel.json").read_text())["dur_ns"] == 500
    for form in ("terminal", "markdown", "html"):
        assert "500 ns" in copy.aaco("report", "--format", form, "--output", "-")


def test_a_command_is_a_file_and_a_line(copy: Copy) -> None:
    verbs = copy.replaced("cli/__init__.py", 'VERBS = {\n    "Record": {\n',
                          'VERBS = {\n    "Record": {\n        "shout": ("aaco.cli.shout:shout", "Print a word."),\n')
    assert copy.add({"cli/shout.py": COMMAND, "cli/__init__.py": verbs}) <= MOST_FILES["command"]
    assert copy.aaco("shout", "tea") == "TEA\n"
