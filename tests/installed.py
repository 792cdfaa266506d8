"""Environments that hold this project as its wheel installs it, beside packages that are installed here already."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tree(target: Path) -> Path:
    """A copy of what git would give a newcomer."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def environment(folder: Path, wheel: Path, without: Collection[str] = ()) -> Path:
    """A virtual environment with the wheel and links to the packages here, but those of the distributions `without`
    and this tree; its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    beside = folder / "locked"
    beside.mkdir()
    for entry in _others(without):
        (beside / entry.name).symlink_to(entry)
    (packages / "locked.pth").write_text(f"{beside}\n")
    # What is imported is compiled then: to compile a thousand files takes longer than what most callers do.
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet", "--no-deps",
                    "--no-index", "--no-build-isolation", "--no-compile", "--disable-pip-version-check", wheel],
                   check=True)
    return folder / "bin"


def _others(without: Collection[str]) -> Iterable[Path]:
    """The entries of site-packages that belong to no distribution of these, nor to this project."""
    left_out = {"aaco", *without}
    here = Path(str(metadata.distribution("numpy").locate_file("")))
    gone = {Path(str(file)).parts[0] for each in metadata.distributions(path=[str(here)])
            if each.name in left_out for file in each.files or ()}
    return [entry for entry in here.iterdir() if entry.name not in gone and entry.suffix != ".pth"]
