"""Whether CUPTI would trace a program of this Python, as JSON on stdout."""

from __future__ import annotations

import ctypes
import json
import os
import sys

from . import library
from .buffers import Buffers
from .library import CuptiError
from .tracer import KERNEL


def main() -> None:
    """Begin a trace of nothing, end it, and say how that went."""
    try:
        found = library.load(os.environ, sys.path)
        found.call("cuptiActivityRegisterCallbacks", *Buffers().callbacks)
        found.call("cuptiActivityEnable", ctypes.c_int(KERNEL))
        found.code("cuptiFinalize")
        said = {"library": found.path, "version": str(found.version)}
    except CuptiError as error:
        said = {"error": error.what, "fix": error.fix}
    print(json.dumps(said))
