"""Runs at the start of a Python program with this folder on PYTHONPATH: traces it, then runs the user's own
sitecustomize.

AACO_CUPTI_TRACE: the folder for the captures, one for each process. AACO_CUPTI_MODE: "kernels" or "all".
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def trace() -> None:
    """Trace this process if the environment requests it; obstacles are recorded in the capture, and the program
    continues.
    """
    folder = os.environ.get("AACO_CUPTI_TRACE")
    if folder:
        inside = HERE.parent / "inside"
        spec = importlib.util.spec_from_file_location("_aaco_cupti", inside / "__init__.py",
                                                      submodule_search_locations=[str(inside)])
        if spec is not None:
            sys.modules["_aaco_cupti"] = importlib.util.module_from_spec(spec)
            program = importlib.import_module("_aaco_cupti.program")
            program.trace(folder, os.environ.get("AACO_CUPTI_MODE") or "all")


def give_way() -> None:
    """Run the sitecustomize that this one hides, as if this one did not exist."""
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


trace()
give_way()
