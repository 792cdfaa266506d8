"""`--custom-op` of every verb that runs a model: an operator that a library brings, built here by the C compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx import helper as make

from tests.system.conftest import Aaco

SOURCE = Path(__file__).parents[1] / "custom_ops" / "twice.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        assert os.environ.get("CI") != "true", "CI needs a C compiler"
        pytest.skip("no C compiler")
    built = tmp_path_factory.mktemp("ops") / "libtwice.so"
    subprocess.run([compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", built, SOURCE], check=True)
    return built


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")
    nodes = [make.make_node("MatMul", ["x", "w"], ["a"], name="product"),
             make.make_node("Twice", ["a"], ["y"], name="doubled", domain="local.ops")]
    ends = [make.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in ("x", "y")]
    graph = make.make_graph(nodes, "g", ends[:1], ends[1:], [weights])
    opsets = [make.make_opsetid("", 17), make.make_opsetid("local.ops", 1)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "twice.onnx")
    return tmp_path / "twice.onnx"


def test_a_library_of_custom_operators(aaco: Aaco, model: Path, library: Path):
    """Its nodes are timed, and their work is said to be unknown, once. Mutation: the library is not registered."""
    done = aaco.inside("run", model, "--custom-op", library, "--iterations", 3, "--warmup", 1, "--full")
    text = " ".join(done.stdout.split())
    assert text.count("custom operators are opaque") == 1 and "local.ops:Twice (1 node)" in text
    query = "SELECT kernel_name k, count(*) > 0 ran, sum(dur_ns) IS NOT NULL timed FROM kernels GROUP BY 1 ORDER BY 1"
    assert json.loads(aaco.inside("sql", query, "--json").stdout)["rows"] == [
        ["MatMul", True, True], ["Twice", True, True]]
    kept = json.loads((aaco.latest / "runtime" / "ort_config.json").read_text())["custom_ops"]
    assert [Path(entry["path"]).name for entry in kept] == ["libtwice.so"] and len(kept[0]["sha256"]) == 64


def test_what_is_no_library_is_refused_with_the_way_on(aaco: Aaco, model: Path, tmp_path: Path):
    """Without the library the option is named; a missing one is refused before a session begins."""
    assert "--custom-op LIB" in aaco.inside("run", model, "--iterations", 1, expect=5).stderr
    assert "no such file" in aaco.inside("run", model, "--custom-op", tmp_path / "none.so", expect=2).stderr
    (tmp_path / "text.so").write_text("no library")
    refused = aaco.inside("run", model, "--custom-op", tmp_path / "text.so", "--iterations", 1, expect=2).stderr
    assert "cannot register it" in refused and "Traceback" not in refused


def test_the_other_verbs_that_run_a_model_take_it_too(aaco: Aaco, model: Path, library: Path, tmp_path: Path):
    """A sweep, a comparison that can be done again as it says, and a suite. Mutation: the suite keeps it to itself."""
    few = ("--custom-op", library, "--processes", 2, "--warmup", 1)
    swept = aaco.inside("sweep", model, *few, "--batches", 4, "--iterations", 3, "--json")
    assert [point["batch"] for point in json.loads(swept.stdout)["points"]] == [4]
    compared = aaco.inside("compare", model, "--option-b", "intra_op_threads=1", *few, "--pairs", 3, "--no-controls",
                           "--json", expect=(0, 3, 4))
    assert f"--custom-op {library}" in json.loads(compared.stdout)["reproduce_command"]
    assert "--custom-op LIB" in aaco.inside("compare", model, "--option-b", "intra_op_threads=1", expect=5).stderr
    suite = tmp_path / "aaco-ci.yaml"
    benchmark = {"name": "twice", "model": str(model), "custom_ops": [str(library)], "processes": 1, "iterations": 3}
    suite.write_text(json.dumps({"schema_version": 1, "benchmarks": [benchmark]}))
    aaco.inside("ci", suite)
    kept = json.loads((aaco.latest / "runtime" / "ort_config.json").read_text())["custom_ops"]
    assert [Path(entry["path"]).name for entry in kept] == ["libtwice.so"]
    suite.write_text(json.dumps({"benchmarks": [{"name": "t", "command": ["true"], "custom_ops": [str(library)]}]}))
    assert "custom_ops are libraries of a model" in aaco.inside("ci", suite, expect=2).stderr
