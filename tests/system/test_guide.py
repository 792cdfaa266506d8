"""Every command of the guides is run, in order, in one folder, as a reader would; and every format is in the guide."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from aaco.laboratory import levels
from aaco.profiler import formats
from benchmarks.laboratory import alone
from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/import.md").read_text()


def test_the_guide_to_imports(tmp_path, cache):
    aaco = Aaco(tmp_path, cache)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for language, block in re.findall(r"```(bash|python)\n(.*?)```", GUIDE, re.DOTALL):
        commands = [aaco.command(*shlex.split(line)[1:]) for line in block.splitlines()]
        for command in commands if language == "bash" else [[sys.executable, "-c", block]]:
            done = subprocess.run(command, cwd=tmp_path, env=aaco.environment(), text=True, capture_output=True)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert done.stdout


def test_every_format_is_in_the_guide():
    table = GUIDE.partition("## What is taken from each")[2]
    first = "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)
    named = set(re.findall(r"`([a-z0-9_]+)`", first))
    assert set(formats.parsers()) <= named


def test_the_guide_to_the_laboratory(tmp_path, cache):
    """Every command, in order; and the table of levels is the one in the code, essential knobs in bold."""
    aaco = Aaco(tmp_path, cache)
    guide = (ROOT / "docs/guides/laboratory.md").read_text()
    with alone():
        for line in "".join(re.findall(r"```bash\n(.*?)```", guide, re.DOTALL)).splitlines():
            aaco(*shlex.split(line)[1:], AACO_LAB_DIR=str(tmp_path / "lab"))
    rows = {row[0].strip(): row[1] for row in re.findall(r"^\| `?([a-z ]+)`?[^|]*\| (.*) \|$", guide, re.MULTILINE)}
    for level, added in levels.ADDED.items():
        assert [name.strip("*`") for name in rows[level].split(", ") if added] == list(added)
        assert {name.strip("*`") for name in rows[level].split(", ") if name.startswith("**")} \
            == {name for name, essential in added.items() if essential}
    assert re.findall(r"`(\w+)`", rows["on request"]) == list(levels.ON_REQUEST)
