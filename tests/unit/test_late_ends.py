"""Traces with stacks in which functions of C extensions end with the recording: what they call keeps its operator."""

import json
from pathlib import Path

import pytest

from aaco.core.config import Analysis
from aaco.steps import make_findings
from benchmarks.ordered import imported


def event(category, name, start, took, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 0 if category == "kernel" else 7, "tid": 7, "ts": start,
            "dur": took, "args": args}


def trace(path: Path, late: float, number: int = 3) -> Path:
    """Modules that call an operator of their own, which calls back into Python and launches: as PyTorch 2.11 records
    torch.library.custom_op with stacks. late: how long the functions of C take, us. An earlier one ends in a launch.
    """
    events = [event("python_function", "serve.py(3): main", 0, 10_000),
              event("python_function", "<built-in method of pybind11_builtins>", 90, 22)]
    for place in range(number):
        at = 100 + 100 * place
        events += [
            event("python_function", f"nn.Module: Norm_{place}", at, 80),
            event("python_function", "torch/_ops.py(864): __call__", at + 1, 78),
            event("python_function", "<built-in method  of pybind11_builtins object at 0x7>", at + 2, late),
            event("cpu_op", "engine::norm", at + 3, 70),
            event("python_function", "torch/_ops.py(869): redispatch", at + 4, 60),
            event("python_function", "<built-in method redispatch_boxed of pybind11_builtins>", at + 5, late),
            event("python_function", "serve.py(9): norm", at + 6, 40),
            event("cuda_driver", "cuLaunchKernelEx", at + 10, 4, correlation=place + 1),
            event("kernel", "_norm", at + 30, 9, correlation=place + 1, device=0, stream=7)]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Test GPU"}],
                                "traceEvents": events}, indent=1))
    return path


@pytest.mark.parametrize("late", [50, 1500, 9500])
def test_a_launch_inside_an_operator_is_of_it_however_late_its_functions_end(tmp_path: Path, late: float):
    """Mutations: a function's late end stands; that of a C function holds for those inside."""
    session = imported([trace(tmp_path / "stacks.json", late)], tmp_path)
    make_findings.make_one(session, "attribution", Analysis())
    rows = session.table("operators").to_pylist()
    assert [(row["operator"], row["module"]) for row in rows if row["kernels"]] == [
        ("engine::norm", f"Norm_{place}") for place in range(3)]
