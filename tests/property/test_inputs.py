"""Whatever a model declares, the inputs made for it are accepted by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from aaco.runner import inputs
from aaco.runner.dimensions import InputSpec
from aaco.runner.registry import ModelEntry

KINDS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
         "bfloat16": TensorProto.BFLOAT16, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8,
         "int32": TensorProto.INT32, "int64": TensorProto.INT64, "uint16": TensorProto.UINT16, "bool": TensorProto.BOOL}
NAMES = ["input", "input_ids", "attention_mask", "position_ids", "past_key_values.0.key", "pixel_mask", "cache", "x.1"]
SYMBOLS = ["batch", "N", "sequence", "past_sequence", "total_sequence", "past_sequence + sequence", "height", "s0",
           "2*batch", "seq-len"]
shapes = st.lists(st.one_of(st.integers(1, 3), st.sampled_from(SYMBOLS), st.none()), max_size=3).map(tuple)
models = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(sorted(KINDS)), shapes), min_size=1, max_size=4,
                  unique_by=lambda item: item[0]).map(lambda items: [InputSpec(*item) for item in items])


def unsaid(specs):
    """Leave out models whose inputs begin with different sizes: which of them is the batch must then be said."""
    leading = {spec.shape[0] for spec in specs if len(spec.shape) > 1 and isinstance(spec.shape[0], int)}
    assume(len(leading) < 2 or 1 in leading or any("batch" in str(size) for spec in specs for size in spec.shape))


def identity_model(specs):
    values = [helper.make_tensor_value_info(spec.name, KINDS[spec.dtype], spec.shape) for spec in specs]
    outs = [helper.make_tensor_value_info(f"{spec.name}.out", KINDS[spec.dtype], spec.shape) for spec in specs]
    nodes = [helper.make_node("Identity", [spec.name], [f"{spec.name}.out"]) for spec in specs]
    return helper.make_model(helper.make_graph(nodes, "g", values, outs), ir_version=8,
                             opset_imports=[helper.make_opsetid("", 17)])


def feed(specs, arrays):
    return {spec.name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(arrays[spec.name]).reshape(
        arrays[spec.name].shape), KINDS[spec.dtype]) for spec in specs}


@settings(max_examples=150, deadline=None)
@given(models, st.integers(0, 2**32))
def test_made_inputs_are_accepted_by_onnxruntime(specs, seed):
    unsaid(specs)
    model = identity_model(specs)
    arrays = inputs.for_model(model, ModelEntry(name="m"), seed=seed).arrays
    assert inputs.specs(model) == specs
    assert {name: array.dtype.name for name, array in arrays.items()} == {spec.name: spec.dtype for spec in specs}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run_with_ort_values(None, feed(specs, arrays))
    for result, spec in zip(results, specs, strict=True):
        assert tuple(result.shape()) == arrays[spec.name].shape


@settings(max_examples=200, deadline=None)
@given(models, st.integers(0, 2**32))
def test_dimensions_are_consistent_and_values_repeat(specs, seed):
    unsaid(specs)
    arrays, again = (inputs.make_inputs(specs, seed=seed).arrays for _ in range(2))
    seen: dict[str, int] = {}
    for spec in specs:
        assert arrays[spec.name].tobytes() == again[spec.name].tobytes()
        for declared, size in zip(spec.shape, arrays[spec.name].shape, strict=True):
            if isinstance(declared, int):
                assert size == declared
            elif declared is not None:
                assert seen.setdefault(declared, size) == size


@settings(max_examples=100, deadline=None)
@given(models, st.integers(0, 2**32))
def test_made_inputs_may_be_given_back(specs, seed):
    """What was made, given as the user's arrays, is taken as it is: the two roads have one set of rules."""
    unsaid(specs)
    arrays = inputs.make_inputs(specs, seed=seed).arrays
    again = inputs.make_inputs(specs, seed=seed + 1, arrays=arrays).arrays
    assert all(again[name] is array for name, array in arrays.items())
