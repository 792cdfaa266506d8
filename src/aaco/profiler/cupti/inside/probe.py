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
    """Begin an empty trace, end it, and print the outcome."""
    try:
        cupti = library.load(os.environ, sys.path)
        cupti.call("cuptiActivityRegisterCallbacks", *Buffers().callbacks)
        cupti.call("cuptiActivityEnable", ctypes.c_int(KERNEL))
        cupti.code("cuptiFinalize")
        report = {"library": cupti.path, "version": str(cupti.version)}
    except CuptiError as error:
        report = {"error": error.what, "fix": error.fix}
    print(json.dumps(report))
