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

from aaco.report.finding_view import finding_view
from aaco.report.rows import Row


@finding_view("longest_kernel", "the longest kernel")
def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """Yield one section."""
    yield "Longest kernel", [Row("Took", f"{document['dur_ns']:,} ns")]
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


class Copy:
    """A copy of the package that counts the files of it that are written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, set[str]()
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc.*"))  # what is compiled, too

    def write(self, name: str, text: str) -> None:
        (self.folder / "src/aaco" / name).parent.mkdir(exist_ok=True)
        (self.folder / "src/aaco" / name).write_text(text.lstrip())
        self.written.add(name)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / "src/aaco" / name).read_text()
        assert text.count(old) == 1
        self.write(name, text.replace(old, new))

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
    copy.write("profiler/formats/tally.py", FORMAT)
    copy.write("analytics/metrics/limiters.py", METRIC)
    copy.write("steps/findings/longest_kernel.py", FINDING)
    copy.write("report/sections/findings/longest_kernel.py", VIEW)
    assert len(copy.written) == 4
    copy.aaco("import", capture, "--quiet")
    report = json.loads(copy.aaco("report", "--json"))
    assert report["readings"]["limiter_count"]["value"] == 1
    assert "limits took time" in copy.aaco("explain", "limiter_count")
    assert json.loads((copy.folder / "sessions/latest/metrics/longest_kernel.json").read_text())["dur_ns"] == 500
    for form in ("terminal", "markdown", "html"):
        assert "500 ns" in copy.aaco("report", "--format", form, "--output", "-")


def test_a_command_is_a_file_and_a_line(copy: Copy) -> None:
    copy.write("cli/shout.py", COMMAND)
    copy.edit("cli/__init__.py", 'VERBS = {\n    "Record": {\n',
              'VERBS = {\n    "Record": {\n        "shout": ("aaco.cli.shout:shout", "Print a word."),\n')
    assert len(copy.written) == 2
    assert copy.aaco("shout", "tea") == "TEA\n"
