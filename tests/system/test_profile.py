"""`aaco profile -- CMD`: any command becomes a session like any other."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from aaco.tracelake.manifest import EXPECTED

SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory, cache):
    from tests.system.conftest import Aaco

    made = Aaco(tmp_path_factory.mktemp("profiled"), cache)
    made.inside("profile", "--runs", 6, "--telemetry", "--tag", "mine", "--", sys.executable, "-c",
         "import time, sys; time.sleep(0.12); print('said'); print('<b>|`', file=sys.stderr)")
    return made


def document(aaco, name):
    return json.loads((aaco.latest / name).read_text())


def test_each_run_is_a_process_with_one_iteration(profiled):
    files = sorted((profiled.latest / "runtime").glob("iterations-*.i64"))
    rows = np.concatenate([np.fromfile(path, "<i8").reshape(-1, 4) for path in files])
    assert len(files) == len(rows) == 7
    assert rows[:, 0].tolist() == [0] * 7 and rows[:, 1].tolist() == [0] + [1] * 6
    assert (rows[1:, 2] >= rows[:-1, 3]).all()
    latencies = (rows[1:, 3] - rows[1:, 2]) / 1e6
    assert (latencies > 120).all()
    summary = document(profiled, "metrics/inference_summary.json")["measurement"]
    assert summary["p50_ms"]["value"] == pytest.approx(np.median(latencies))
    runs = document(profiled, "runtime/command.json")["runs"]
    assert [run["end_ns"] - run["start_ns"] for run in runs] == (rows[:, 3] - rows[:, 2]).tolist()
    sampled = [run for run in runs if run["telemetry"]["tiers"]["T1"]["samples"]]
    assert len(sampled) >= len(runs) - 1  # on a busy machine the sampler may be late for one so short
    assert all(run["user_ns"] + run["system_ns"] for run in runs)  # the kernel parts so little by where its ticks fell


def test_every_expected_file_is_there_or_explained(profiled):
    absent = document(profiled, "manifest.json")["absent"]
    for name in EXPECTED:
        assert (profiled.latest / name).exists() != (name in absent), name
    assert absent["model/graph_nodes.parquet"] == absent["runtime/ort_config.json"] == "a command was run, not a model"
    assert "not explained" not in absent.values()
    assert (profiled.latest / "runtime/command-006.out").read_text() == "said\n"


def test_the_report_in_every_form(profiled):
    terminal = profiled.inside("report").stdout
    assert "Command: python" in terminal and "time.sleep(0.12)" in terminal and "a command was run" in terminal
    assert max(map(len, terminal.splitlines())) <= 80
    found = json.loads(profiled.inside("report", "--format", "json").stdout)
    assert found["backend"] == "host" and found["readings"]["latency_cov_pct"]["value"] > 0
    assert found["readings"]["scheduler_interference"]["value"] is not None
    assert {"runtime/command.json", "metrics/inference_iters.parquet"} <= {file["name"] for file in found["files"]}
    assert "a command was run, not a model" in profiled.inside("report", "--format", "markdown").stdout
    assert "a command was run, not a model" in profiled.inside("report", "--format", "html").stdout
    assert "mine" in profiled.inside("ls").stdout


def test_analyze_gives_the_same_answers(profiled):
    before = document(profiled, "metrics/derived_metrics.json")
    profiled.inside("analyze")
    assert document(profiled, "metrics/derived_metrics.json") == before


def test_a_command_twice_as_slow_is_a_regression(aaco):
    """It sleeps, which neighbours hardly slow: on a busy machine, too, thrice as long is thrice as long."""
    script = aaco.folder / "work.sh"
    script.write_text("sleep 0.2\n")
    words = ("profile", "--runs", 6, "--quiet", "--", "sh", script)
    aaco.inside(*words)
    aaco.inside("baseline", "save", "before")
    script.write_text("sleep 0.6\n")
    aaco.inside(*words)
    aaco.inside("diff", "before", expect=3)
    verdict = document(aaco, "regress/verdict.json")
    assert verdict["status"] == "regressed" and verdict["n_sessions"] == {"baseline": 6, "current": 6}
    aaco.inside("profile", "--runs", 2, "--", "sh", script, "other")
    assert "config_hash" in aaco.inside("diff", "before", expect=2).stderr


def test_hostile_words(aaco):
    words = ["$(touch pwned)", "`touch pwned`", "; touch pwned", "<script>alert(1)</script>", "\x1b[31m", "\n# h", "|",
             "", "x " * 2500, os.fsdecode(b"\xff\xfe")]
    aaco.inside("profile", "--runs", 2, "--warmup", 0, "--", "echo", *words)
    assert not list(aaco.folder.rglob("pwned"))
    kept = (aaco.latest / "runtime/command-000.out").read_bytes()
    assert kept == b" ".join(map(os.fsencode, words)) + b"\n"
    assert "\x1b" not in aaco.inside("report").stdout
    assert "<script>alert" not in aaco.inside("report", "--format", "html").stdout


def test_the_commands_own_options_are_its_own(aaco):
    aaco.inside("profile", "-n", 1, "--warmup", 0, "--", "echo", "--json", "-n", "--", "--help")
    assert (aaco.latest / "runtime/command-000.out").read_text() == "--json -n -- --help\n"


def test_a_secret_in_the_command_is_not_in_the_bundle(aaco):
    text = "import sys; print(sys.argv); print('cannot log in with', sys.argv[2], file=sys.stderr); sys.exit(1)"
    words = ("profile", "--runs", 2, "--", sys.executable, "-c", text, "--password", SECRET, f"--api-key={SECRET}")
    assert SECRET not in aaco.inside(*words, expect=1).stderr
    failed = aaco.latest
    aaco.inside(*words[:3], "--ignore-failure", *words[3:])
    for folder in (failed, aaco.latest):
        for path in folder.rglob("*"):
            assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    assert "3 of 3 runs failed" in aaco.inside("report").stdout


def test_secrets_of_unusual_form_are_not_in_the_bundle(aaco):
    """Mutations: hiding whole words only (the output says the parts); looking for no shape in the output."""
    said = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
    text = f"import sys; print(sys.argv[2:]); print(*sys.argv[2:], sep='\\n', file=sys.stderr); print('> {said}')"
    words = (f'{{"api_key": "{SECRET}"}}', "-u", f"me:{SECRET}", f"-ume:{SECRET}", "-H",
             f"Authorization: Bearer {SECRET}", f"--token={SECRET}",
             f"AWS_SECRET_ACCESS_KEY={SECRET}", f"https://me:{SECRET}@host/x",
             "mysql", f"-p{SECRET}", f"sh -c 'mysqldump -uroot -p{SECRET}'")
    aaco.inside("profile", "--runs", 1, "--warmup", 0, "--", sys.executable, "-c", text, *words)
    for path in aaco.latest.rglob("*"):
        assert path.is_dir() or not any(word in path.read_bytes() for word in (SECRET.encode(), b"eyJhb")), path
    kept = document(aaco, "runtime/command.json")["argv"]
    assert "mysql" in kept and kept[-1] == "sh -c 'mysqldump -uroot -p<withheld>'"


@pytest.mark.parametrize(("script", "words"), [
    ("echo one >&2; echo two >&2; exit 7", ("exit code 7", "two")), ("kill -SEGV $$", ("SIGSEGV",))])
def test_a_failing_run_fails_the_session(aaco, script, words):
    said = aaco.inside("profile", "--", "sh", "-c", script, expect=1).stderr
    assert all(word in said for word in (*words, "run 1 of 11", "--ignore-failure"))
    session = document(aaco, "session.json")
    assert session["status"] == "failed" and words[0] in session["failure"]
    assert "INCOMPLETE RUN" in aaco.inside("report").stdout


def test_timeout_missing_and_usage(aaco):
    assert "0.2 s" in aaco.inside("profile", "--timeout", 0.2, "--", "sleep", 60, expect=1).stderr
    assert document(aaco, "session.json")["status"] == "failed"
    before = aaco.latest
    assert "frobnicate-7" in aaco.inside("profile", "--", "frobnicate-7", expect=6).stderr
    aaco.inside("profile", expect=2)
    aaco.inside("profile", "--runs", 0, "--", "true", expect=2)
    aaco.inside("profile", "--timeout", 0, "--", "true", expect=2)
    assert aaco.latest == before


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_of_the_command_outlives_aaco(aaco, how):
    script = "echo $$ >> pids; sleep 200 & echo $! >> pids; wait"
    words = aaco.command("profile", "--", "sh", "-c", script)
    running = subprocess.Popen(words, cwd=aaco.folder, env=aaco.environment(), stderr=subprocess.DEVNULL)
    pids = aaco.folder / "pids"
    while not pids.is_file() or len(pids.read_text().split()) < 2:
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(how)
    running.wait(60)
    left = [Path("/proc", pid) for pid in pids.read_text().split()]
    end = time.monotonic() + 60
    while any(map(_alive, left)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(_alive, left))
    assert "incomplete" in aaco.inside("ls").stdout


def _alive(process):
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
