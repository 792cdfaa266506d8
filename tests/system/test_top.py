"""`aaco top`: driven by textual's pilot, and once at a real terminal while a run goes on."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from textual.widgets import DataTable, Input, Sparkline, Static

from aaco import pipeline
from aaco.cli.screen import Top
from aaco.core import config
from aaco.core.session import Session
from aaco.report.sections import kernels, watch
from tests import third_party

CAPTURE = Path(__file__).parent.parent / "captures" / "torch_h200" / "resnet50_nchw.json.gz"


def drive(app: Top, steps, size=(100, 40)) -> None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            for _ in range(600):
                if app.view is not None and app.view.ended:
                    break
                await pilot.pause(0.05)
            await pilot.pause()
            await steps(pilot)

    asyncio.run(run())


def said(app: Top, where: str) -> str:
    return str(app.query_one(where, Static).render())


def column(app: Top, number: int) -> list[str]:
    table = app.query_one(DataTable)
    return [str(table.get_row_at(row)[number]) for row in range(table.row_count)]


def test_a_session_is_shown_searched_sorted_and_left(recorded):
    """Mutation: watch.chosen does not look at the family."""
    session, settings = Session.open(recorded.latest), config.resolve()
    found = pipeline.explain(session, settings)
    groups = kernels.groups(found)
    app = Top(session, settings)

    async def steps(pilot) -> None:
        assert session.id in said(app, "#title") and "complete" in said(app, "#title")
        assert "120 inferences" in said(app, "#range") and len(app.query_one(Sparkline).data) == 120
        assert column(app, 5) == [row["kernel_name"] for row in groups]
        await pilot.press("slash", *"GEMM")
        await pilot.pause()
        expected = [row["kernel_name"] for row in groups if "gemm" in f"{row['kernel_name']} {row['family']}".lower()]
        assert 0 < len(expected) < len(groups) and column(app, 5) == expected
        assert f"{len(expected)} kernels of {len(groups)}" in said(app, "#note")
        await pilot.press("enter", "s")
        assert "by mean" in said(app, "#note") and app.query_one(Input).value == "GEMM"
        await pilot.press("escape", "s")
        calls = [int(text.replace(",", "")) for text in column(app, 2)]
        assert "by calls" in said(app, "#note") and calls == sorted(calls, reverse=True) and len(calls) == len(groups)
        await pilot.press("s")
        assert column(app, 5) == sorted(row["kernel_name"] for row in groups)
        await pilot.press("q")
        assert not app.is_running

    drive(app, steps)


def test_the_upper_half_of_an_import_says_what_limits_it(aaco):
    """Mutation: only latencies are drawn; the facts begin with the names of files."""
    aaco.inside("import", CAPTURE)
    session = Session.open(aaco.latest)
    app = Top(session, config.resolve())
    explained = pipeline.explain(session, config.resolve())

    async def steps(pilot) -> None:
        assert [label for label, _ in app.view.facts[:2]] == ["Classification", "Wall time"]
        busiest = max(explained.trace.devices, key=lambda device: device.busy_ns)
        assert re.fullmatch(r"device 0: at work ([\d.]+) % of 37.1 ms", said(app, "#range"))
        assert f"{100 * busiest.busy_ns / busiest.span_ns:.1f} %" in said(app, "#range")
        line = app.query_one(Sparkline)
        assert len(line.data) == len(busiest.course.compute_ns) and 0 < max(line.data) <= 1.001
        assert said(app, "#steps").startswith("1. Launch once for many kernels")
        assert app.query_one("#steps").region.bottom > app.query_one("#range").region.y + 4

    drive(app, steps)


def test_a_row_says_what_of_its_time_is_waiting_for_a_rank_that_had_not_started(aaco):
    """Mutation: the note of a row is not drawn."""
    aaco.inside("import", third_party.cases() / "start_skew" / "trace.json.gz", "--quiet")
    app = Top(Session.open(aaco.latest), config.resolve())

    async def steps(pilot) -> None:
        first, *others = column(app, 5)
        assert first.endswith("(17.5 s of it waiting for a rank that had not started)")
        assert not any("waiting" in name for name in others)

    drive(app, steps)


def test_names_are_text_whatever_is_in_them(recorded):
    """Mutation: the table takes names as markup."""
    app = Top(Session.open(recorded.latest), config.resolve())
    names = ["[red]x[/red]", "[/]", "a\x1b[2Jb", "‮evil", "line\nline", "核" * 500]

    async def steps(pilot) -> None:
        rows = tuple(watch.WatchedKernel(name, "[b]", 0.1, 10 - at, 1, 1.0) for at, name in enumerate(names))
        app.show(watch.View("[red]title", (("[b]fact[/b]", "[/]"),), (), rows))
        await pilot.pause()
        shown = column(app, 5)
        assert shown[:2] == names[:2] and all(text.isprintable() for text in shown)
        assert said(app, "#title") == "[red]title" and said(app, "#range") == "no latencies"

    drive(app, steps)


def test_a_session_that_cannot_be_read_is_said_on_the_screen(recorded, tmp_path):
    copy = tmp_path / recorded.latest.name
    shutil.copytree(recorded.latest, copy)
    (copy / "metrics" / "inference_iters.parquet").write_bytes(b"no table")
    app = Top(Session.open(copy), config.resolve())

    async def steps(pilot) -> None:
        assert app.view.facts[0][0] == "problem" and "inference_iters" in app.view.facts[0][1]

    drive(app, steps)


def test_without_a_terminal_or_its_extra_it_says_so(aaco, recorded, monkeypatch):
    assert "aaco summary" in recorded.inside("top", expect=2).stderr
    monkeypatch.delitem(sys.modules, "aaco.cli.screen")
    for name in [name for name in sys.modules if name.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    refused = recorded.inside("top", expect=6)
    what, fix = refused.stderr.splitlines()
    assert what == "aaco: this needs textual, which is not installed" and "# aaco[top]" in fix


def test_a_run_is_followed_at_a_real_terminal(aaco):
    """In tmux: the run's latencies while it goes on, then its report's numbers, then the terminal as it was."""
    if shutil.which("tmux") is None:
        assert os.environ.get("CI") != "true"
        pytest.skip("tmux is not installed")
    socket = f"aaco-test-{os.getpid()}"
    environment = aaco.environment(TERM="xterm-256color", PYTHONPATH=os.pathsep.join(
        filter(None, (str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH")))))

    def tmux(*words: str) -> str:
        done = subprocess.run(["tmux", "-L", socket, "-f", "/dev/null", *words], env=environment, cwd=aaco.folder,
                              text=True, capture_output=True, timeout=30)
        return done.stdout

    def until(wanted: str) -> str:
        end = time.monotonic() + 90
        while not re.search(wanted, shown := tmux("capture-pane", "-p", "-t", "top")):
            assert time.monotonic() < end, f"{wanted} never came:\n{shown}"
            time.sleep(0.1)
        return shown

    run = subprocess.Popen(aaco.command("run", "gpt2-tiny", "--warmup", 2, "--iterations", 1_000_000, "--budget", 120,
                                        "--no-profile", "--quiet"), cwd=aaco.folder, env=environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24")
        end = time.monotonic() + 60
        while not list(aaco.folder.glob("sessions/*/*/runtime/iterations-*.i64")):
            assert time.monotonic() < end and run.poll() is None
            time.sleep(0.1)
        tmux("send-keys", "-t", "top", f"{shlex.join(aaco.command('top', 'live'))}; echo LE''FT", "Enter")
        for drawn in (r"phase +measurement", "gpt2-tiny  running", "kernels are known once the run has ended",
                      r"process +1 of 1 ", r"recent median +\d"):
            until(drawn)  # one by one: a screen may be read while it is drawn
        until(r"[▁▂▃▄▅▆▇█]{3}")
        until(r"\d:\d\d:\d\d")  # what is left, by textual's own bar
        run.send_signal(signal.SIGINT)
        run.wait(60)
        until(r"(failed|incomplete)")
        until(r"Median latency +\d")
        tmux("send-keys", "-t", "top", "q")
        assert "Median latency" not in until("LEFT")
    finally:
        run.kill()
        run.wait()
        tmux("kill-server")
