"""The Python page: its blocks run in order in one process, as a reader would; and every public name is on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import aaco as package
from aaco import Analysis, Comparison, Observatory

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/python.md").read_text()


def test_the_blocks(walked):
    """Mutation: a has_regression that is False where nothing can be told."""
    page = walked("docs/guides/python.md")
    said = "".join(page.printed)
    lines = said.splitlines()
    assert "bottleneck: " in lines[0] and lines[1] == "first.html"
    assert (page.aaco.folder / "first.html").stat().st_size > 10_000
    assert lines[2].startswith("throughput_per_s ") and "ran on the host CPU" in lines[3]
    assert lines[4].startswith("20 latencies") and "kernel_name" in lines[5]
    assert lines[6] == "inconclusive None" and lines[7].startswith("INCONCLUSIVE: ")
    assert "Measure 5 processes a side" in said
    assert lines[-3:-1] == ["elsewhere", "2.0"] and lines[-1].endswith("| 5")


def test_every_public_name_is_on_the_page():
    """Mutation: a public method that the page does not name."""
    known = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", GUIDE))))
    members = {name for kind in (Observatory, Analysis, Comparison) for name in vars(kind) if not name.startswith("_")}
    fields = {name for kind in (Analysis, Comparison) for name in kind.__dataclass_fields__}
    assert (members | fields | set(package.__all__)) - {"__version__"} <= known


ACCEPTED = '''
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import aaco
from aaco import AacoError, Analysis, Comparison, Config, Observatory, Plan, Session

observatory: Observatory = Observatory(Config.from_dict({"analysis": {"tolerance_pct": 2}}))
session: Session = observatory.profile("bert-tiny", iterations=20)
analysis: Analysis = observatory.analyze(session)
median: float | None = analysis.metrics["latency_p50_ms"].value
label: str = analysis.bottleneck.label
mean: float = float(np.mean(session.latency))
where: Path = observatory.report(session, format="markdown")
comparison: Comparison = observatory.compare("main", session, tolerance_pct=5)
worse: bool | None = comparison.has_regression
facts: Mapping[str, object] = comparison.document()
evidence: aaco.Session = Session.open(aaco.observe(Plan(model="bert-tiny")).folder)
try:
    observatory.open("nowhere")
except AacoError as error:
    code: int = error.exit_code
    fix: str = error.fix
'''
REFUSED = {
    "observatory.profile(3)": "arg-type", 'observatory.report(session, format="docx")': "arg-type",
    "analysis.metrics.nothing": "attr-defined", 'comparison.has_regression + "x"': "operator",
    "aaco.nothing": "attr-defined", "total: float = analysis.heu": "assignment"}


def test_a_users_program_is_checked_against_our_types(tmp_path):
    """mypy --strict, as a user of the package runs it. Mutations: a public name typed Any; py.typed taken away."""
    program = tmp_path / "program.py"
    wrong = "\n".join(REFUSED)
    program.write_text(f"{ACCEPTED}{wrong}\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", program], cwd=ROOT,
                          text=True, capture_output=True)
    first = len(ACCEPTED.splitlines()) + 1
    found = {int(line): kind for line, kind in re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout,
                                                         re.MULTILINE)}
    assert found == dict(enumerate(REFUSED.values(), first)), done.stdout


def test_to_import_it_is_light():
    """Nothing but the standard library. Mutation: a name of aaco/__init__.py imported at once."""
    code = "import sys; before = set(sys.modules); import aaco; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], check=True, text=True, capture_output=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()} - {"aaco"}
    assert loaded <= sys.stdlib_module_names
    assert {name for name in done.stdout.split() if name.startswith("aaco.")} == set()
