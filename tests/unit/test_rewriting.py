"""ONNX Runtime's tools that write a model anew: what they leave of its outputs, and what is said where they fail."""

from __future__ import annotations

import hashlib
import os
from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from aaco.core.errors import AacoError, Missing, ModelError, UsageError
from aaco.governance import agreement
from aaco.optimize import rewriting
from aaco.runner import inputs, model_file, zoo
from aaco.runner.registry import ModelEntry
from aaco.tracelake.outputs import Output
from tests import models

# What each rewrite brings in: element types of tensors, or operators.
BRINGS = {"float16": {TensorProto.FLOAT16}, "dynamic_int8": {"MatMulInteger", TensorProto.INT8},
          "transformers": {"SkipLayerNormalization"}}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("zoo")


def content(path) -> Counter:
    model = model_file.load(path)
    return Counter(node.op_type for node in model.graph.node) + Counter(
        tensor.data_type for tensor in model_file.tensors(model))


def computed(path, arrays) -> list[Output]:
    """Return all elements of all outputs."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [Output(item.name, str(values.dtype), values.shape, values.size, None, None, values.reshape(-1))
            for item, values in zip(session.get_outputs(), session.run(None, arrays), strict=True)]


@pytest.mark.parametrize("name, precisions", [("float16", ("float16",)), ("dynamic_int8", ("int8",)),
                                              ("transformers", ())])
@pytest.mark.parametrize("model", ["bert-tiny", "gpt2-tiny", "resnet18"])
def test_outputs_agree_within_the_precision(model, name, precisions, cache, tmp_path):
    """The rewrite brings in what it is for; the user's file, and the folder that it lies in, stay as they are.

    Mutations: the source saved unchanged; the target written next to the source.
    """
    source, target = zoo.build(model, cache), tmp_path / "out.onnx"
    before = hashlib.sha256(source.read_bytes()).digest(), source.stat().st_mtime_ns, sorted(cache.iterdir())
    if (model, name) == ("resnet18", "transformers"):
        with pytest.raises(ModelError, match="sees nothing in it to change"):
            rewriting.rewrite(name, source, target)
        assert not list(tmp_path.iterdir())
        return
    rewriting.rewrite(name, source, target)
    assert before == (hashlib.sha256(source.read_bytes()).digest(), source.stat().st_mtime_ns,
                      sorted(cache.iterdir()))
    assert list(tmp_path.iterdir()) == [target]
    assert content(target).keys() - content(source).keys() >= BRINGS[name]
    assert model_file.metadata(target).items() >= model_file.metadata(source).items()
    arrays = inputs.for_model(onnx.load(source), ModelEntry(name="it"), seed=3).arrays
    expected, actual = computed(source, arrays), computed(target, arrays)
    assert [(one.name, one.dtype, one.shape) for one in expected] == [(one.name, one.dtype, one.shape)
                                                                      for one in actual]
    found = agreement.agree(expected, actual, precisions)
    assert agreement.overall(found) in ("equal", "close"), found


def test_nothing_to_change_is_no_other_model(tmp_path):
    """Mutation: the same model counts as another."""
    source = models.eight_bit(tmp_path / "eight.onnx")
    with pytest.raises(ModelError, match="sees nothing in it to change"):
        rewriting.rewrite("dynamic_int8", source, tmp_path / "out.onnx")
    assert list(tmp_path.iterdir()) == [source]


def test_weights_in_files_of_their_own_are_taken_along(tmp_path):
    """Mutation: the graph alone loaded."""
    whole = onnx.load(models.chain(tmp_path / "whole.onnx"))
    (tmp_path / "user").mkdir()
    source, target = tmp_path / "user" / "m.onnx", tmp_path / "out.onnx"
    onnx.save(whole, source, save_as_external_data=True, location="m.data", size_threshold=0)
    rewriting.rewrite("dynamic_int8", source, target)
    data = {"x": np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)}
    found = agreement.agree(computed(source, data), computed(target, data), ("int8",))
    assert agreement.overall(found) == "close" and len(list(source.parent.iterdir())) == 2


def test_an_unknown_rewrite(tmp_path):
    with pytest.raises(UsageError, match="no rewrite 'int4'"):
        rewriting.rewrite("int4", tmp_path / "m.onnx", tmp_path / "out.onnx")


@pytest.mark.parametrize("name", rewriting.REWRITES)
def test_a_file_that_is_no_model(name, tmp_path):
    """The error of the process comes back as it was raised there. Mutation: its exit code alone."""
    source = tmp_path / "m.onnx"
    source.write_text("no model")
    with pytest.raises(ModelError, match=r"m\.onnx: not an ONNX file") as raised:
        rewriting.rewrite(name, source, tmp_path / "out.onnx")
    assert raised.value.fix and list(tmp_path.iterdir()) == [source]


def test_a_tool_that_takes_too_long_is_ended(tmp_path):
    """Mutation: no limit of time; what it had written is left behind."""
    source = models.chain(tmp_path / "m.onnx")
    with pytest.raises(AacoError, match=r"had not ended after 0\.05 s"):
        rewriting.rewrite("float16", source, tmp_path / "out.onnx", timeout_s=0.05)
    assert list(tmp_path.iterdir()) == [source]


def test_a_model_beyond_a_message_is_refused(tmp_path, monkeypatch):
    """Mutation: external data not counted."""
    source = tmp_path / "m.onnx"
    onnx.save(onnx.load(models.chain(tmp_path / "whole.onnx")), source, save_as_external_data=True, location="m.data",
              size_threshold=0)
    monkeypatch.setattr(rewriting, "MOST_BYTES", source.stat().st_size + 100)
    with pytest.raises(ModelError, match="in one protobuf message, of at most 2 GB"):
        rewriting.REWRITES["float16"](source, tmp_path / "out.onnx")


@pytest.fixture
def instead(tmp_path, monkeypatch):
    """Put a module of these lines before the installed one of its name."""
    def put(module: str, lines: str) -> None:
        folder = tmp_path / "modules"
        folder.mkdir()
        (folder / f"{module}.py").write_text(lines)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    return put


def test_a_package_that_the_tool_lacks_is_named_with_its_extra(tmp_path, cache, instead):
    """Mutation: the tool's own message, which names no command."""
    instead("sympy", "raise ModuleNotFoundError(\"No module named 'sympy'\", name='sympy')")
    with pytest.raises(Missing, match="needs sympy, which is not installed") as raised:
        rewriting.rewrite("transformers", zoo.build("bert-tiny", cache), tmp_path / "out.onnx")
    assert raised.value.fix.endswith("# aaco[optimize]")


@pytest.mark.parametrize("lines, how", [
    ("raise RuntimeError('a defect')", r"ended with exit code 1 on .*: RuntimeError: a defect"),
    ("import os; os.abort()", "was killed by SIGABRT")])
def test_a_tool_that_fails_in_another_way(tmp_path, cache, instead, lines, how):
    """Mutation: a process that ended without an error in words taken for one that is done."""
    instead("sympy", lines)
    with pytest.raises(AacoError, match=how):
        rewriting.rewrite("transformers", zoo.build("bert-tiny", cache), tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
