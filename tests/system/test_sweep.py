"""`aaco sweep` on a real model, every number recomputed from the raw rows of the session it names."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

BATCHES = (1, 2, 4)


@pytest.fixture(scope="module")
def swept(tmp_path_factory, cache):
    """The folder and the JSON document of one sweep."""
    from tests.system.conftest import Aaco

    made = Aaco(tmp_path_factory.mktemp("swept"), cache)
    done = made("sweep", "bert-tiny", "--batches", "4,1,2", "--slo", 1e6, "--order-seed", 1, "--warmup", 3,
                "--iterations", 12, "--processes", 2, "--json", "--quiet")
    assert done.stderr == ""
    return made, json.loads(done.stdout)


def session(made, row):
    found, = made.folder.glob(f"sessions/*/{row['session_id']}")
    return found


def test_every_point_is_recomputed_from_its_sessions_raw_rows(swept):
    made, document = swept
    assert [row["batch"] for row in document["points"]] == list(BATCHES)
    for row in document["points"]:
        files = sorted(session(made, row).glob("runtime/iterations-*.i64"))
        rows = np.concatenate([np.fromfile(file, "<i8").reshape(-1, 4) for file in files])
        taken_ns = (rows[:, 3] - rows[:, 2])[rows[:, 1] == 1]
        assert len(files) == 2 and len(taken_ns) == 24
        assert row["throughput_per_s"] == pytest.approx(1e9 * row["batch"] * len(taken_ns) / taken_ns.sum())
        assert row["latency_p50_ms"] == pytest.approx(np.median(taken_ns) / 1e6)
        assert row["latency_ci_low"] <= row["latency_p50_ms"] <= row["latency_ci_high"]
    rates = [row["throughput_per_s"] for row in document["points"]]
    assert document["points"][2]["gain_per_doubling_pct"] == pytest.approx(100 * (rates[2] / rates[1] - 1))
    shares = rates[1] / rates[0] / 2, rates[2] / rates[0] / 4
    assert document["scaling_efficiency"]["value"] == pytest.approx(sum(shares) / 2)


def test_every_point_is_an_ordinary_session_that_ran_its_batch(swept):
    made, document = swept
    listed = {row["session_id"]: row for row in json.loads(made("ls", "--json", "--tag", "sweep").stdout)["sessions"]}
    assert set(listed) == {row["session_id"] for row in document["points"]}
    for row in document["points"]:
        folder = session(made, row)
        record = json.loads((folder / "session.json").read_text())
        fed = json.loads((folder / "runtime/ort_config.json").read_text())["fed"]
        assert record["status"] == "complete" and record["plan"]["batch"] == row["batch"]
        assert {item["shape"][0] for item in fed} == {row["batch"]}
        assert not record["plan"]["profile"] and not (folder / "profiler/raw").exists()


def test_the_order_is_the_recorded_one(swept):
    made, document = swept
    started = {json.loads((session(made, row) / "session.json").read_text())["created_utc"]: row["batch"]
               for row in document["points"]}
    assert [started[time] for time in sorted(started)] == document["order"]
    assert document["order_seed"] == 1 and document["order"] != list(BATCHES)


def test_the_limit_and_what_a_cpu_does_not_have(swept):
    _, document = swept
    best = max(document["points"], key=lambda row: row["throughput_per_s"])
    assert document["best_under_slo"]["value"] == best["batch"] and best["pareto"]
    assert document["vram_used_bytes"]["value"] is None
    assert document["vram_used_bytes"]["why_absent"] == "the run was made without --telemetry"


def test_the_text_names_batches_sessions_and_reasons(aaco):
    text = aaco("sweep", "--model", "bert-tiny", "--batches", "2", "--warmup", 0, "-n", 3, "--slo", 1e-6).stdout
    assert aaco.latest.name in text and "one batch does not scale" in text
    assert "no batch is surely within 1e-06 ms" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_batch_the_model_refuses_is_named_before_anything_runs(aaco):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "fixed",
                                   [value("x", onnx.TensorProto.FLOAT, [1, 3])],
                                   [value("y", onnx.TensorProto.FLOAT, [1, 3])])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9),
              aaco.folder / "fixed.onnx")
    refused = aaco("sweep", "fixed.onnx", "--batches", "1,2", expect=2)
    assert "batch 2: the model fixes it at 1 (no input has a dynamic" in refused.stderr
    assert "batch 2: batch 2" not in refused.stderr and not (aaco.folder / "sessions").exists()


def test_too_few_iterations_for_a_median_name_the_batch(aaco):
    assert "batch 1: p50 needs at least 2 iterations" in aaco(
        "sweep", "bert-tiny", "--batches", "1", "-n", 1, "--quiet", expect=2).stderr


@pytest.mark.parametrize("wrong", [("--batches", "1,zero"), ("--slo", "nan"), ("--slo", "inf"), ("--slo", "0")])
def test_what_makes_no_sense_is_refused(aaco, wrong):
    refused = aaco("sweep", "bert-tiny", *wrong, expect=2).stderr
    assert wrong[0] in refused and wrong[1] in refused
