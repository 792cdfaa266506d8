"""Wall and CPU time of light commands: `python -m benchmarks.startup` prints a table and JSON.

Bars: `import aaco` at most 100 ms more than Python itself, `aaco --help` at most 150 ms wall, `aaco info` at most
150 ms of CPU.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time

COMMANDS = {"python -c pass": ["-c", "pass"], "import aaco": ["-c", "import aaco"],
            "aaco --help": ["-m", "aaco", "--help"], "aaco --version": ["-m", "aaco", "--version"],
            "aaco info": ["-m", "aaco", "info"], "aaco doctor": ["-m", "aaco", "doctor"],
            "aaco ls": ["-m", "aaco", "ls"]}
RUNS = 15


def once(arguments: list[str]) -> tuple[float, float]:
    """Wall and CPU ms of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * wall, 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Print the table and the JSON. Medians of runs taken in turn, because machines are shared."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, arguments in COMMANDS.items():
            found[name].append(once(arguments))
    rows = {name: {"wall_ms": statistics.median(wall for wall, _ in runs),
                   "cpu_ms": statistics.median(cpu for _, cpu in runs)} for name, runs in found.items()}
    for name, row in rows.items():
        print(f"{name:<18}{row['wall_ms']:>8.0f} ms wall{row['cpu_ms']:>8.0f} ms CPU")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
