"""Small ONNX models for tests, and a real ONNX Runtime profile of one."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


def chain(path: Path, depth: int = 4, width: int = 64) -> Path:
    """MatMul + Relu, `depth` times, on an input of shape [batch, width]."""
    rng = np.random.default_rng(0)
    weights, nodes, tensor = [], [], "x"
    for index in range(depth):
        values = rng.normal(0, width**-0.5, (width, width)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [tensor, f"w{index}"], [f"m{index}"], name=f"matmul{index}"))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"], name=f"relu{index}"))
        tensor = f"r{index}"
    return save(path, nodes, [("x", ["batch", width])], [(tensor, ["batch", width])], weights)


def loop(path: Path, trips: int = 3) -> Path:
    """A Loop whose body adds 1, so that control flow contains other nodes."""
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "one"], ["next"], name="body_add"),
         helper.make_node("Identity", ["going"], ["still"], name="body_go")], "body",
        [helper.make_tensor_value_info("trip", TensorProto.INT64, []),
         helper.make_tensor_value_info("going", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", TensorProto.FLOAT, [1])])
    constants = [one, numpy_helper.from_array(np.array(trips), "trips"),
                 numpy_helper.from_array(np.array(True), "true")]
    nodes = [helper.make_node("Loop", ["trips", "true", "x"], ["y"], name="loop", body=body)]
    return save(path, nodes, [("x", [1])], [("y", [1])], constants)


def eight_bit(path: Path, width: int = 256) -> Path:
    """A MatMul of float32 data that is quantised on the way: nearly all its time is an 8-bit product."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.integers(-9, 9, (width, width)).astype(np.int8), "w"),
               numpy_helper.from_array(np.zeros((), np.int8), "zero")]
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "point"], name="quantize"),
             helper.make_node("MatMulInteger", ["q", "w", "point", "zero"], ["sums"], name="product"),
             helper.make_node("Cast", ["sums"], ["y"], name="cast", to=TensorProto.FLOAT)]
    return save(path, nodes, [("x", ["batch", width])], [("y", ["batch", width])], weights)


def save(path, nodes, inputs, outputs, weights, opset=20):
    graph = helper.make_graph(nodes, path.stem, [_float(*item) for item in inputs], [_float(*item) for item in outputs],
                              weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def profile(model: Path, feed: dict[str, np.ndarray], runs: int) -> tuple[Path, int]:
    """A profile written by ONNX Runtime itself, and the realtime clock at its start."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(model.with_suffix(""))
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    for _ in range(runs):
        session.run(None, feed)
    start = session.get_profiling_start_time_ns()
    return Path(session.end_profiling()), start


def _float(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
