"""Runs at the start of a Python program with this folder on PYTHONPATH: traces it or captures one of its launches, then
runs the user's own sitecustomize.

AACO_CUPTI_TRACE: the folder for the captures, one for each process. AACO_CUPTI_MODE: "kernels" or "all".
AACO_CUPTI_LAUNCH: the folder for a launch that is captured, with what inside/launch_capture.py says.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def begin() -> None:
    """Trace this process, or capture a launch of it, if the environment requests it; obstacles are recorded, and the
    program continues.
    """
    folder, launch = os.environ.get("AACO_CUPTI_TRACE"), os.environ.get("AACO_CUPTI_LAUNCH")
    if not folder and not launch:
        return
    inside = HERE.parent / "inside"
    spec = importlib.util.spec_from_file_location("_aaco_cupti", inside / "__init__.py",
                                                  submodule_search_locations=[str(inside)])
    if spec is None:
        return
    sys.modules["_aaco_cupti"] = importlib.util.module_from_spec(spec)
    if folder:
        importlib.import_module("_aaco_cupti.program").trace(folder, os.environ.get("AACO_CUPTI_MODE") or "all")
    if launch:
        importlib.import_module("_aaco_cupti.launch_capture").start(launch)


def give_way() -> None:
    """Run the sitecustomize that this one hides, as if this one did not exist."""
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


begin()
give_way()
