"""An emulator of AMD GPUs that the user has: tinygrad's, in a checkout that AACO_TINYGRAD names.

It is no part of AACO. Only processes that replay a launch import it, after the launch's memory is in its place.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aaco.core import files
from aaco.core.errors import AacoError, Missing
from aaco.replay import emulator_repairs
from aaco.replay.emulator_errors import NO_ANSWER, NotEmulated

VARIABLE = "AACO_TINYGRAD"
MODULE = "test.mockgpu.amd.emu"
FAMILIES = {"gfx90a": "cdna", "gfx942": "cdna", "gfx1100": "rdna3"}  # by target, as the emulator calls their code
LANES = {"cdna": 64, "rdna3": 32}
Run = Callable[..., Any]


def target(isa: str) -> str:
    """Return the target without its features: gfx942 of gfx942:sramecc+:xnack-."""
    return isa.partition(":")[0]


def is_at_hand(isa: str) -> bool:
    """Return whether the emulator is there, and runs code for this target."""
    return bool(os.environ.get(VARIABLE)) and target(isa) in FAMILIES


def identity() -> str:
    """Return the name and the hash of this version of the emulator. Raise Missing."""
    return f"tinygrad, its emulator of SHA-256 {files.sha256(_file())}"


def _file() -> Path:
    named = os.environ.get(VARIABLE)
    path = Path(named or "") / f"{MODULE.replace('.', '/')}.py"
    if not named or not files.is_file(path):
        why = f"{named} is no checkout of tinygrad with {MODULE}" if named else "not set: it names no emulator"
        raise Missing(f"{VARIABLE}: {why}", "git clone https://github.com/tinygrad/tinygrad  # and name the folder")
    return path


def load() -> Run:
    """Return the emulator's function that runs a kernel. Raise Missing."""
    folder = _file().parents[MODULE.count(".")]
    sys.path.insert(0, str(folder))
    try:
        with tempfile.TemporaryDirectory(prefix="aaco-emulator-") as made:
            before, tempfile.tempdir = tempfile.tempdir, made  # it compiles a library, and leaves the file
            try:
                module = importlib.import_module(MODULE)
                module._get_ftz_lib()
                emulator_repairs.repair(module)
            finally:
                tempfile.tempdir = before
        return _checked(module.run_asm)
    except (ImportError, AttributeError) as error:
        raise Missing(f"{VARIABLE}: {MODULE} of {folder} cannot be used: {error}",
                      "use a checkout that has run_asm and its imports; the one this version was tried with is named "
                      "in docs/guides/optimize-kernels.md") from error


def _checked(run: Run) -> Run:
    """Return the same call with every exception of the emulator as an AacoError."""
    def call(*arguments: Any) -> None:
        try:
            run(*arguments)
        except AacoError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:400]
            if "likely infinite loop" in text or "scheduling rounds" in text:
                raise AacoError(f"the emulated kernel {NO_ANSWER}: {text}") from error
            raise NotEmulated(f"{type(error).__name__}: {text}") from error

    return call
