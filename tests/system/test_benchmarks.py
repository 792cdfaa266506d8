"""Benchmarks end as they say: a small part runs, its JSON reads back, and the exit code is that of its claims."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import third_party

ROOT = Path(__file__).parents[2]
# What records on a GPU, or serves another dashboard, imports a framework that is no part of the environment.
FRAMEWORKS = ("import torch", "import triton", "import streamlit")
NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py")
               if not any(f"\n{line}" in path.read_text() for line in FRAMEWORKS))


def ran(*arguments: object) -> subprocess.CompletedProcess[str]:
    captures = {"AACO_CAPTURES": str(third_party.captures())}
    return subprocess.run([sys.executable, "-m", *map(str, arguments)], cwd=ROOT, env=os.environ | captures, text=True,
                          capture_output=True, timeout=300)


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_started(name: str):
    assert importlib.import_module(f"benchmarks.{name}").__doc__


@pytest.mark.parametrize(("package", "part"), [("governance", "forecast"), ("diagnosis", "waves")])
def test_a_part_of_claims(tmp_path: Path, package: str, part: str):
    """Mutation: a verdict of numpy is kept as it is, which no JSON can hold and no count finds."""
    done = ran(f"benchmarks.{package}", "--only", part, "--json", tmp_path / "claims.json")
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    claims = json.loads((tmp_path / "claims.json").read_text())["parts"][part]
    assert claims and done.returncode == int(any(claim["met"] is False for claim in claims)) == 0


def test_switches(tmp_path: Path):
    done = ran("benchmarks.switches", "--rounds", 1, "--json", tmp_path / "switches.json")
    assert done.returncode == 0 and json.loads((tmp_path / "switches.json").read_text()), done.stderr[-2000:]


@pytest.mark.parametrize(("words", "suffix"), [
    (("csv_generator",), "_kernel_trace.csv"), (("trace_generators", "kineto"), ".json"),
    (("rocpd_generator",), ".db")])
def test_what_the_generators_write_is_imported(tmp_path: Path, words: tuple[str, ...], suffix: str):
    """As many kernels as asked for."""
    out = tmp_path / f"made{suffix}"
    assert ran(f"benchmarks.{words[0]}", *words[1:], out, "--kernels", 200).returncode == 0
    done = ran("aaco", "import", out, "--sessions-dir", tmp_path / "sessions", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    captures = json.loads((tmp_path / "sessions" / "latest" / "profiler" / "captures.json").read_text())["captures"]
    assert captures[0]["kernels"]["count"] >= 200


def test_the_report_benchmark_says_what_it_needs():
    """Mutation: the import error of what is missing."""
    without_tests = "import sys; sys.modules['pytest'] = None; import benchmarks.report"
    done = subprocess.run([sys.executable, "-c", without_tests], cwd=ROOT, text=True, capture_output=True, timeout=60)
    assert done.returncode == 1 and "needs the environment of the tests" in done.stderr
    assert "Traceback" not in done.stderr
