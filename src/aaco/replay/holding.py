"""`python -m aaco.replay.holding SPANS MODULE ARGUMENT...`: takes addresses before anything else, then runs a module.

SPANS: JSON, a list of pairs: a first address, and the first one after. The module is the process's main program.
"""

import json
import runpy
import sys

from aaco.replay import addresses

if __name__ == "__main__":
    addresses.hold(map(tuple, json.loads(sys.argv[1])))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
