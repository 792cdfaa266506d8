"""A program with limits of its own: `python -I -S limited.py LIMITS -- PROGRAM ARGUMENTS`. It imports nothing of ours.

LIMITS are a JSON object: memory_bytes, file_bytes (of each file it writes), cpu_s, and `environment`, whose variables
are added. The limits hold for what the program starts too.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping, Sequence


def command(program: Sequence[str], memory_bytes: int, file_bytes: int, cpu_s: int,
            environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the command that runs the program with these limits."""
    limits = {"memory_bytes": memory_bytes, "file_bytes": file_bytes, "cpu_s": cpu_s,
              "environment": dict(environment or {})}
    return [sys.executable, "-I", "-S", __file__, json.dumps(limits), "--", *program]


def _main() -> None:
    limits = json.loads(sys.argv[1])
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, limits["memory_bytes"]),
                       (resource.RLIMIT_FSIZE, limits["file_bytes"]), (resource.RLIMIT_CPU, limits["cpu_s"])):
        resource.setrlimit(kind, (most, most))
    program = sys.argv[3:]
    os.execvpe(program[0], program, os.environ | limits["environment"])


if __name__ == "__main__":
    _main()
