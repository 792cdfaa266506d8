"""Where a command's words go: closed, full and broken streams, and terminals that cannot spell a frame."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess

import pytest

BOXES = (("report",), ("explain", "KAR"), ("report", "--format", "markdown"), ("report", "--format", "html"),
         ("sql", "select kernel_name, count(*) from kernels group by all"))


@pytest.fixture
def copied(recorded, aaco):
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    return aaco


def into(aaco, command, ending):
    """What a shell makes of `aaco COMMAND ENDING`: exit code and stderr."""
    words = " ".join(map(shlex.quote, aaco.command(*command)))
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {words} {ending}"], cwd=aaco.folder, text=True,
                          env=aaco.environment(), capture_output=True)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("command", [("ls",), ("report",), ("sql", "--format", "csv", "select * from kernels"),
                                     ("--help",)])
def test_a_closed_or_full_output_is_one_clear_error(copied, command):
    """Mutations: leaving the flush to Python's end (exit 120 and a complaint); asking a closed stream for its kind."""
    for ending, words in ((">&-", "standard output is closed"), ("> /dev/full", "No space left")):
        done = into(copied, command, ending)
        assert done.returncode == 1
        assert words in done.stderr and done.stderr.count("\n  try: ") == 1, done.stderr


def test_a_reader_that_leaves_and_talk_that_nobody_hears_are_no_errors(copied):
    """Mutation: leaving it to click, which calls a broken pipe an error of the command."""
    for command in (("ls",), ("report",), ("--help",)):
        for ending in ("| true", "2>&-", "2> /dev/full", "<&-"):
            assert into(copied, command, ending).returncode == 0, (command, ending)


def test_a_run_goes_on_when_nobody_listens_to_its_talk(aaco):
    """Mutation: a step that cannot be said ends the run, and its session stays incomplete."""
    for ending in ("2>&-", "2> /dev/full", "2>&1 | true"):
        into(aaco, ("run", "gpt2-tiny", "--iterations", 3, "--warmup", 0, "--no-profile"), f"> /dev/null {ending}")
    statuses = [row["status"] for row in json.loads(aaco("ls", "--json").stdout)["sessions"]]
    assert statuses == ["complete"] * 3


def test_a_frame_is_drawn_with_what_the_terminal_can_spell(copied):
    """Mutation: leaving it to Python, whose answer to a frame in Latin-1 is an exception."""
    plain = None
    for encoding, frame in (("utf-8", "╔═══"), ("cp437", "╔═══"), ("latin-1", "+==="), ("ascii", "+===")):
        done = subprocess.run(copied.command("report"), cwd=copied.folder, capture_output=True,
                              env=copied.environment(PYTHONIOENCODING=encoding))
        text = done.stdout.decode(encoding)
        assert done.returncode == 0 and not done.stderr and frame in text
        assert max(map(len, text.split("\n"))) <= 80
        plain = plain or text
        assert len(text.split("\n")) == len(plain.split("\n"))


@pytest.mark.parametrize("command", BOXES)
def test_every_command_can_write_ascii(copied, command):
    done = subprocess.run(copied.command(*command), cwd=copied.folder, capture_output=True,
                          env=copied.environment(PYTHONIOENCODING="ascii", LC_ALL="C"))
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert done.stdout.isascii() and done.stderr.isascii()


def test_the_c_locale_and_python_without_utf_8(copied):
    for extra in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        assert copied("report", **extra).stdout


def test_how_much_is_said_is_asked_for_by_level(aaco):
    """Mutations: a level that there is not taken for info; errors silenced with the rest."""
    aaco.folder.joinpath("model.onnx").write_bytes(b"no model")
    assert "no session under" in aaco("ls").stderr
    assert aaco("ls", AACO_LOG_LEVEL="WARNING").stderr == ""
    for level in ("error", "info"):
        assert "model.onnx" in aaco("run", "model.onnx", expect=5, AACO_LOG_LEVEL=level).stderr
    traced = subprocess.run(aaco.command("run", "model.onnx"), cwd=aaco.folder, capture_output=True, text=True,
                            env=aaco.environment(AACO_LOG_LEVEL="debug"))
    assert (traced.returncode, traced.stderr.count("Traceback")) == (5, 1 + traced.stderr.count("The above exception"))
    refused = aaco("ls", expect=2, AACO_LOG_LEVEL="nope").stderr
    assert refused == "aaco: AACO_LOG_LEVEL=nope: no such level\n  try: one of debug, info, warning, error\n"


def test_a_dash_is_standard_output_or_is_refused(copied):
    """Mutation: a file named `-`."""
    assert copied("report", "--format", "markdown", "-o", "-").stdout.startswith("# ")
    for command in (("perfetto", "-o", "-"), ("lab", "run", "--manifest", "-", "--", "true")):
        assert "not written to standard output" in copied(*command, expect=2).stderr
    assert not (copied.folder / "-").exists()
