"""Recording a run: what it asks of the machine, and how often."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from aaco import pipeline
from aaco.calibration import cpu
from aaco.collectors.inventory import machine
from aaco.core.config import resolve
from aaco.core.plan import Command, Plan
from aaco.report.sections import quality
from aaco.runner import iterations, self_accounting
from aaco.steps import run
from tests import models


@pytest.mark.parametrize("of_a_model", [True, False])
def test_the_machine_is_identified_once_per_run(tmp_path, monkeypatch, of_a_model):
    """Each identification starts nvidia-smi where there is one. Mutation: asking again for env.json."""
    asked = []
    identify = machine.identify
    monkeypatch.setattr(machine, "identify", lambda *given: asked.append(given) or identify(*given))
    settings = resolve(overrides={"storage": {"sessions_dir": tmp_path, "cache_dir": tmp_path},
                                  "profiling": {"calibrate": of_a_model}}, environment={})
    monkeypatch.setattr("aaco.calibration.cpu.measure", lambda *given, **named: cpu.CpuCeilings([], {}))
    plan = (pipeline.plan(settings, str(models.chain(tmp_path / "m.onnx")), iterations=3, warmup=0, profile=False)
            if of_a_model else Plan.of_command(Command(argv=("true",)), 1, 0))
    session = pipeline.observe(plan, settings)
    assert len(asked) == 1
    assert session.read_json("env.json")["machine"]["id"] == session.record.machine_id


def test_a_warm_up_until_settled_is_planned_done_and_told(tmp_path):
    """Mutation: the outcome of each pass without its warm-up."""
    settings = resolve(overrides={"storage": {"sessions_dir": tmp_path, "cache_dir": tmp_path},
                                  "profiling": {"calibrate": False, "warmup": "auto"}}, environment={})
    plan = pipeline.plan(settings, str(models.chain(tmp_path / "m.onnx")), iterations=3, processes=2, profile=False)
    assert (plan.warmup, plan.settle) == (500, True)
    assert not pipeline.plan(settings, "x", warmup=7).settle
    found = pipeline.run(plan, settings)
    made = [one["warmup"] for one in found.explanation.runtime["passes"]]
    rows = found.explanation.tables["inference_iters"]
    assert rows["phase"].cast("string").to_pylist().count("warmup") == sum(one["iterations"] for one in made)
    row = next(row for row in quality.rows(found.explanation) if row.label == "Warm-up until settled")
    for one in made:
        assert one["stopped_by"] in ("settled", "iterations") and 47 <= one["iterations"] <= 500
        assert f"{one['iterations']}" in row.text
    assert run._settled({"iterations": 500, "stopped_by": "iterations"}) == (
        "the latencies had not settled after 500 iterations of warm-up, which is the most")


@pytest.mark.parametrize(("policy", "clean", "processes"), [
    ("tag", [0], 2), ("discard", [0], 2), ("repeat", [9, 19, 20], 4), ("repeat", [20], 2), ("repeat", [0] * 9, 6)])
def test_repeat_measures_on_until_enough_is_clean_but_not_for_ever(monkeypatch, policy, clean, processes):
    """Mutation: `clean >= made` to `clean > made`; no bound: it never ends on a busy machine."""
    left = iter(clean)
    monkeypatch.setattr(run, "_made", lambda *given: (20, next(left)))
    assert len(list(run._processes(None, Plan(model="m", processes=2, noise=policy)))) == processes


def test_what_was_made_and_clean_is_counted_from_the_raw_rows(tmp_path):
    """Two processes were asked for and a third was added; every second iteration of each waited. Mutation: the third
    counts as made."""
    (tmp_path / "runtime").mkdir()
    for process in range(3):
        rows = open_new(iterations.path_of(tmp_path, process))
        account = open_new(self_accounting.path_of(tmp_path, process))
        now = waited = 0
        os.write(account, self_accounting.ROW.pack(now, waited, 1, 0, 0, 0, 0, -1, -1))
        for number in range(40):
            lost = 5_000_000 * (number % 2)
            iterations.append(rows, number, 1, now, now + 10_000_000 + lost)
            now, waited = now + 10_000_000 + lost, waited + lost
            os.write(account, self_accounting.ROW.pack(now, waited, 1, 0, 0, 0, 0, -1, -1))
        os.close(rows)
        os.close(account)
    assert run._made(SimpleNamespace(folder=tmp_path), 2) == (80, 60)


def open_new(path):
    return os.open(path, os.O_WRONLY | os.O_CREAT)
