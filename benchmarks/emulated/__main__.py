"""Refuses without the emulator and a compiler; else runs the parts, prints their claims, and keeps them."""

import datetime
import sys

from aaco.core.errors import AacoError
from aaco.replay import emulator
from benchmarks import claims, emulated
from benchmarks.emulated import _cases

if __name__ == "__main__":
    try:
        about = {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S%z"),
                 "emulator": emulator.identity(), "compiler": _cases.compiler_version()}
    except AacoError as error:
        print(error, file=sys.stderr)
        sys.exit(int(error.exit_code))
    sys.exit(claims.main(emulated, about))
