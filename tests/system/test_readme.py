"""Every command of the README is run, in order, in one folder, as a reader would."""

from __future__ import annotations

import re
import shlex
import struct
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks import laboratory
from tests import pages
from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INSTALL = "pip install ."


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def quick(aaco: Aaco) -> Aaco:
    """Settings of a reader in a hurry: what is run is as it stands, and takes fewer turns where no number is given."""
    (aaco.folder / ".config/aaco/config.yaml").write_text("profiling: {calibrate: false, warmup: 2, "
                                                          "profile_iterations: 3}\n")
    return aaco


@pytest.mark.timeout(900)
def test_the_commands_for_aaco(tmp_path, cache):
    """In this process but for the first, and those that change the machine: to start Python for each takes longer.
    In the place of ResNet-50 a smaller network runs, as an entry of the user's says; the demo below runs the former."""
    aaco = quick(Aaco(tmp_path, cache))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/models.yaml").write_text("models: {resnet50: {zoo: bert-tiny}}\n")
    (tmp_path / "tests").symlink_to(ROOT / "tests")  # the traces that the README names
    (tmp_path / "your_trace.json.gz").symlink_to(ROOT / "tests/captures/torch_h200/resnet50_nchw.json.gz")
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("aaco ")]
    assert len(lines) > 10
    for number, line in enumerate(lines):
        words = shlex.split(line)[1:]
        # a diff of two runs on a busy machine may honestly find a change; the others were given one to find
        allowed = (0, 3) if words[0] in ("diff", "compare", "drift") else (0,)
        if number and words[0] != "lab" and not pages.OF_THE_MACHINE & set(words):
            done = aaco.inside(*words, expect=allowed)
        else:
            with laboratory.alone() if {"lab", "--lab"} & set(words) else nullcontext():
                done = subprocess.run(aaco.command(*words), cwd=tmp_path, env=aaco.environment(), text=True,
                                      capture_output=True)
            assert done.returncode in allowed, f"{line}\n{done.stderr}"
        assert done.stdout or "--output" in words, line
    for name in ("resnet50.html", "trace.html", "trace.pftrace"):
        assert (tmp_path / name).stat().st_size > 10_000


def test_the_python_of_the_readme(tmp_path, cache):
    aaco = quick(Aaco(tmp_path, cache))
    for block in blocks("python"):
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=aaco.environment(), text=True,
                              capture_output=True)
        assert done.returncode == 0, done.stderr
        assert "latency_p50_ms" in done.stdout


def test_every_other_command_is_known_here():
    others = {line for block in blocks("bash") for line in block.splitlines() if line and not line.startswith("aaco ")}
    assert others == {INSTALL, "./scripts/run_demo.sh", "./scripts/test"}  # two are run below, the other runs this


def test_the_first_screen_is_short():
    """Mutation: a page of prose before the first command."""
    before = README.partition(INSTALL)[0]
    assert len(before.split()) <= 60 and len(README.splitlines()) <= 120
    assert blocks("bash")[0].split("\n")[:2] == [INSTALL, "aaco import your_trace.json.gz"]


def test_the_picture_is_what_the_command_prints(tmp_path):
    """Made anew by scripts/picture where the screen changes."""
    subprocess.run([sys.executable, ROOT / "scripts/picture", "-o", tmp_path / "import.svg"], check=True)
    assert (tmp_path / "import.svg").read_text() == (ROOT / "docs/images/import.svg").read_text()


def test_what_pip_installs_imports_a_trace(clone, tmp_path):
    assert INSTALL == "pip install ."  # as the environment of the clone was made
    (tmp_path / "your_trace.json.gz").symlink_to(ROOT / "tests/captures/torch_h200/resnet50_nchw.json.gz")
    done = subprocess.run([clone / ".venv/bin/aaco", "import", "your_trace.json.gz"], cwd=tmp_path, text=True,
                          capture_output=True, env=quick(Aaco(tmp_path, tmp_path / "cache")).environment(PYTHONPATH=""))
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.timeout(900)
def test_the_demo_on_a_fresh_copy(clone, tmp_path, cache):
    """Where its packages are installed: continuous integration begins with the same installation on a fresh copy, of
    more packages, and the next test says that these are among them."""
    done = subprocess.run(["./scripts/run_demo.sh"], cwd=clone, text=True, capture_output=True,
                          env=quick(Aaco(tmp_path, cache)).environment(PYTHONPATH="", PYTHONDONTWRITEBYTECODE=""))
    assert done.returncode == 0, done.stderr[-3000:]
    named = ("bundle:", "report:", "verdict:")
    places = dict(line.split(":", 1) for line in done.stdout.splitlines() if line.startswith(named))
    assert set(places) == {"bundle", "report", "verdict"}
    for place in places.values():
        assert Path(place.strip()).exists()
    assert "synthetic weights" in done.stdout


def test_what_the_demo_installs_is_what_the_tests_run_with():
    """By version and hash. Mutation: a lock that was renewed alone."""
    demo, tested = (set(re.findall(r"^(\S+==\S+|    --hash=\S+)", (ROOT / name).read_text(), re.MULTILINE))
                    for name in ("requirements.lock", "requirements-dev.lock"))
    assert len(demo) > 50 and demo <= tested


def test_the_picture_of_the_guide_is_of_todays_report(tmp_path):
    """scripts/picture --report: a page of 1280 x 900 with something on it. Mutation: an empty page."""
    subprocess.run([sys.executable, ROOT / "scripts/picture", "--report", "-o", tmp_path / "report.png"], check=True)
    picture = (tmp_path / "report.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">2I", picture[16:24]) == (1280, 900)
    assert len(picture) > 50_000 and "](../images/report.png)" in (ROOT / "docs/guides/first-run.md").read_text()
