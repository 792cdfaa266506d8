"""The generated fleet of scripts/run_fleet_demo.sh: its bundles in a folder, and what has to be found in them."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.fleet._bundles import FleetPlan, sessions, write

PLAN = FleetPlan(200, models=2, devices=2, nodes=10, regressions=1, slow_nodes=1)


def main(folder: Path) -> None:
    """Write the bundles; print the slow node and the session that regressed."""
    list(write(folder, PLAN))
    planted = sessions(PLAN)[1]
    print(*planted.slow_nodes, *planted.regressions)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
