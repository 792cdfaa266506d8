"""A pass whose process a tracer watches from within, as CUPTI's: it is waited for, but not for ever."""

from __future__ import annotations

import pytest

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.errors import AacoError
from aaco.runner import ort
from aaco.steps import run
from tests import models

HANGS = {"end": "import atexit, time; atexit.register(time.sleep, 15)", "work": "import time; time.sleep(15)"}


@pytest.mark.parametrize(("at", "says"), [("end", "the tracer had not ended 1 s after the work was done"),
                                          ("work", "the work had not ended after 2 s under the tracer")])
def test_a_tracer_within_the_process_that_hangs_is_not_waited_for(tmp_path, monkeypatch, at, says):
    """Mutation: patience only with what stands before the command."""
    monkeypatch.setattr(ort, "FINISHING_S", 1.0)
    monkeypatch.setattr(ort, "TRACED_S", 30.0 if at == "end" else 2.0)
    (tmp_path / "sitecustomize.py").write_text(HANGS[at])
    plan = pipeline.plan(resolve(), str(models.chain(tmp_path / "chain.onnx")), warmup=1, profile_iterations=3)
    (tmp_path / "pass").mkdir()
    with pytest.raises(AacoError, match=says):
        ort.traced_pass(tmp_path / "pass", run.prepare(plan, resolve()).workload, plan,
                        {"PYTHONPATH": str(tmp_path)})
