"""The zoo against published parameter and operation counts, ONNX Runtime, and plain numpy forward passes."""

from __future__ import annotations

import math
import multiprocessing
import resource
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from scipy.special import erf

from aaco.core.errors import ModelError, StorageError
from aaco.runner import zoo
from aaco.runner.registry import ModelEntry

# Parameters: torchvision's and Hugging Face's model pages; the *-tiny decoders are ours.
PARAMETERS = {"resnet18": 11_689_512, "resnet50": 25_557_032, "mobilenet-v2": 3_504_872, "bert-base": 109_482_240,
              "bert-tiny": 4_385_920, "gpt2": 124_439_808, "gpt2-tiny": 1_052_160, "llama-tiny": 4_868_352}
SMALL = ["resnet18", "resnet50", "mobilenet-v2", "bert-tiny", "gpt2-tiny", "llama-tiny"]
DECODERS = ["gpt2-tiny", "llama-tiny"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def session(cache):
    """A function from recipe to an ONNX Runtime session, built once."""
    kept: dict[str, ort.InferenceSession] = {}

    def of(name: str) -> ort.InferenceSession:
        if name not in kept:
            options = ort.SessionOptions()
            options.intra_op_num_threads = 1
            kept[name] = ort.InferenceSession(str(zoo.build(name, cache)), options, ["CPUExecutionProvider"])
        return kept[name]

    return of


def weights(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def made(cache: Path, name: str, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    from aaco.runner import inputs

    return inputs.for_model(onnx.load(zoo.build(name, cache)), ModelEntry(name=name), batch=batch, seed=seed).arrays


@pytest.mark.parametrize("name", zoo.RECIPES)
def test_parameters_are_those_of_the_original(name):
    graph = zoo.RECIPES[name]()
    running = sum(weight.size for weight in graph.weights if ".running_" in weight.name)  # statistics, not parameters
    assert sum(weight.size for weight in graph.weights) - running == PARAMETERS[name]
    assert sum(weight.size for weight in graph.weights) * 4 < 1.5e9


@pytest.mark.parametrize(("name", "macs"), [("resnet50", 4_089_184_256), ("resnet18", 1_814_073_344),
                                            ("mobilenet-v2", 300_774_272)])
def test_multiply_adds_are_those_of_the_original(cache, name, macs):
    model = onnx.load(zoo.build(name, cache))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
              for value in [*inferred.value_info, *inferred.output]}
    kernels = {tensor.name: tensor.dims for tensor in inferred.initializer}
    counted = sum(math.prod(shapes[node.output[0]]) * math.prod(kernels[node.input[1]][1:])
                  for node in inferred.node if node.op_type in ("Conv", "Gemm"))
    assert counted == macs


@pytest.mark.parametrize("name", SMALL)
def test_runs_on_onnxruntime_with_finite_varied_output(cache, session, name):
    feeds = made(cache, name, batch=2)
    for output in session(name).run(None, feeds):
        assert np.isfinite(output).all()
        assert 0.05 < output.std() < 20
        assert not np.allclose(output[0], output[1]), "different samples must give different answers"
    assert session(name).run(None, made(cache, name, batch=1))[0].shape[0] == 1


@pytest.mark.parametrize("name", SMALL)
def test_file_is_valid_and_says_that_it_is_synthetic(cache, name):
    path = zoo.build(name, cache, seed=0)
    onnx.checker.check_model(str(path), full_check=True)
    properties = {pair.key: pair.value for pair in onnx.load(path).metadata_props}
    assert properties == {"aaco.synthetic_weights": "true", "aaco.recipe": name, "aaco.seed": "0",
                          "aaco.generator": str(zoo.GENERATOR)}


def test_streamed_file_is_what_protobuf_would_write(cache):
    """The hand-written lengths and tags against the protobuf library's own serialisation."""
    path = zoo.build("bert-tiny", cache)
    graph = zoo.RECIPES["bert-tiny"]()
    model = graph.skeleton({pair.key: pair.value for pair in onnx.load(path).metadata_props})
    model.graph.initializer.extend(numpy_helper.from_array(weight.draw(0), weight.name) for weight in graph.weights)
    assert onnx.load(path) == model
    assert path.stat().st_size == model.ByteSize()


def test_same_seed_same_bytes_other_seed_other_file(cache, tmp_path):
    first, again = zoo.build("gpt2-tiny", cache), zoo.build("gpt2-tiny", tmp_path)
    other = zoo.build("gpt2-tiny", tmp_path, seed=1)
    assert first.name == again.name != other.name
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


def test_second_build_is_a_lookup(cache, monkeypatch):
    path = zoo.build("gpt2-tiny", cache)
    monkeypatch.setattr(zoo.builder, "write", None)
    assert zoo.build("gpt2-tiny", cache) == path


def test_a_changed_graph_or_law_is_another_file(monkeypatch, cache):
    before = zoo.build("gpt2-tiny", cache).name
    changed = zoo.RECIPES["gpt2-tiny"]()
    changed.weights[0] = zoo.builder.Weight(changed.weights[0].name, changed.weights[0].shape, std=0.03)
    monkeypatch.setitem(zoo.RECIPES, "gpt2-tiny", lambda: changed)
    assert zoo.build("gpt2-tiny", cache).name != before
    monkeypatch.undo()
    monkeypatch.setattr(zoo, "GENERATOR", zoo.GENERATOR + 1)
    assert zoo.build("gpt2-tiny", cache).name != before


def test_two_processes_may_build_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        paths = pool.starmap(zoo.build, [("bert-tiny", tmp_path)] * 2)
    assert paths[0] == paths[1]
    assert list(tmp_path.iterdir()) == [paths[0]]
    onnx.checker.check_model(str(paths[0]))


def test_a_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # the write of byte 1,000,001 fails for real
    try:
        with pytest.raises(StorageError, match="File too large") as caught:
            zoo.build("bert-tiny", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "18 MB" in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_unknown_recipe_names_the_nearest():
    with pytest.raises(ModelError, match="did you mean 'resnet50'"):
        zoo.build("resnet5", Path("nowhere"))


@pytest.mark.parametrize("name", DECODERS)
def test_a_step_on_the_cache_equals_the_whole_prompt(session, cache, name):
    whole = made(cache, name, batch=2)
    logits, *present = session(name).run(None, whole)
    head = cut(whole, slice(0, 100)) | {"attention_mask": whole["attention_mask"][:, :100]}
    _, *held = session(name).run(None, head)
    rest = cut(whole, slice(100, 128)) | {f"past_key_values.{index // 2}.{('key', 'value')[index % 2]}": array
                                         for index, array in enumerate(held)}
    later, *grown = session(name).run(None, rest)
    np.testing.assert_allclose(later, logits[:, 100:], atol=2e-4)
    for one, other in zip(grown, present, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


@pytest.mark.parametrize("name", DECODERS)
def test_later_tokens_and_hidden_tokens_do_not_matter(session, cache, name):
    feeds = made(cache, name, batch=1)
    changed = feeds | {"input_ids": np.concatenate([feeds["input_ids"][:, :64], feeds["input_ids"][:, 64:] ^ 1], 1)}
    before, after = session(name).run(["logits"], feeds)[0], session(name).run(["logits"], changed)[0]
    np.testing.assert_allclose(before[:, :64], after[:, :64], atol=1e-5)
    assert not np.allclose(before[:, 64:], after[:, 64:], atol=1e-3)
    mask = (np.arange(128) != 5)[None].astype(np.int64)
    hidden, again = (session(name).run(["logits"], one | {"attention_mask": mask})[0] for one in
                     (feeds, feeds | {"input_ids": np.where(np.arange(128) == 5, 7, feeds["input_ids"])}))
    np.testing.assert_allclose(hidden[:, 6:], again[:, 6:], atol=1e-5)


def test_rotary_positions_are_relative(session, cache):
    feeds = made(cache, "llama-tiny", batch=1)
    shifted = feeds | {"position_ids": feeds["position_ids"] + 40}
    stretched = feeds | {"position_ids": feeds["position_ids"] * 3}
    run = session("llama-tiny").run
    np.testing.assert_allclose(run(["logits"], feeds)[0], run(["logits"], shifted)[0], atol=2e-3)
    assert not np.allclose(run(["logits"], feeds)[0], run(["logits"], stretched)[0], atol=0.05)


def test_bert_agrees_with_numpy(session, cache):
    feeds = made(cache, "bert-tiny", batch=2)
    feeds["attention_mask"][1, 90:] = 0
    expected = numpy_bert(weights(zoo.build("bert-tiny", cache)), feeds, layers=2, heads=2)
    for found, wanted in zip(session("bert-tiny").run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_gpt2_agrees_with_numpy(session, cache):
    feeds = made(cache, "gpt2-tiny", batch=2)
    expected = numpy_gpt2(weights(zoo.build("gpt2-tiny", cache)), feeds, layers=2, heads=4)
    np.testing.assert_allclose(session("gpt2-tiny").run(["logits"], feeds)[0], expected, atol=2e-4)


def test_llama_agrees_with_numpy(session, cache):
    feeds = made(cache, "llama-tiny", batch=2)
    expected = numpy_llama(weights(zoo.build("llama-tiny", cache)), feeds, layers=4, heads=8, kv_heads=2)
    np.testing.assert_allclose(session("llama-tiny").run(["logits"], feeds)[0], expected, atol=5e-4)


def test_the_runtime_has_something_to_fuse(cache, tmp_path):
    """BatchNormalization folds into Conv; the written-out Gelu is recognised."""
    for name, gone in (("resnet18", {"BatchNormalization"}), ("bert-tiny", {"Erf"})):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(tmp_path / f"{name}.onnx")
        ort.InferenceSession(str(zoo.build(name, cache)), options, ["CPUExecutionProvider"])
        source = {node.op_type for node in onnx.load(zoo.build(name, cache)).graph.node}
        optimised = {node.op_type for node in onnx.load(tmp_path / f"{name}.onnx").graph.node}
        assert gone <= source
        assert not gone & optimised


def cut(feeds: dict[str, np.ndarray], part: slice) -> dict[str, np.ndarray]:
    """The same inputs with a part of the new tokens only."""
    return feeds | {name: feeds[name][:, part] for name in ("input_ids", "position_ids")}


# Forward passes in float64 numpy, written from the papers' formulas, loops in place of reshapes.


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x, weight, name, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return scaled * weight[f"{name}.weight"] + weight[f"{name}.bias"]


def dense(x, weight, name):
    return x @ weight[f"{name}.weight"].astype(np.float64) + weight.get(f"{name}.bias", 0.0)


def attention(q, k, v, visible, heads, kv_heads):
    """q, k, v are [batch, sequence, heads * width]; head h reads key-value head h // (heads / kv_heads)."""
    width = q.shape[-1] // heads
    outs = []
    for head in range(heads):
        shared = head // (heads // kv_heads)
        one, keys, values = (x[..., at * width:(at + 1) * width] for x, at in ((q, head), (k, shared), (v, shared)))
        scores = one @ np.swapaxes(keys, 1, 2) / math.sqrt(width)
        outs.append(softmax(np.where(visible, scores, -np.inf)) @ values)
    return np.concatenate(outs, -1)


def numpy_bert(w, feeds, layers, heads):
    length = feeds["input_ids"].shape[1]
    x = (w["embeddings.word.weight"][feeds["input_ids"]] + w["embeddings.type.weight"][feeds["token_type_ids"]]
         + w["embeddings.position.weight"][:length]).astype(np.float64)
    x = norm(x, w, "embeddings.norm", 1e-12)
    visible = feeds["attention_mask"][:, None, :] == 1
    for layer in range(layers):
        name = f"layer{layer}"
        q, k, v = (dense(x, w, f"{name}.attention.{part}") for part in ("query", "key", "value"))
        y = dense(attention(q, k, v, visible, heads, heads), w, f"{name}.attention.output")
        x = norm(x + y, w, f"{name}.attention.norm", 1e-12)
        y = dense(x, w, f"{name}.intermediate")
        y = dense(y * 0.5 * (1 + erf(y / math.sqrt(2))), w, f"{name}.output")
        x = norm(x + y, w, f"{name}.output.norm", 1e-12)
    return x, np.tanh(dense(x[:, 0], w, "pooler"))


def numpy_gpt2(w, feeds, layers, heads):
    length = feeds["input_ids"].shape[1]
    x = (w["wte.weight"][feeds["input_ids"]] + w["wpe.weight"][feeds["position_ids"]]).astype(np.float64)
    for layer in range(layers):
        name = f"layer{layer}"
        q, k, v = np.split(dense(norm(x, w, f"{name}.ln_1", 1e-5), w, f"{name}.attn.c_attn"), 3, axis=-1)
        x = x + dense(attention(q, k, v, np.tri(length, dtype=bool), heads, heads), w, f"{name}.attn.c_proj")
        y = dense(norm(x, w, f"{name}.ln_2", 1e-5), w, f"{name}.mlp.c_fc")
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + dense(y, w, f"{name}.mlp.c_proj")
    return norm(x, w, "ln_f", 1e-5) @ w["wte.weight"].T


def numpy_llama(w, feeds, layers, heads, kv_heads):
    def rms(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"]

    def rotate(x, width=32):
        """Each pair (i, i + width / 2) of a head turned by position * 10000**(-2 i / width), as complex numbers."""
        out = np.array(x)
        turn = np.exp(1j * feeds["position_ids"][..., None] * 10000.0 ** (-np.arange(0, width, 2) / width))
        for start in range(0, x.shape[-1], width):
            half = start + width // 2
            turned = (x[..., start:half] + 1j * x[..., half:start + width]) * turn
            out[..., start:half], out[..., half:start + width] = turned.real, turned.imag
        return out

    visible = np.tri(feeds["input_ids"].shape[1], dtype=bool)
    x = w["embed_tokens.weight"][feeds["input_ids"]].astype(np.float64)
    for layer in range(layers):
        name = f"layer{layer}"
        q, k, v = (dense(rms(x, f"{name}.input_norm"), w, f"{name}.attn.{part}") for part in "qkv")
        x = x + dense(attention(rotate(q), rotate(k), v, visible, heads, kv_heads), w, f"{name}.attn.o")
        y = rms(x, f"{name}.mlp_norm")
        gate = dense(y, w, f"{name}.mlp.gate")
        x = x + dense(gate / (1 + np.exp(-gate)) * dense(y, w, f"{name}.mlp.up"), w, f"{name}.mlp.down")
    return dense(rms(x, "norm"), w, "lm_head")
