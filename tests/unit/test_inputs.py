"""Inputs: the size of every dimension, the values of every role, and what a user may give."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aaco.core.errors import ModelError, UsageError
from aaco.runner import inputs, model_file, zoo
from aaco.runner.dimensions import InputSpec, resized, resolve
from aaco.runner.registry import InputEntry, ModelEntry


def make_inputs(specs, **asked):
    return inputs.make_inputs(specs, **asked).arrays


BERT = [InputSpec("input_ids", "int64", ("batch", "sequence")),
        InputSpec("attention_mask", "int64", ("batch", "sequence"))]
# As Hugging Face's exporter names the inputs of a decoder.
DECODER = [InputSpec("input_ids", "int64", ("batch_size", "sequence_length")),
           InputSpec("attention_mask", "int64", ("batch_size", "past_sequence_length + sequence_length")),
           InputSpec("position_ids", "int64", ("batch_size", "sequence_length")),
           InputSpec("past_key_values.0.key", "float32", ("batch_size", 4, "past_sequence_length", 8)),
           InputSpec("past_key_values.0.value", "float32", ("batch_size", 4, "past_sequence_length", 8))]


def sizes(specs, **asked) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in make_inputs(specs, **asked).items()}


@pytest.mark.parametrize(("shape", "batch", "expected"), [
    (("batch", 3, 224, 224), 8, (8, 3, 224, 224)),
    (("N", 3, "height", "width"), 2, (2, 3, 224, 224)),
    ((None, 3, None, None), 2, (2, 3, 224, 224)),
    (("unk__12", 3, "h", "w"), 2, (2, 3, 224, 224)),
    (("batch", "seq_len", 768), 2, (2, 128, 768)),
    (("batch", "seq-len"), 2, (2, 128)),
    (("sequence", "batch", 16), 2, (128, 2, 16)),
    (("2*batch", 5), 3, (6, 5)),
    (("batch", "sequence // 4"), 1, (1, 32)),
    (("batch", "sequence - 1"), 1, (1, 127)),
    (("batch", "points"), 2, (2, 128)),
    (("b", "n", 3), 2, (2, 128, 3)),
    ((1, 3), 1, (1, 3)),
    ((4, 3), 4, (4, 3)),
    ((), 1, ()),
])
def test_dynamic_dimensions(shape, batch, expected):
    assert sizes([InputSpec("x", "float32", shape)], batch=batch)["x"] == expected


@pytest.mark.parametrize(("shapes", "asked", "batch", "fixed"), [
    ([(8, 3, 32, 32)], {}, 8, True), ([(8, 3), (8,), (8, 1)], {}, 8, True), ([(1, 3)], {}, 1, True),
    ([(16000,)], {}, 1, False), ([()], {}, 1, False), ([("batch", 3)], {}, 1, False),
    ([("batch", 3), (100, 4)], {}, 1, False), ([(1, 128), (100, 4)], {}, 1, False),
    ([("batch", 3)], {"shapes": {"x0": [4, 3]}}, 4, False), ([("batch", 3)], {"shapes": {"x0": [1, 3]}}, 1, False),
    ([("batch", 3)], {"arrays": {"x0": np.zeros((6, 3), np.float32)}}, 6, False),
    ([("batch", 3)], {"defaults": {"x0": [2, 3]}}, 2, False), ([(8, 3)], {"batch": 8}, 8, True),
    ([(4, 3), (2, 3)], {"batch": 1}, 1, False), ([(4, 3), (2, 3)], {"batch": 2}, 2, False),
])
def test_the_batch_is_what_is_run(shapes, asked, batch, fixed):
    """Mutations: 1 whatever the model fixes; the first dimension of a vector taken for a batch."""
    specs = [InputSpec(f"x{index}", "float32", shape) for index, shape in enumerate(shapes)]
    found = inputs.make_inputs(specs, **asked)
    assert (found.batch, found.fixed) == (batch, fixed)


@pytest.mark.parametrize(("shapes", "asked", "says"), [
    ([(8, 3, 32, 32)], {"batch": 1}, "batch 1: the model fixes it at 8"),
    ([(8, 3, 32, 32)], {"batch": 4}, "batch 4: the model fixes it at 8"),
    ([(4, 3), (2, 3)], {}, "the batch could be 2 or 4"), ([(4, 3), (2, 3)], {"batch": 3}, "no input has a dynamic"),
])
def test_a_batch_that_is_not_run_is_refused(shapes, asked, says):
    """Mutation: --batch 1 taken as said, so that the throughput is too low by the model's own batch."""
    with pytest.raises(UsageError, match=says) as caught:
        inputs.make_inputs([InputSpec(f"x{index}", "float32", shape) for index, shape in enumerate(shapes)], **asked)
    assert "--batch" in caught.value.fix


@pytest.mark.parametrize(("shape", "asked"), [
    (("n", 16), {"shapes": {"x": [0, 16]}}), (("n", 16), {"arrays": {"x": np.zeros((0, 16), np.float32)}}),
    ((0, 16), {}), ((2, "width"), {"shapes": {"x": [2, 0]}})])
def test_an_input_that_holds_nothing_is_refused(shape, asked):
    """Mutation: only the batch looked at."""
    with pytest.raises(UsageError, match=r"holds nothing: dimension \d is 0"):
        make_inputs([InputSpec("x", "float32", shape)], **asked)


def test_an_empty_cache_is_fed():
    """A decoder begins with one, whatever the exporter calls it. Mutation: every zero refused."""
    empty = np.zeros((1, 4, 0, 8), np.float32)
    fed = make_inputs(DECODER, arrays={"past_key_values.0.key": empty, "past_key_values.0.value": empty})
    assert fed["past_key_values.0.key"].shape == empty.shape
    for spec in (InputSpec("state", "float32", ("batch", 4, "past_sequence_length", 8)),
                 InputSpec("past_key_values.0.key", "float32", (1, 4, 0, 8))):
        assert make_inputs([spec], arrays={spec.name: empty})[spec.name].shape == empty.shape


def test_one_symbol_is_one_size():
    found = sizes(BERT, batch=4, shapes={"input_ids": [1, 64]})
    assert found == {"input_ids": (4, 64), "attention_mask": (4, 64)}


def test_unnamed_dimensions_follow_the_named_one():
    specs = [BERT[0], InputSpec("attention_mask", "int64", (None, None))]
    assert sizes(specs, batch=2, shapes={"input_ids": [1, 64]})["attention_mask"] == (2, 64)


@pytest.mark.parametrize(("name", "sequence", "past"), [
    ("sequence", 5, 64), ("sequence_length", 5, 64), ("past", 1, 5), ("past_sequence_length", 1, 5)])
def test_a_dimension_is_resized_by_its_name_or_what_it_is(name, sequence, past):
    """The others stay, the mask of both follows. Mutation: the first input with the symbol, whose total is asked, too.
    """
    fed = sizes(DECODER, batch=2, shapes={"input_ids": [1, 1], "past_key_values.0.key": [1, 4, 64, 8]})
    found = sizes(DECODER, batch=2, shapes={"input_ids": [1, 1], "past_key_values.0.key": [1, 4, 64, 8]}
                  | resized(DECODER, fed, name, 5))
    assert found["input_ids"] == (2, sequence) and found["past_key_values.0.value"] == (2, 4, past, 8)
    assert found["attention_mask"] == (2, past + sequence)
    both = [InputSpec("mask", "float32", ("batch_size", 1, "sequence_length", "total")), *DECODER]
    assert "mask" not in resized(both, {"mask": (2, 1, 1, 65)} | fed, "sequence", 5)
    images = [InputSpec("x", "float32", ("batch", 3, "height", "width"))]
    assert resized(images, {"x": (4, 3, 224, 224)}, "pixels", 96) == {"x": [4, 3, 96, 96]}
    assert resized(images, {"x": (4, 3, 224, 224)}, "width", 96) == {"x": [4, 3, 224, 96]}


@pytest.mark.parametrize("name", ["batch_size", "batch", "past_sequence_length + sequence_length", "pixels", ""])
def test_a_dimension_that_is_not_there_is_not_resized(name):
    with pytest.raises(UsageError, match="no dynamic dimension is named"):
        resized(DECODER, sizes(DECODER), name, 5)


@pytest.mark.parametrize(("shapes", "sequence", "past"), [
    ({}, 128, 0),
    ({"input_ids": [1, 1], "past_key_values.0.key": [1, 4, 64, 8]}, 1, 64),
    ({"input_ids": [1, 1], "attention_mask": [1, 65]}, 1, 64),  # a total without a cache length decides it
    ({"input_ids": [1, 16], "attention_mask": [1, 16]}, 16, 0),
])
def test_the_mask_of_a_decoder_covers_cache_and_new_tokens(shapes, sequence, past):
    made = make_inputs(DECODER, batch=2, shapes=shapes)
    assert made["input_ids"].shape == made["position_ids"].shape == (2, sequence)
    assert made["attention_mask"].shape == (2, past + sequence)
    assert made["past_key_values.0.value"].shape == (2, 4, past, 8)
    np.testing.assert_array_equal(made["position_ids"], np.tile(np.arange(past, past + sequence), (2, 1)))


def test_a_decoder_without_names_or_with_a_named_total():
    unnamed = [InputSpec(spec.name, spec.dtype, tuple(size if isinstance(size, int) else None for size in spec.shape))
               for spec in DECODER]
    named = [DECODER[0], InputSpec("attention_mask", "int64", ("batch_size", "total_sequence_length")), *DECODER[2:]]
    for specs in (unnamed, named):
        found = sizes(specs, batch=2, shapes={"input_ids": [1, 3], "past_key_values.0.key": [1, 4, 7, 8]})
        assert found["attention_mask"] == (2, 10)
        assert found["past_key_values.0.value"] == (2, 4, 7, 8)


def test_old_exports_where_the_step_is_one_token():
    specs = [InputSpec("input_ids", "int64", ("batch", 1)),
             InputSpec("attention_mask", "int64", ("batch", "past_sequence + 1")), InputSpec(
                 "past_key_values.0.key", "float32", ("batch", 4, "past_sequence", 8))]
    assert sizes(specs, batch=2)["attention_mask"] == (2, 1)
    assert sizes(specs, batch=2, shapes={"attention_mask": [2, 9]})["past_key_values.0.key"] == (2, 4, 8, 8)


@pytest.mark.parametrize(("asked", "says"), [
    ({"shapes": {"input_ids": [1, 64], "attention_mask": [1, 32]}}, "is 32, elsewhere it is 64"),
    ({"shapes": {"ids": [1, 64]}}, "has no input 'ids'"),
    ({"shapes": {"input_ids": [64]}}, r"input_ids is \[64\], the model takes input_ids int64\[batch, sequence\]"),
    ({"shapes": {"input_ids": [1, -5]}}, "input_ids is"),
    ({"shapes": {"input_ids": [8, 64]}, "batch": 1}, "is 8, the batch is 1"),
    ({"arrays": {"input_ids": np.zeros((4, 9), np.int64)}, "batch": 1}, "is 4, the batch is 1"),
    ({"arrays": {"input_ids": np.zeros((1, 9), np.int64)}, "batch": 4}, "is 1, the batch is 4"),
    ({"arrays": {"input_ids": np.zeros((1, 9), np.int32)}}, r"input_ids is int32\[1, 9\], the model takes"),
    ({"arrays": {"input_ids": np.zeros(9, np.int64)}}, r"input_ids is \[9\], the model takes"),
    ({"arrays": {"inptu_ids": np.zeros((1, 9), np.int64)}}, "has no input 'inptu_ids'"),
    ({"arrays": {"input_ids": np.full((1, 9), 50, np.int64)}, "vocabulary": {"input_ids": 50}}, "table has 50 rows"),
    ({"arrays": {"input_ids": np.zeros((1, 9), np.int64)}, "shapes": {"input_ids": [1, 8]}}, "elsewhere it is 9"),
])
def test_what_cannot_be_is_said(asked, says):
    with pytest.raises(UsageError, match=says) as caught:
        make_inputs(BERT, **asked)
    assert caught.value.fix


def test_fixed_dimensions_stay():
    image = [InputSpec("input", "float32", ("batch", 3, 224, 224))]
    with pytest.raises(UsageError, match=r"input is \[1, 3, 299, 299\], the model takes"):
        make_inputs(image, shapes={"input": [1, 3, 299, 299]})
    with pytest.raises(UsageError, match="no input has a dynamic batch"):
        make_inputs([InputSpec("input", "float32", (1, 3, 224, 224))], batch=8)


@pytest.mark.parametrize("length", [10**13, 10**30])
def test_a_shape_beyond_memory_is_refused(length):
    for spec in (InputSpec("x", "float32", ("b", "n")), InputSpec("mask", "bool", ("b", "n")),
                 InputSpec("position_ids", "int64", ("b", "n"))):
        with pytest.raises(UsageError, match="cannot be held in memory"):
            make_inputs([spec], shapes={spec.name: [1, length]})


def test_a_mask_of_the_wrong_total_is_refused():
    with pytest.raises(UsageError, match=r"must be 128 to agree .* not 5"):
        make_inputs(DECODER, shapes={"attention_mask": [1, 5]})


def test_defaults_give_way():
    defaults = {"input_ids": [1, 99], "attention_mask": [1, 99]}
    assert sizes(BERT, defaults=defaults)["attention_mask"] == (1, 99)
    assert sizes(BERT, defaults=defaults, shapes={"input_ids": [1, 64]})["attention_mask"] == (1, 64)
    arrays = {"input_ids": np.zeros((1, 7), np.int64)}
    assert sizes(BERT, defaults=defaults, arrays=arrays)["attention_mask"] == (1, 7)
    assert sizes(BERT, defaults={"input_ids": ["batch", None]})["attention_mask"] == (1, 128)
    decoder = {"input_ids": [1, 128], "attention_mask": [1, 128]}
    found = sizes(DECODER, defaults=decoder, shapes={"input_ids": [1, 1], "past_key_values.0.key": [1, 4, 64, 8]})
    assert found["attention_mask"] == (1, 65)


@pytest.mark.parametrize(("spec", "expected"), [
    (InputSpec("attention_mask", "int64", ("b", 6)), 1),
    (InputSpec("attention_mask", "bool", ("b", 6)), True),
    (InputSpec("attention_mask", "float32", ("b", 6)), 1.0),  # multiplies
    (InputSpec("attention_mask", "float16", ("b", 1, 6, 6)), 0.0),  # is added
    (InputSpec("key_padding_mask", "bool", ("b", 6)), False),  # True hides
])
def test_masks_hide_nothing(spec, expected):
    made = make_inputs([spec])[spec.name]
    assert made.dtype == spec.dtype
    assert (made == expected).all()


def test_values_lie_in_range():
    specs = [InputSpec("ids", "int32", ("batch", 5000)), InputSpec("level", "uint8", ("batch", 5000)),
             InputSpec("flag", "bool", ("batch", 5000)), InputSpec("image", "float32", ("batch", 50000)),
             InputSpec("big", "int8", ("batch", 5000))]
    made = make_inputs(specs, vocabulary={"ids": 7, "big": 10_000})
    assert set(made["ids"].flat) == set(range(7))
    assert (made["level"].min(), made["level"].max()) == (0, 99)
    assert set(made["flag"].flat) == {False, True}
    assert made["big"].min() >= 0 and made["big"].max() == 127
    assert abs(made["image"].mean()) < 0.02 and abs(made["image"].std() - 1) < 0.02


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint16", "uint64", "bool"])
def test_every_type_is_what_was_declared(dtype):
    made = make_inputs([InputSpec("x", dtype, (2, 3))])["x"]
    assert made.dtype.name == dtype
    assert made.shape == (2, 3)


def test_text_cannot_be_made_up_but_given():
    text = [InputSpec("text", "string", ("batch",))]
    with pytest.raises(ModelError, match="cannot be made up"):
        make_inputs(text)
    assert make_inputs(text, arrays={"text": np.array(["hello"])})["text"].tolist() == ["hello"]


def test_positions_beyond_their_table_are_refused():
    with pytest.raises(UsageError, match=r"0\.\.127, its table has 100 rows"):
        make_inputs(DECODER, vocabulary={"position_ids": 100})


def test_merged_decoders_learn_whether_the_cache_holds_something():
    specs = [*DECODER, InputSpec("use_cache_branch", "bool", (1,))]
    assert make_inputs(specs)["use_cache_branch"].tolist() == [False]
    assert make_inputs(specs, shapes={"past_key_values.0.key": [1, 4, 2, 8]})["use_cache_branch"].tolist() == [True]


def test_same_seed_same_bytes_whatever_stands_beside():
    one, again, other = make_inputs(BERT, seed=5), make_inputs(BERT[:1], seed=5), make_inputs(BERT, seed=6)
    assert one["input_ids"].tobytes() == again["input_ids"].tobytes() != other["input_ids"].tobytes()


def test_division_by_an_empty_dimension_is_refused():
    specs = [InputSpec("x", "float32", ("batch", "sequence // past")),
             InputSpec("past", "float32", ("batch", "past"))]
    with pytest.raises(UsageError, match="divides by a size of 0"):
        resolve(specs, 1, [])


def lookup_model(*nodes: onnx.NodeProto, table: int = 50) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(np.zeros((table, 4), np.float32), "table"),
               numpy_helper.from_array(np.zeros((table + 9, 4), np.float32), "wide"),
               numpy_helper.from_array(np.array([1], np.int64), "axes")]
    graph = helper.make_graph(list(nodes), "g", [helper.make_tensor_value_info("ids", TensorProto.INT32, ["n"])], [],
                              weights)
    return helper.make_model(graph)


def test_vocabulary_is_found_through_casts_in_subgraphs_and_as_the_smallest():
    cast = helper.make_node("Cast", ["ids"], ["wide_ids"], to=TensorProto.INT64)
    flat = helper.make_node("Unsqueeze", ["wide_ids", "axes"], ["column"])
    half = helper.make_node("Cast", ["table"], ["half"], to=TensorProto.FLOAT16)
    look = helper.make_node("Gather", ["half", "column"], ["y"])
    wide = helper.make_node("Gather", ["wide", "ids"], ["z"])
    assert inputs.vocabulary(lookup_model(cast, flat, half, look, wide)) == {"ids": 50}
    assert inputs.vocabulary(lookup_model(wide)) == {"ids": 59}
    body = helper.make_graph([look], "body", [], [])
    branch = helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=body)
    assert inputs.vocabulary(lookup_model(cast, flat, half, branch)) == {"ids": 50}


def test_vocabulary_ignores_other_lookups():
    columns = helper.make_node("Gather", ["table", "ids"], ["y"], axis=1)
    data = helper.make_node("Gather", ["ids", "axes"], ["z"])
    circle = [helper.make_node("Cast", ["a"], ["b"], to=1), helper.make_node("Cast", ["b"], ["a"], to=1),
              helper.make_node("Gather", ["table", "a"], ["w"])]
    assert inputs.vocabulary(lookup_model(columns, data, *circle)) == {}


def test_vocabulary_of_fused_embeddings_and_of_stripped_models(tmp_path):
    fused = helper.make_node("EmbedLayerNormalization", ["ids", "", "table", "wide"], ["y"], domain="com.microsoft")
    assert inputs.vocabulary(lookup_model(fused)) == {"ids": 50}
    model = model_file.load(zoo.build("bert-tiny", tmp_path))
    assert inputs.vocabulary(model_file.strip_weights(model)) == {"input_ids": 30522, "token_type_ids": 2}


def test_specs_are_what_onnxruntime_asks_for(tmp_path):
    path = zoo.build("gpt2-tiny", tmp_path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    types = {"tensor(float)": "float32", "tensor(int64)": "int64"}
    assert inputs.specs(onnx.load(path)) == [
        InputSpec(item.name, types[item.type], tuple(item.shape)) for item in session.get_inputs()]


def test_weights_listed_as_inputs_are_not_inputs():
    model = lookup_model()
    model.graph.input.append(helper.make_tensor_value_info("table", TensorProto.FLOAT, [50, 4]))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert inputs.specs(model) == [InputSpec("ids", "int32", (None,))]
    model.graph.input.append(helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, [1]))
    with pytest.raises(ModelError, match="'list' is not a tensor of known rank"):
        inputs.specs(model)


@pytest.mark.parametrize(("dtype", "accepted"), [("float32", True), (None, True), ("float16", False), ("int64", True),
                                                 ("int32", False)])
def test_an_entrys_type_must_be_the_models(dtype, accepted):
    entry = ModelEntry(name="m", dtype=dtype)
    if accepted:
        inputs.check_types(DECODER, entry)
        return
    with pytest.raises(ModelError, match=f"m: the entry says dtype {dtype}, the model takes input_ids int64"):
        inputs.check_types(DECODER, entry)


def test_a_float_type_for_a_model_of_integers_is_refused():
    with pytest.raises(ModelError, match="dtype float16"):
        inputs.check_types(BERT, ModelEntry(name="bert", dtype="float16"))
    listed = ModelEntry(name="bert", inputs=(InputEntry(name="input_ids", shape=(1, 8), dtype="int32"),))
    with pytest.raises(ModelError, match="the entry says input_ids is int32"):
        inputs.check_types(BERT, listed)


def test_npz_of_the_user_reaches_the_model(tmp_path):
    model = onnx.load(zoo.build("gpt2-tiny", tmp_path))
    np.savez(tmp_path / "x.npz", input_ids=np.array([[1, 2, 3]]))
    made = inputs.for_model(model, ModelEntry(name="gpt2-tiny"), npz=tmp_path / "x.npz").arrays
    assert made["input_ids"].tolist() == [[1, 2, 3]]
    assert made["attention_mask"].shape == (1, 3)
    np.savez(tmp_path / "bad.npz", input_ids=np.array([[1, 2, 4096]]))
    with pytest.raises(UsageError, match=r"1\.\.4096, its table has 4096 rows"):
        inputs.for_model(model, ModelEntry(name="gpt2-tiny"), npz=tmp_path / "bad.npz")


def test_bfloat16_survives_numpys_file_format(tmp_path):
    array = np.array([[1.5, 2.5]], np.dtype("bfloat16"))
    np.savez(tmp_path / "x.npz", x=array)
    made = make_inputs([InputSpec("x", "bfloat16", ("batch", 2))], arrays=inputs.read_npz(tmp_path / "x.npz"))
    assert made["x"].dtype.name == "bfloat16"
    np.testing.assert_array_equal(made["x"], array)


class Boom:
    """Would run code when unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("/tmp/aaco-pickle-was-run"),)


def bad_npz(folder: Path, kind: str) -> Path:
    path = folder / "x.npz"
    np.savez(path, x=np.zeros(1000))
    whole = path.read_bytes()
    match kind:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not a zip")
        case "cut":
            path.write_bytes(whole[:500])
        case "damaged":
            path.write_bytes(whole[:400] + b"\xff" * 16 + whole[416:])
        case "object":
            np.savez(path, x=np.array([Boom()], dtype=object))
        case "pickle":
            path.write_bytes(pickle.dumps(Boom()))
        case "single":
            with path.open("wb") as file:
                np.save(file, np.zeros(3))
        case "folder":
            path.unlink()
            path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["missing", "empty", "text", "cut", "damaged", "object", "pickle", "single", "folder"])
def test_bad_npz_files_are_refused(tmp_path, kind):
    with pytest.raises(UsageError, match=r"x\.npz") as caught:
        inputs.read_npz(bad_npz(tmp_path, kind))
    assert "numpy.savez" in caught.value.fix
    assert not Path("/tmp/aaco-pickle-was-run").exists()
