"""Names, numbers and folders that nobody sane would give: one clear error each, in the documented form."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import click
import pytest

from aaco import cli
from tests import csvs, models
from tests.unit.test_rocprofv3_csv import KERNEL, kernel

LONG = "n" * 300


@pytest.fixture
def copied(recorded, aaco):
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    return aaco


def says(done, *words):
    assert done.stderr.count("\n  try: ") == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("command", [
    ("run", LONG), ("run", f"{LONG}.onnx"), ("run", "--model", f"{'d/' * 2500}m.onnx"),
    ("run", "gpt2-tiny", "--inputs", LONG), ("run", "gpt2-tiny", "--backend", LONG), ("report", LONG), ("info", LONG),
    ("run", "gpt2-tiny", "--config", LONG),
    ("run", "gpt2-tiny", "--sessions-dir", LONG), ("run", "gpt2-tiny", "--shape", LONG), ("analyze", LONG),
    ("diff", LONG), ("diff", "latest", LONG), ("baseline", "save", LONG), ("baseline", "save", "a", LONG),
    ("baseline", "show", LONG), ("env", "diff", LONG, LONG), ("profile", "--", LONG), ("report", "-o", f"{LONG}/x"),
    ("report", "-o", LONG), ("kernels", LONG), ("check", LONG), ("import", LONG), ("explain", LONG),
    ("sql", "select 1", "--session", LONG), ("report", "--sessions-dir", LONG), ("report", "--config", LONG),
    ("sweep", LONG),
    ("run", "gpt2-tiny", "--cache-dir", LONG), ("diff", "a", "--baselines-dir", LONG), ("report", "a\udcffb"),
    ("baseline", "save", "--baselines-dir", LONG, "a"), ("perfetto", "-o", LONG), ("report", "\x1b\n")])
def test_names_too_long_for_any_file_are_refused_like_others(copied, command):
    """Mutation: asking the system whether such a file exists, which is an error of its own."""
    done = copied.inside(*command, expect=(1, 2, 5, 6))
    if "Usage:" not in done.stderr:  # click's own answer to an option that is not there
        says(done)


def test_bytes_that_are_no_text_damage_no_session(aaco, tmp_path):
    """Mutations: documents written with halves of surrogate pairs, which none of our readers takes; tables sealed by
    a path that Arrow cannot open."""
    odd = os.fsdecode(b"\xff")
    aaco("run", "gpt2-tiny", "--iterations", 3, "--tag", odd, "--no-profile")
    assert "\\udcff" in aaco("ls").stdout and aaco("report").stdout
    assert aaco("analyze", "latest").stdout
    path = csvs.write(tmp_path / f"{odd}_kernel_trace.csv", [KERNEL, kernel(1, 100, 150)])
    says(aaco("import", path, expect=2), "not UTF-8")
    says(aaco.inside("import", tmp_path, expect=2), "not UTF-8")
    shutil.copy(models.chain(tmp_path / "chain.onnx"), tmp_path / f"{odd}.onnx")
    says(aaco.inside("run", tmp_path / f"{odd}.onnx", expect=5), "not UTF-8")
    says(aaco.inside("sql", f"select '{odd}'", expect=2), "not UTF-8")
    assert len(json.loads(aaco.inside("ls", "--json").stdout)["sessions"]) == 1
    there = ("--sessions-dir", tmp_path / odd)
    aaco.inside("run", "gpt2-tiny", "--iterations", 3, *there)
    for command in (("report",), ("analyze", "latest"), ("sql", "select count(*) from kernels"), ("info", "latest"),
                    ("bundle", "export", "latest", "-o", tmp_path / odd / "x.tar.zst")):
        aaco.inside(*command, *there)
    aaco.inside("bundle", "verify", tmp_path / odd / "x.tar.zst")


def test_a_long_tag_is_a_tag(aaco):
    aaco.inside("run", "gpt2-tiny", "--iterations", 3, "--tag", LONG, "--no-profile")
    assert json.loads(aaco.inside("ls", "--json", "--tag", LONG).stdout)["sessions"]
    for command in (("ls",), ("report", "--format", "html"), ("report",), ("info", "latest"), ("report", LONG)):
        aaco.inside(*command)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", "1e300", "-1", "0", "x"])
def test_numbers_that_are_none_are_refused(aaco, value):
    """Mutation: `gt=0` alone, which infinity passes, and NaN where the comparison is turned round."""
    for command in (("run", "gpt2-tiny", "--budget"), ("run", "gpt2-tiny", "--precision"), ("diff", "a", "--threshold"),
                    ("sweep", "gpt2-tiny", "--slo"), ("sweep", "gpt2-tiny", "--budget"), ("profile", "--timeout")):
        if value != "1e300" or "--budget" in command or "--timeout" in command:  # else odd, and a number all the same
            assert aaco.inside(*command, value, *(("true",) if command[0] == "profile" else ()), expect=2).stderr
    spelled = value.replace("inf", ".inf").replace("nan", ".nan").replace("1e", "1.0e+")
    for section, key in (("profiling", "budget_s"), ("profiling", "precision_pct"), ("profiling", "iterations"),
                         ("analysis", "microkernel_us"), ("analysis", "tolerance_pct"), ("storage", "max_age_days")):
        if value == "1e300" and key in ("precision_pct", "microkernel_us", "tolerance_pct"):
            continue
        (aaco.folder / "aaco.yaml").write_text(f"{section}: {{{key}: {spelled}}}")
        says(aaco.inside("config", "show", expect=2), "aaco.yaml", key)


@pytest.mark.parametrize("option", ["--iterations", "--warmup", "--processes", "--batch", "--seed"])
def test_counts_beyond_all_bounds_are_refused(aaco, option):
    assert option in aaco.inside("run", "gpt2-tiny", option, 10**30, expect=2).stderr
    for command in (("ls", "--limit"), ("profile", "--runs"), ("sweep", "gpt2-tiny", "--batches"), ("kernels", "--top"),
                    ("sweep", "gpt2-tiny", "--order-seed"), ("sql", "select 1", "--limit")):
        aaco.inside(*command, 10**30, *(("true",) if command[0] == "profile" else ()), expect=2)


@pytest.mark.parametrize(("raised", "words"), [
    (MemoryError(), "out of memory"), (OSError(5, "Input/output error"), "Input/output error"),
    (PermissionError(13, "Permission denied", "/a\x1bb"), "/a\\x1bb: Permission denied")])
def test_what_nobody_foresaw_of_the_system_is_said_in_a_line(capsys, raised, words):
    @click.command()
    def command():
        raise raised

    assert cli.outcome(command, "aaco", []) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"aaco: {words}\n  try: ") and said.count("\n") == 2


def test_a_sessions_folder_that_is_a_file(aaco):
    (aaco.folder / "sessions").write_text("")
    assert aaco.inside("ls").stderr.startswith("no session under")
    says(aaco.inside("report", expect=2), "no session")
    says(aaco.inside("info", "x", expect=2))
    says(aaco.inside("run", "gpt2-tiny", expect=1), "sessions")
    aaco.inside("gc")
    aaco.inside("baseline", "list", "--baselines-dir", "sessions")
    says(aaco.inside("baseline", "show", "x", "--baselines-dir", "sessions", expect=2))


def test_a_sessions_folder_with_strange_entries(copied):
    """Unreadable: one's own memory from its beginning, which the system refuses to root as well."""
    root = copied.folder / "sessions"
    day = next(root.glob("2*"))
    (root / "2020-01-01").write_text("")
    (root / "2020-01-02").symlink_to("2020-01-02")
    (root / "2020-01-03").symlink_to("/nowhere")
    for name, make in {"folder": lambda path: path.mkdir(), "loop": lambda path: path.symlink_to(path),
                       "memory": lambda path: path.symlink_to("/proc/self/mem"), "pipe": os.mkfifo,
                       "bytes": lambda path: path.write_bytes(b"\xff\xfe"), "none": lambda path: None}.items():
        (day / f"20200101_{name}").mkdir()
        make(day / f"20200101_{name}" / "session.json")
    strange = Path(os.fsdecode(os.fsencode(day) + b"/20200101_\xff\n\x1b"))
    strange.mkdir()
    shutil.copy(copied.latest / "session.json", strange / "session.json")
    for command in (("ls",), ("ls", "--json"), ("gc", "--dry-run"), ("report",), ("report", strange)):
        copied.inside(*command)
    for name in ("folder", "loop", "pipe", "bytes", "none"):
        copied.inside("report", f"20200101_{name}", expect=2)
    says(copied.inside("info", "20200101_memory", expect=1), "Input/output error")
    assert copied.inside("ls").stdout.count("unreadable") == 4


@pytest.mark.parametrize("name", ["env.json", "manifest.json", "runtime/ort_config.json", "model/model_meta.json",
                                  "metrics/inference_iters.parquet", "profiler/rocprof_kernels.parquet"])
def test_what_cannot_be_read_is_named(copied, name):
    (copied.latest / name).unlink()
    (copied.latest / name).symlink_to("/proc/self/mem")
    says(copied.inside("report", expect=(1, 2)), name)
    copied.inside("info", "latest", expect=1 if name == "manifest.json" else 0)


def test_a_lost_model_does_not_stop_the_analysis(copied):
    """Mutation: taking the graph's tables for granted where kernels were recorded."""
    (copied.latest / "model/source.onnx").unlink()
    says(copied.inside("analyze", expect=2), "source.onnx", "missing")
    (copied.latest / "manifest.json").unlink()  # as a run that was killed leaves it
    assert "model/source.onnx is not there" in " ".join(copied.inside("analyze", "--full").stdout.split())
    assert json.loads(copied.inside("info", "latest", "--json").stdout)["damaged"] == {}
