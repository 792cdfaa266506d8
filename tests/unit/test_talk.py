"""What is said while work goes on: rates and times left, when a line comes, and who hears it."""

from __future__ import annotations

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.cli import options, say
from aaco.cli.talk import NOW_AND_THEN_S, Plain, ahead, talk
from aaco.core.near import near
from aaco.core.show import SILENT


@pytest.mark.parametrize(("done", "total", "elapsed_s", "said"), [
    (50, 100, 10.0, ", 5/s, 10 s left"), (1, 1_000, 2.0, ", 0.5/s, 33 min left"),
    (2, 100_000, 10.0, ", 0.2/s, 139 h left"), (40_000, 80_000, 2.0, ", 20,000/s, 2 s left"),
    (0, 100, 10.0, ""), (10, 100, 0.1, ""), (100, 100, 10.0, ", 10/s, 0 s left"),
])
def test_rate_and_time_left(done, total, elapsed_s, said):
    assert ahead(done, total, elapsed_s) == said


def test_a_log_gets_a_line_per_step_and_one_now_and_then():
    """Mutation: a line for every count."""
    now, lines = [0.0], []
    plain = Plain(lambda: now[0], lines.append)
    plain.show.step("timing")
    for done in range(1, 101):
        now[0] += 0.5
        plain.show.progress(done, 100)
    assert lines[0] == "timing" and len(lines) == 1 + int(49.5 // NOW_AND_THEN_S)
    assert lines[1] == "  20 of 100, 2/s, 40 s left"
    plain.show.step("next")
    now[0] += NOW_AND_THEN_S
    plain.show.progress(7, 7)  # the end says itself
    assert lines[-1] == "next"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(monkeypatch):
    """Mutation: transient=False."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with talk() as show:
        show.step("a [bold]name[/bold] \x1b[31m" + "x" * 200)
        show.progress(5, 100)
    drawn = screen.getvalue()
    assert "5/100" in drawn and "a [bold]name[/bold] \\x1b[31mxxx" in drawn  # the name is cut, the numbers are not
    rows = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", drawn)]
    assert max(map(len, rows)) <= 80
    assert drawn.rstrip("\r\n").endswith("\x1b[2K")  # the last that is drawn is an empty line


@pytest.mark.parametrize("variable", ["", "dumb"])
def test_nothing_moves_where_it_cannot(variable, monkeypatch):
    screen = Screen() if variable else io.StringIO()
    monkeypatch.setenv("TERM", variable or "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with talk() as show:
        show.step("working")
        show.progress(5, 100)
    assert screen.getvalue() == "working\n"


def test_quiet_is_silent(monkeypatch):
    monkeypatch.setattr(say, "_hushed", True)
    with talk() as show:
        assert show is SILENT
    assert not say.heard("info") and say.heard("warning")


@pytest.mark.parametrize(("terminal", "environment", "style"), [
    (True, {"TERM": "xterm"}, "colour"), (True, {"TERM": "xterm", "NO_COLOR": ""}, "colour"),
    (True, {"TERM": "xterm", "NO_COLOR": "1"}, "plain"), (True, {"TERM": "dumb"}, "plain"),
    (False, {"TERM": "xterm"}, "plain"),
])
def test_colour_is_for_a_terminal_that_wants_it(terminal, environment, style, monkeypatch):
    """Mutation: NO_COLOR counts although it is empty (no-color.org says: when present and not empty)."""
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Screen() if terminal else io.StringIO())
    assert options.style() == style


@given(st.text(), st.lists(st.text()))
def test_what_is_near_is_one_of_what_is_known(word, known):
    found = near(word, known)
    assert len(found) <= 3 and set(found) <= set(known) and len(set(found)) == len(found)


def test_a_name_itself_is_the_nearest():
    assert near("RUN", ["runner", "run", "sun"])[0] == "run"
    assert near("x", ["xylophone"]) == [] and near("", ["run"]) == []
