"""Run as a program: reads files with a parser each, under a limit of memory, and prints what came of it.

Arguments: megabytes of address space over what the program itself takes, then format=path pairs.
"""

import resource
import sys
from pathlib import Path

from aaco.core.errors import BadCapture
from aaco.profiler.formats import registry


def main() -> None:
    """One line a file: the format, rows or BadCapture, and the peak of resident memory so far, in MB."""
    parsers = registry.parsers()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + (int(sys.argv[1]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for pair in sys.argv[2:]:
        form, path = pair.split("=", 1)
        try:
            outcome = f"read {sum(1 for _ in parsers[form].parse(Path(path)))}"
        except BadCapture as error:
            outcome = f"BadCapture {str(error)[:200]!r}"
        print(form, _peak_mb(), outcome, flush=True)


def _peak_mb() -> int:
    """VmHWM: unlike ru_maxrss it forgets what the process was before exec, a copy of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10


if __name__ == "__main__":
    main()
