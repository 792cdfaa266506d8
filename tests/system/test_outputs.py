"""`aaco outputs` on real sessions: graph optimisation on and off, other precisions, a planted wrong output."""

from __future__ import annotations

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType

from tests import graphs, models
from tests.system.conftest import Aaco

PLAIN = """backends:
  plain: {provider: CPUExecutionProvider, graph_optimization: disable}
"""
QUICK = ("--warmup", 0, "--iterations", 2, "--quiet")


@pytest.fixture(scope="module")
def made(tmp_path_factory, cache):
    """Sessions by name: two models on the CPU, with and without graph optimisation."""
    aaco = Aaco(tmp_path_factory.mktemp("outputs"), cache)
    (aaco.folder / "configs").mkdir()
    (aaco.folder / "configs/backends.yaml").write_text(PLAIN)
    found = {}
    onnx.save(graphs.resnet(), aaco.folder / "resnet.onnx")
    for name, model, backend in (("resnet", "resnet.onnx", "cpu"), 
                                 ("resnet plain", "resnet.onnx", "plain"), ("bert", "bert-tiny", "cpu"),
                                 ("bert plain", "bert-tiny", "plain")):
        aaco.inside("run", model, "--backend", backend, *QUICK)
        found[name] = aaco.latest
    return aaco, found


def compared(aaco, first, second, *more, expect=0):
    return json.loads(aaco.inside("outputs", first, second, "--json", *more, expect=expect).stdout)


def test_two_runs_of_the_same_are_equal(products):
    aaco, found = products
    answer = compared(aaco, found["right"], found["again"])
    assert answer["status"] == "equal" and answer["outputs"][0]["mismatches"] == 0


@pytest.mark.parametrize(("model", "computed"), [("resnet", ["float32"]), ("bert", ["float32"])])
def test_without_graph_optimisation_the_outputs_are_close(made, model, computed):
    """Independent: numpy over the two files."""
    aaco, found = made
    first, second = found[model], found[f"{model} plain"]
    answer = compared(aaco, first, second)
    assert answer["status"] == "close", answer
    assert answer["expected"]["computed_in"] == computed and answer["actual"]["graph_optimization"] == "disable"
    with np.load(first / "runtime/outputs.npz") as left, np.load(second / "runtime/outputs.npz") as right:
        for index, row in enumerate(answer["outputs"]):
            gap = np.abs(left[f"output_{index}"].astype(float) - right[f"output_{index}"])
            assert row["max_abs"] == pytest.approx(gap.max(), rel=1e-12) and row["compared"] == gap.size
    assert any(row["max_abs"] > 0 for row in answer["outputs"])
    assert "CLOSE" in aaco.inside("outputs", first, second).stdout
    assert compared(aaco, first, second, "--rtol", 0, "--atol", 0, expect=3)["status"] == "different"


def test_graph_optimisation_off_executes_what_was_written(made):
    """Mutations: the option reaches the record and not the runtime, or the graphs that are kept are optimised."""
    aaco, found = made
    counts = {}
    for name in ("resnet", "resnet plain"):
        readings = json.loads(aaco.inside("report", found[name], "--format", "json").stdout)["readings"]
        counts[name] = readings["source_amplification_ratio"]["value"]
        assert readings["kernel_amplification_ratio"]["value"] == 1.0
    assert counts["resnet"] < 0.7 and counts["resnet plain"] == 1.0 and readings["attributed_pct"]["value"] == 100


def planted(path, factor):
    """A product whose weight is `factor` times what it should be."""
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) * np.float32(factor)
    return models.save(path, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
                       [("x", ["batch", 64])], [("y", ["batch", 64])], [numpy_helper.from_array(weight, "w")])


@pytest.fixture(scope="module")
def products(tmp_path_factory, cache):
    """One product run as it should be, twice and with another seed, and once with a wrong weight."""
    aaco = Aaco(tmp_path_factory.mktemp("products"), cache)
    found = {}
    for name, factor, seed in (("right", 1.0, 0), ("wrong", 1.02, 0), ("seed 1", 1.0, 1), ("again", 1.0, 0)):
        aaco.inside("run", planted(aaco.folder / "m.onnx", factor), "--seed", seed, "--no-profile", *QUICK)
        found[name] = aaco.latest
    return aaco, found


def test_a_planted_wrong_output_is_found(products):
    """Mutation: only shape and type compared."""
    aaco, found = products
    refused = aaco.inside("outputs", found["right"], found["wrong"], expect=2).stderr
    assert "model" in refused and "--force" in refused
    answer = compared(aaco, found["right"], found["wrong"], "--force", expect=3)
    assert answer["status"] == "different" and answer["outputs"][0]["mismatches"] > 50
    assert "DIFFERENT" in aaco.inside("outputs", found["right"], found["wrong"], "--force", expect=3).stdout


def test_other_inputs_are_refused(products):
    aaco, found = products
    assert "inputs x" in aaco.inside("outputs", found["right"], found["seed 1"], expect=2).stderr
    assert compared(aaco, found["right"], found["seed 1"], "--force", expect=3)["status"] == "different"


def test_a_baseline_stands_for_its_last_session(products):
    aaco, found = products
    aaco.inside("baseline", "save", "kept", found["right"])
    assert compared(aaco, "kept", "latest")["status"] == "equal"
    assert "64 of 64 elements kept" in aaco.inside("report").stdout


def test_a_damaged_bundle_is_refused(products):
    aaco, found = products
    shutil.copytree(found["right"], aaco.folder / "copy")
    (aaco.folder / "copy/runtime/outputs.npz").write_bytes(b"nothing")
    assert "changed since it was written" in aaco.inside("outputs", found["right"], "copy", expect=2).stderr


def in_half(path):
    """The same product in float16, between casts."""
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float16)
    nodes = [helper.make_node("Cast", ["x"], ["h"], name="down", to=TensorProto.FLOAT16),
             helper.make_node("MatMul", ["h", "w"], ["z"], name="product"),
             helper.make_node("Cast", ["z"], ["y"], name="up", to=TensorProto.FLOAT)]
    return models.save(path, nodes, [("x", ["batch", 64])], [("y", ["batch", 64])],
                       [numpy_helper.from_array(weight, "w")])


def test_float16_and_8_bit_get_the_tolerance_they_computed_in(aaco):
    """Mutation: the tolerance of the outputs' float32 for all."""
    planted(aaco.folder / "full.onnx", 1.0)
    in_half(aaco.folder / "half.onnx")
    for name in ("full", "half"):
        aaco.inside("run", f"{name}.onnx", "--no-profile", *QUICK)
        aaco.latest.rename(aaco.folder / name)
    answer = compared(aaco, "full", "half", "--force")
    assert answer["status"] == "close" and answer["outputs"][0]["precision"] == "float16"
    assert answer["actual"]["computed_in"][0] == "float16" and answer["expected"]["computed_in"] == ["float32"]
    graphs.quantised(aaco.folder, QuantType.QUInt8)
    for name in ("float", "qdq"):
        aaco.inside("run", f"{name}.onnx", *QUICK)
        aaco.latest.rename(aaco.folder / name)
    answer = compared(aaco, "float", "qdq", "--force")
    assert answer["status"] == "close" and answer["outputs"][0]["precision"] == "int8", answer
    assert compared(aaco, "float", "qdq", "--force", "--precision", "float32", expect=3)["status"] == "different"


def test_what_has_no_outputs_says_so(aaco):
    aaco.inside("profile", "--runs", 1, "--warmup", 0, "--", "true")
    assert "a command's" in aaco.inside("outputs", "latest", "latest", expect=2).stderr


def test_numbers_that_are_not_finite_are_said(aaco):
    onnx.save(helper.make_model(helper.make_graph(
        [helper.make_node("Log", ["x"], ["y"], name="log")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 40])]),
        opset_imports=[helper.make_opsetid("", 20)], ir_version=10), aaco.folder / "log.onnx")
    aaco.inside("run", "log.onnx", "--no-profile", *QUICK)
    assert "NOT FINITE" in aaco.inside("report").stdout
