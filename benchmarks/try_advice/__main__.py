"""Runs the parts, prints their claims, and keeps them with the machine that they ran on."""

import sys
from datetime import UTC, datetime

from aaco.collectors.inventory import machine
from aaco.core.records import as_dict
from aaco.optimize import recorded_run
from benchmarks import claims, try_advice

if __name__ == "__main__":
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **recorded_run.versions(),
             **{name: str(value) for name, value in as_dict(machine.identify()).items()}}
    sys.exit(claims.main(try_advice, about))
