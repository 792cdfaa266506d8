"""`aaco sweep` on a real model, every number recomputed from the raw rows of the session it names."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from aaco.analytics.graph import graph
from aaco.calibration.card import Ceiling, CeilingConditions, MachineCard
from aaco.core.config import resolve
from aaco.core.session import find
from aaco.runner import model_file
from aaco.tracelake import layout
from aaco.workflows import what_if
from benchmarks.gpu.twin import held_out

BATCHES = (1, 2, 4)


@pytest.fixture(scope="module")
def swept(tmp_path_factory, cache):
    """The folder and the JSON document of one sweep."""
    from tests.system.conftest import Aaco

    made = Aaco(tmp_path_factory.mktemp("swept"), cache)
    done = made.inside("sweep", "bert-tiny", "--batches", "4,1,2", "--slo", 1e6, "--order-seed", 1, "--warmup", 3,
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
    rows = json.loads(made.inside("ls", "--json", "--tag", "sweep").stdout)["sessions"]
    listed = {row["session_id"]: row for row in rows}
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
    text = aaco.inside("sweep", "--model", "bert-tiny", "--batches", "2", "--warmup", 0, "-n", 3, "--slo", 1e-6,
                       "--telemetry", "--plot", "curves.svg").stdout
    drawn = (aaco.folder / "curves.svg").read_text()
    assert drawn.startswith("<svg") and "limit 1e-06 ms" in drawn and "resident set, GB" in drawn
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
    refused = aaco.inside("sweep", "fixed.onnx", "--batches", "1,2", expect=2)
    assert "batch 2: the model fixes it at 1 (no input has a dynamic" in refused.stderr
    assert "batch 2: batch 2" not in refused.stderr and not (aaco.folder / "sessions").exists()


def test_a_batch_that_fails_is_left_out_of_the_curve_and_named(aaco):
    """Mutation: the first failure ends the sweep, and with it what was measured before and would be after."""
    value, floats = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    pairs = onnx.helper.make_tensor("pairs", onnx.TensorProto.INT64, [2], [-1, 6])
    odd = onnx.helper.make_graph([onnx.helper.make_node("Reshape", ["x", "pairs"], ["y"])], "even",
                                 [value("x", floats, ["n", 3])], [value("y", floats, ["half", 6])], [pairs])
    onnx.save(onnx.helper.make_model(odd, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9),
              aaco.folder / "even.onnx")
    words = ("sweep", "even.onnx", "--batches", "1,2,4", "-n", 5, "--order-seed", 0)
    done = aaco.inside(*words, "--json", expect=2)
    document = json.loads(done.stdout)
    assert document["order"] == [1, 4, 2] and [row["batch"] for row in document["points"]] == [2, 4]
    (left,) = document["failed"]
    assert left["batch"] == 1 and left["why"].startswith("batch 1: ") and f"aaco: {left['why']}" in done.stderr
    assert "left out 1" in aaco.inside(*words, expect=2).stdout
    failing = aaco.inside("sweep", "even.onnx", "--batches", "1,3", expect=2)
    assert failing.stdout == "" and failing.stderr.count("  try: ") == 1


def test_too_few_iterations_for_a_median_name_the_batch(aaco):
    assert "batch 1: p50 needs at least 2 iterations" in aaco(
        "sweep", "bert-tiny", "--batches", "1", "-n", 1, "--quiet", expect=2).stderr


def fed(made, row):
    return {item["name"]: item["shape"]
            for item in json.loads((session(made, row) / "runtime/ort_config.json").read_text())["fed"]}


def test_batches_run_at_the_shape_that_was_asked_for(aaco):
    """Mutation: `--shape` taken and not passed on."""
    document = json.loads(aaco.inside("sweep", "bert-tiny", "--shape", "input_ids=1x32", "--batches", "1,2", "--warmup",
                                      0, "-n", 3, "--json", "--quiet").stdout)
    assert [fed(aaco, row)["attention_mask"] for row in document["points"]] == [[1, 32], [2, 32]]


def test_a_sweep_over_the_sequence_runs_each_length_at_one_batch(aaco):
    words = ("sweep", "bert-tiny", "--over", "sequence=16,8", "--batches", "2", "--warmup", 0, "-n", 3, "--quiet")
    document = json.loads(aaco.inside(*words, "--slo", 1e6, "--json").stdout)
    assert [fed(aaco, row)["token_type_ids"] for row in document["points"]] == [[2, 8], [2, 16]]
    assert (document["over"], document["batch"], sorted(document["order"])) == ("sequence", 2, [8, 16])
    small, large = document["points"]
    assert large["growth_per_doubling"] == pytest.approx(large["latency_p50_ms"] / small["latency_p50_ms"])
    assert large["throughput_per_s"] > 0 and document["largest_under_slo"]["value"] == 16
    listed = json.loads(aaco.inside("ls", "--json", "--tag", "sweep-sizes").stdout)["sessions"]
    assert {row["session_id"] for row in listed} == {row["session_id"] for row in document["points"]}
    text = aaco.inside(*words, "--slo", 1e-6).stdout
    assert "over sequence, batch 2" in text and "no size is surely within 1e-06 ms" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("wrong", [("--over", "past=4"), ("--over", "sequence=4", "--batches", "1,2"),
                                   ("--over", "sequence=4", "--plot", "x.svg"), ("--over", "sequence")])
def test_a_sweep_over_what_cannot_be_is_refused_before_anything_runs(aaco, wrong):
    aaco.inside("sweep", "bert-tiny", *wrong, expect=2)
    assert not (aaco.folder / "sessions").exists()


@pytest.mark.parametrize("wrong", [("--batches", "1,zero"), ("--slo", "nan"), ("--slo", "inf"), ("--slo", "0")])
def test_what_makes_no_sense_is_refused(aaco, wrong):
    refused = aaco.inside("sweep", "bert-tiny", *wrong, expect=2).stderr
    assert wrong[0] in refused and wrong[1] in refused


# The twin of the sweep (`aaco what-if`), under roofs that are given: the tests calibrate nothing.
CARD = MachineCard(machine_id="given", ceilings=[
    Ceiling(name=name, value=value, unit=unit, low=value, high=value, samples=3, converged=True, how="given", threads=2,
            conditions=CeilingConditions(cpu_mhz_before=None, cpu_mhz_after=None, load_average=None,
                                         others_cpu_pct=None))
    for name, value, unit in (("fp32_flops", 4e11, "FLOP/s"), ("dram_bytes_per_s", 4e10, "B/s"))])


@pytest.fixture(scope="module")
def carded(swept):
    """The sweep's folder with a card, and the sessions' ids by batch."""
    made, document = swept
    (made.folder / "card.json").write_text(CARD.model_dump_json())
    (made.folder / "twice.json").write_text(CARD.model_copy(update={"ceilings": [
        item.model_copy(update={"value": 2 * item.value, "high": 2 * item.value}) for item in CARD.ceilings]})
        .model_dump_json())
    return made, {row["batch"]: row["session_id"] for row in document["points"]}


def asked(carded, *words, expect=0):
    made, ids = carded
    done = made.inside("what-if", *ids.values(), "--ran-on", "card.json", *words, expect=expect)
    return json.loads(done.stdout) if "--json" in words and not expect else done


def observed(carded):
    made, ids = carded
    return what_if.observe([find(each, made.folder / "sessions") for each in ids.values()], resolve(environment={}),
                          str(made.folder / "card.json"))


def test_the_twin_of_a_sweep_repeats_it_and_holds_out_each_batch(swept, carded):
    document = asked(carded, "--batch", "1,2,3,4,8", "--json")
    known = {row["batch"]: row["latency_p50_ms"] for row in swept[1]["points"]}
    assert [row["batch"] for row in document["predictions"]] == [1, 2, 3, 4, 8]
    for row in document["predictions"]:
        assert row["measured"] is (row["batch"] in known)
        assert row["latency_low_ms"] <= row["latency_ms"] <= row["latency_high_ms"]
        if row["measured"]:
            assert row["latency_ms"] == pytest.approx(known[row["batch"]])
    low, high = sorted((known[2], known[4]))
    assert low <= document["predictions"][2]["latency_ms"] <= high
    errors = [error for error, _ in held_out(observed(carded).twin)]
    assert [one["held_out_error_pct"] / 100 for one in document["measured"]] == pytest.approx(errors)


def test_the_work_of_any_batch_is_that_of_the_graph_at_that_batch(carded):
    """The fixed part and the part per sample, against the model described at a third batch."""
    made, ids = carded
    found = observed(carded).twin.nodes.nodes
    source = model_file.load(next(made.folder.glob(f"sessions/*/{ids[4]}")) / layout.SOURCE_GRAPH, weights=False)
    rows = graph.describe(source, bind=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (7, 128))).nodes
    truth = {row["name"]: (row["flops"], row["bytes"]) for row in rows.to_pylist() if row["flops"] is not None}
    assert len(found) > 50
    for node in found:
        assert tuple(node.at(7)) == pytest.approx(truth[node.name], rel=1e-9), node.name


def test_a_card_of_a_faster_machine_and_a_limit(carded):
    document = asked(carded, "--batch", "4", "--device", "twice.json", "--under", "latency_ms=1e6", "--json")
    here, there = document["predictions"]
    assert there["device"] == "twice" and there["device_roofs"] == "measured"
    assert here["latency_ms"] / 2 * 0.999 <= there["latency_ms"] <= here["latency_ms"]
    assert there["latency_low_ms"] is None and "latency_low_ms" in there["absent"] and there["assumed"]
    assert document["solution"]["best"] == 1 and document["solution"]["nearest"] is None


def test_the_text_says_what_does_not_satisfy_and_what_is_not_known(carded):
    limits = ("--under", "latency_ms=1e-6", "--under", "power_w=9")
    text = asked(carded, *limits, "--precision", "fp16", "--nodes", "3").stdout
    assert "nothing tells one node's time" in " ".join(text.split())
    assert "no choice surely satisfies latency_ms <= 1e-06, power_w <= 9" in " ".join(text.split())
    assert "power_w is not known" in " ".join(text.split()) and "no ceiling of float16" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_the_commands_of_the_page_are_commands(carded):
    """Those of docs/concepts/twin.md, on this sweep and card; the sweep itself is the fixture's."""
    made, _ = carded
    page = (Path(__file__).parents[2] / "docs/concepts/twin.md").read_text()
    sweep, *others = "".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL)).splitlines()
    assert sweep == "aaco sweep bert-tiny --batches 1,2,4" and len(others) == 2
    for line in others:
        assert "samples/s" in made.inside(*shlex.split(line)[1:], "--ran-on", "card.json").stdout


@pytest.mark.parametrize("wrong", [("--batch", "0"), ("--batch", "1,zero"), ("--under", "latency_ms=nan"),
                                   ("--under", "speed=3"), ("--under", "latency_ms=0"), ("--device", "MI30"),
                                   ("--device", "none.json"), ("--batch", 10**30)])
def test_what_the_twin_cannot_be_asked(carded, wrong):
    assert str(wrong[1]).partition("=")[0] in asked(carded, *wrong, expect=(1, 2)).stderr


def test_a_limit_is_given_once(carded):
    """Mutation: the last of two counts, so that a script's looser limit hides the one that was meant."""
    two = ("--under", "latency_ms=1", "--under", "latency_ms=1000")
    assert "has the limit 1 already" in asked(carded, *two, expect=2).stderr


def test_a_damaged_session_beside_those_of_a_tag_is_passed_over(carded):
    """Mutation: every session's record read before it is known to be one of them."""
    made, _ = carded
    strange = made.folder / "sessions/2020-01-01/20200101_000000_abcdef"
    strange.mkdir(parents=True)
    (strange / "session.json").write_text("{")
    try:
        assert "samples/s" in made.inside("what-if", "--tag", "sweep", "--ran-on", "card.json").stdout
    finally:
        shutil.rmtree(strange.parent)


def test_no_twin_without_roofs_or_of_two_models(recorded, carded):
    made, ids = carded
    assert "ceilings have not been measured" in made.inside("what-if", ids[1], expect=2).stderr
    other = recorded.latest
    assert "differ in their model" in made.inside("what-if", ids[1], other, expect=2).stderr
