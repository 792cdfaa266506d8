"""The terminal as a person meets it: the examples of every verb, widths, the spellings of the mission."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest

from aaco.cli.examples import EXAMPLES
from tests.fakes import kernel_captures

# Examples that are only parsed (tests/contract/test_commands.py), and why.
ONLY_PARSED = {
    "measure or change this machine": {
        "run", "sweep", "compare", "try", "profile", "trace", "calibrate", "ci", "lab run", "lab enter", "lab exit",
        "capsule", "uncapsule", "lab restore"},
    "need a file or a capture that a reader has": {
        "import", "lab diff", "ir", "isa", "history import", "instructions", "critical-path", "roofline", "ops",
        "steps", "optimize"},
    "need a second session, a server or a terminal": {
        "serve", "dashboard", "top", "llm", "analyze", "export otlp", "env diff", "root-cause", "baseline expire",
        "history accept",
        "history branch", "history sessions", "sla check"},
    "need a machine card": {"what-if"},
    "need an NVIDIA GPU": {"replay capture", "replay run"},
    "need bundles, which docs/guides/fleet.md has": {
        name for name in EXAMPLES if name.startswith(("fleet", "warehouse"))},
}


@pytest.fixture
def own(recorded, aaco):
    """The recorded session, where it may be changed."""
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    return aaco


def test_examples_run_as_they_stand(own):
    """In the order of the table, in a folder with one session and the baseline `main`; files they write are there."""
    own.inside("baseline", "save", "main")
    own.inside("history", "add")
    kernel_captures.write(own.folder / "kernel.aacocap")
    left_out = set().union(*ONLY_PARSED.values())
    assert left_out < set(EXAMPLES)
    for name in EXAMPLES.keys() - left_out:
        if not name.startswith(("baseline", "bundle", "drift")):
            runs(own, name)
    for name in ("drift", "baseline list", "baseline show", "baseline export", "baseline import", "baseline promote",
                 "bundle export", "bundle verify"):
        runs(own, name)
    shutil.rmtree(own.folder / "sessions")
    runs(own, "bundle import")
    assert {"main.json", "session.tar.zst", "report.html", "trace.pftrace", "aaco.prom"} <= {
        path.name for path in own.folder.iterdir()}


def runs(aaco, name: str) -> None:
    for example in EXAMPLES[name]:
        # 4 of diff: a single session against itself is too little to tell
        done = aaco.inside(*shlex.split(example.line.partition(" > ")[0])[1:], expect=(0, 3, 4))
        assert done.stdout or done.stderr, example.line


@pytest.mark.parametrize("words", [
    "summary", "chi", "report", "ls", "info latest", "check", "explain KAR", "explain latency_p50_ms", "doctor",
    "config show", "models", "features --json --quiet", "gc --dry-run", "kernels",
    "kernels --by family", "baseline list"])
def test_lines_fit_80_columns(words, recorded, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = recorded.inside(*words.split()).stdout
    limit = 80 if not words.startswith(UNCUT) else 10_000
    wide = [line for line in out.splitlines() if len(line) > limit]
    assert not wide, wide[:3]
    assert "\x1b" not in out


# Values that are to be copied are whole: paths, documents, reasons.
UNCUT = ("info", "features", "config", "doctor")


SPELLINGS = (
    "report --session sessions/latest", "report sessions/latest --format markdown",
    "diff --baseline baselines/prod.json --session sessions/latest --threshold 5%", "diff prod latest --threshold 5",
    "regression --baseline prod", "summary", "chi", "perfetto", "features", "ls", "info", "doctor", "--version", "-v",
    "run --model gpt2-tiny --backend cpu --batch 1 --iterations 5 --no-profile")


def test_the_missions_spellings(own):
    own.inside("baseline", "save", "prod")
    own.inside("baseline", "export", "prod", "-o", own.folder / "baselines" / "prod.json")
    for words in SPELLINGS:
        done = own.inside(*words.split(), expect=(0, 4))
        assert done.stdout or words == "perfetto", words


def test_every_verb_of_the_mission_is_there(aaco):
    page = aaco.inside("--help").stdout
    listed = {*re.findall(r"^  ([a-z-]+) ", page, re.MULTILINE), *re.findall(r"([a-z]+) = ", page)}
    assert {"run", "profile", "analyze", "report", "diff", "compare", "sweep", "dashboard", "ls", "info", "doctor",
            "summary", "chi", "regression", "perfetto", "features", "calibrate", "root-cause", "capsule",
            "uncapsule"} <= listed


def test_json_and_quiet_say_the_result_alone(own):
    """Every verb that reads a session prints one document, and nothing beside it."""
    own.inside("baseline", "save", "main")
    for words in ("summary", "chi", "report", "info latest", "check", "explain KAR", "features", "kernels", "sla check",
                  "diff main", "perfetto", "baseline show main", "history add", "history list", "baseline list",
                  "analyze", "export prometheus", "bundle export", "sql 'SELECT 1'", "ls", "gc"):
        # a busy machine may miss the limits of the default policy
        done = own.inside(*shlex.split(words), "--json", "--quiet", expect=(0, 3, 4) if "sla" in words else (0, 4))
        assert not done.stderr, words
        assert json.loads(done.stdout), words
