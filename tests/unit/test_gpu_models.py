"""The models of benchmarks.gpu are valid, run on the CPU provider, and are what their names say."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from aaco.runner import zoo
from benchmarks.gpu import _models


def run(path, feed):
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feed)


def test_half_precision_is_the_same_model(tmp_path):
    """Mutation: inputs left in float32, which the checker refuses."""
    whole = zoo.build("resnet18", tmp_path)
    made = _models.half(whole, tmp_path / "half.onnx")
    model = onnx.load(made)
    assert {weight.data_type for weight in model.graph.initializer} == {onnx.TensorProto.FLOAT16}
    assert "Cast" not in {node.op_type for node in model.graph.node}
    assert [one.key for one in model.metadata_props if one.key == zoo.SYNTHETIC]
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float16)
    expected, = run(whole, {"input": x.astype(np.float32)})
    try:
        found, = run(made, {"input": x})
    except ort.capi.onnxruntime_pybind11_state.NotImplemented as reason:
        pytest.skip(f"the CPU provider has no float16 here: {reason}")
    assert found.dtype == np.float16
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


def test_types_in_nodes_are_not_converted(tmp_path):
    with pytest.raises(ValueError, match="mask/Cast has a type of its own"):
        _models.half(zoo.build("bert-tiny", tmp_path), tmp_path / "half.onnx")


def test_fixed_shapes_are_the_same_model(tmp_path):
    named = zoo.build("bert-tiny", tmp_path)
    made = _models.fixed(named, tmp_path / "fixed.onnx", {"batch": 1, "sequence": 128})
    feed = {name: np.ones((1, 128), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    for found, expected in zip(run(made, feed), run(named, feed), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    model = onnx.load(made).graph
    assert not [dim.dim_param for value in (*model.input, *model.output) for dim in value.type.tensor_type.shape.dim
                if dim.dim_param]
    with pytest.raises(KeyError, match="sequence"):
        _models.fixed(named, tmp_path / "fixed.onnx", {"batch": 1})


def test_a_node_in_the_middle_is_the_hosts(tmp_path):
    path = _models.with_host_node(tmp_path / "host.onnx")
    graph = onnx.load(path).graph
    w0, w1 = (onnx.numpy_helper.to_array(weight) for weight in graph.initializer[:2])
    x = np.random.default_rng(1).standard_normal((2, _models.WIDTH, _models.WIDTH)).astype(np.float32)
    hidden = np.maximum(x @ w0, 0)
    scaled = hidden * np.tanh(np.linalg.det(hidden))[:, None, None]
    found, = run(path, {"x": x})
    np.testing.assert_allclose(found, np.maximum(scaled @ w1, 0), rtol=1e-3, atol=1e-4)
    assert [node.op_type for node in graph.node][2] == "Det"
