"""The registries: packaged entries, both dialects, overlays, bad files, and from a name to a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import yaml

from aaco.core.errors import Exit, Missing, ModelError, UsageError
from aaco.runner import inputs, model_file, registry, zoo
from aaco.runner.registry import BackendEntry, InputEntry, ModelEntry

CONFIGS = Path(__file__).parents[2] / "configs"

MISSION_MODELS = """
models:
  resnet50:
    path: "models/resnet50.onnx"
    input_shapes:
      input: [1, 3, 224, 224]
    dtype: float16
    warmup: 10
    iterations: 100
  bert-base:
    path: "models/bert-base.onnx"
    input_shapes:
      input_ids: [1, 128]
      attention_mask: [1, 128]
    dtype: int64
    warmup: 5
    iterations: 50
"""
MISSION_BACKENDS = """
backends:
  migraphx:
    provider: "MIGraphXExecutionProvider"
    device_id: 0
    fp16_enable: true
  cpu:
    provider: "CPUExecutionProvider"
    intra_op_threads: 4
    inter_op_threads: 2
"""


def written(folder: Path, text: str, name: str = "models.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_packaged_models_name_every_recipe_and_fit_it(tmp_path):
    entries = registry.models()
    assert {zoo.recipe_name(entry.zoo) for entry in entries.values()} == set(zoo.RECIPES)
    for entry in entries.values():
        graph = zoo.RECIPES[zoo.recipe_name(entry.zoo)]()
        model = graph.skeleton({})
        arrays = inputs.for_model(model, entry, batch=2).arrays
        assert all(arrays[name].shape[1:] == shape[1:] for name, shape in entry.shapes.items())


def test_the_missions_models_file(tmp_path):
    entries = registry.models([written(tmp_path, MISSION_MODELS)])
    assert entries["resnet50"] == ModelEntry(
        name="resnet50", path="models/resnet50.onnx", inputs=(InputEntry(name="input", shape=(1, 3, 224, 224)),),
        dtype="float16", warmup=10, iterations=100)
    assert entries["bert-base"].shapes == {"input_ids": (1, 128), "attention_mask": (1, 128)}
    assert entries["gpt2"] == registry.models()["gpt2"]


def test_float16_is_not_converted_silently(tmp_path, here):
    entries = registry.models([written(tmp_path, MISSION_MODELS)])
    found = registry.resolve_model("resnet50", entries, tmp_path)
    assert found.synthetic
    with pytest.raises(ModelError, match=r"dtype float16, the model takes input float32\[batch, 3, 224, 224\]"):
        inputs.for_model(model_file.load(found.path), found.entry)


def test_the_two_dialects_mean_the_same(tmp_path):
    shapes = "models: {m: {input_shapes: {a: [1, 8], b: [n, -1]}}}"
    listed = "models: {m: {inputs: [{name: a, shape: [1, 8]}, {name: b, shape: [n, -1]}]}}"
    one, other = (registry.models([written(tmp_path, text)])["m"] for text in (shapes, listed))
    assert one == other
    assert one.shapes == {"a": (1, 8), "b": ("n", None)}
    typed = registry.models([written(tmp_path, "models: {m: {inputs: [{name: a, shape: [1], dtype: int64}]}}")])["m"]
    assert typed.inputs[0].dtype == "int64"


def test_later_files_replace_whole_entries_and_absent_files_are_skipped(tmp_path):
    first = written(tmp_path, "models: {gpt2: {warmup: 1, iterations: 7}, mine: {path: a.onnx}}", "1.yaml")
    second = written(tmp_path, "models: {gpt2: {warmup: 2}}", "2.yaml")
    entries = registry.models([first, tmp_path / "absent.yaml", second])
    assert entries["gpt2"] == ModelEntry(name="gpt2", warmup=2)
    assert entries["mine"].path == "a.onnx"
    assert registry.models([written(tmp_path, "models:\n")]) == registry.models() == registry.models(
        [written(tmp_path, "")])


@pytest.mark.parametrize("name", ["models", "backends"])
def test_the_documented_examples_load(name):
    text = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    entries = getattr(registry, name)([CONFIGS / f"{name}.yaml"])
    assert text[name].keys() <= entries.keys()


def test_the_documented_models_fit_the_zoo(tmp_path, here):
    entries = registry.models([CONFIGS / "models.yaml"])
    for name in ("resnet50", "bert-base"):
        graph = zoo.RECIPES[name]().skeleton({})
        assert inputs.for_model(graph, entries[name], batch=3).arrays.popitem()[1].shape[0] == 3


@pytest.mark.parametrize(("text", "says", "fix"), [
    ("models: {m: {pth: a.onnx}}", "m.pth: Extra inputs", "did you mean 'path'?"),
    ("models: {m: {input_shape: {x: [1]}}}", "m.input_shape: Extra", "did you mean 'input_shapes'?"),
    ("models: {m: {zzz: 1}}", "m.zzz", "keys: name, path"),
    ("models: {m: {inputs: [{name: x, shpe: [1]}]}}", "m.inputs.0.shpe: Extra", "did you mean 'shape'?"),
    ("models: {m: {iterations: 0}}", "m.iterations: Input should be greater", ""),
    ("models: {m: {iterations: many}}", "m.iterations", ""),
    ("models: {m: {dtype: float61}}", "m.dtype", ""),
    ("models: {m: {input_shapes: {x: [1.5]}}}", "m.inputs.0.shape", ""),
    ("models: {m: {input_shapes: {x: [-2]}}}", "m.inputs.0.shape", ""),
    ("models: {m: {input_shapes: [1, 2]}}", "input_shapes must be a map", ""),
    ("models: {m: {input_shapes: {x: [1]}, inputs: []}}", "not both", ""),
    ("models: {m: a.onnx}", "m must map keys to values", "path"),
    ("models: [a, b]", "models must map names", "models: {name"),
    ("models: {1: {path: a}}", "models must map names", ""),
    ("model: {m: {}}", "expected one key 'models', found 'model'", "models: {name"),
    ("models: {}\nextra: 1", "expected one key 'models'", ""),
    ("- a", "found list", ""),
    ("models: {m: [", "not valid YAML", ""),
    ("models: !!python/object/apply:os.system ['true']", "not valid YAML", ""),
])
def test_bad_model_files_name_the_file_the_key_and_the_fix(tmp_path, text, says, fix):
    with pytest.raises(UsageError) as caught:
        registry.models([written(tmp_path, text)])
    assert str(tmp_path / "models.yaml") in caught.value.what
    assert says in caught.value.what
    assert fix in caught.value.fix and caught.value.fix


def test_unreadable_files(tmp_path):
    (tmp_path / "models.yaml").write_bytes(b"models: \xff\xfe")
    for path in (tmp_path / "models.yaml", tmp_path):
        with pytest.raises(UsageError):
            registry.models([path])


def test_the_missions_backends_file(tmp_path):
    entries = registry.backends([written(tmp_path, MISSION_BACKENDS)])
    assert entries["migraphx"].provider_options == {"device_id": "0", "migraphx_fp16_enable": "True"}
    assert entries["cpu"].session_options == {"intra_op_num_threads": 4, "inter_op_num_threads": 2}
    assert entries["cpu"].provider_options == {}


def test_switches_inside_and_beside_options_are_the_same(tmp_path):
    beside = "backends: {b: {provider: TensorrtExecutionProvider, fp16_enable: true, options: {trt_dla_core: 1}}}"
    inside = "backends: {b: {provider: TensorrtExecutionProvider, options: {trt_dla_core: 1, fp16_enable: true}}}"
    one, other = (registry.backends([written(tmp_path, text)])["b"] for text in (beside, inside))
    assert one == other
    assert one.provider_options == {"trt_dla_core": "1", "trt_fp16_enable": "True"}


@pytest.mark.parametrize(("text", "says", "fix"), [
    ("{provider: CPUExecutionProvider, fp16_enable: true}", "CPUExecutionProvider has no fp16_enable", ""),
    ("{provider: CUDAExecutionProvider, fp8_enable: true}", "CUDAExecutionProvider has no fp8_enable", ""),
    ("{provider: CPUExecutionProvider, device_id: 0}", "takes no device_id", ""),
    ("{provider: CPU}", "b.provider", ""),
    ("{device_id: 0}", "b.provider: Field required", ""),
    ("{provider: CPUExecutionProvider, intra_threads: 2}", "b.intra_threads", "did you mean 'intra_op_threads'?"),
    ("{provider: CPUExecutionProvider, fp16_enabled: true}", "b.fp16_enabled", "did you mean 'fp16_enable'?"),
    ("{provider: CPUExecutionProvider, intra_op_threads: -1}", "b.intra_op_threads", ""),
    ("{provider: CPUExecutionProvider, options: [1]}", "b.options", ""),
])
def test_bad_backend_entries(tmp_path, text, says, fix):
    with pytest.raises(UsageError) as caught:
        registry.backends([written(tmp_path, f"backends: {{b: {text}}}")])
    assert says in caught.value.what
    assert fix in caught.value.fix


def test_packaged_backends_are_known_to_onnxruntime_and_ordered():
    entries = registry.backends()
    assert list(entries) == ["migraphx", "tensorrt", "cuda", "openvino", "cpu", "rocm"]
    for entry in entries.values():
        assert (entry.provider in ort.get_all_providers()) != bool(entry.retired)
        assert entry.install
    import tomllib

    extras = tomllib.loads((CONFIGS.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {entry.extra for entry in entries.values() if entry.extra} <= extras.keys()


def test_unknown_and_retired_backends():
    entries = registry.backends()
    assert registry.backend("cpu", entries).provider == "CPUExecutionProvider"
    with pytest.raises(UsageError, match="no backend 'cpuu'") as unknown:
        registry.backend("cpuu", entries)
    assert "migraphx, tensorrt, cuda, openvino, cpu" in unknown.value.fix
    with pytest.raises(Missing, match=r"removed from ONNX Runtime after 1\.22") as retired:
        registry.backend("rocm", entries)
    assert "--backend migraphx" in retired.value.fix and retired.value.exit_code == Exit.MISSING


def test_backend_options_are_taken_by_onnxruntime(tmp_path):
    entry = BackendEntry(name="cpu", provider="CPUExecutionProvider", intra_op_threads=1, inter_op_threads=1)
    options = ort.SessionOptions()
    for name, value in entry.session_options.items():
        assert hasattr(options, name)
        setattr(options, name, value)
    session = ort.InferenceSession(str(zoo.build("gpt2-tiny", tmp_path)), options, [entry.provider],
                                   [entry.provider_options])
    assert session.get_session_options().intra_op_num_threads == 1


def test_a_registered_file_that_exists_is_used(tmp_path, here):
    (here / "models").mkdir()
    onnx.save(zoo.RECIPES["gpt2-tiny"]().skeleton({}), here / "models/own.onnx")
    entries = registry.models([written(here, "models: {gpt2-tiny: {path: models/own.onnx, warmup: 3}}")])
    path, entry, synthetic = registry.resolve_model("gpt2-tiny", entries, here / "cache")
    assert (path, entry.warmup, synthetic) == (Path("models/own.onnx"), 3, False)
    assert not (here / "cache").exists()


@pytest.mark.parametrize("name", ["gpt2-tiny", "small"])
def test_without_its_file_the_zoo_builds_it(here, name):
    entries = registry.models([written(here, f"models: {{{name}: {{path: gone.onnx, zoo: gpt2-tiny, warmup: 3}}}}")])
    found = registry.resolve_model(name, entries, here / "cache")
    assert found.path == zoo.build("gpt2-tiny", here / "cache")
    assert found.synthetic and found.entry.warmup == 3


def test_aliases_and_seeds(here):
    found = registry.resolve_model("mobilenet_v2", registry.models(), here)
    assert found.path.name.startswith("mobilenet-v2-") and found.synthetic
    one, other = (registry.resolve_model("gpt2-tiny", registry.models(), here, seed=seed).path for seed in (0, 1))
    assert one != other


def test_a_path_is_taken_as_it_is_and_synthetic_files_stay_synthetic(here):
    built = zoo.build("gpt2-tiny", here / "cache").rename(here / "mine.onnx")
    found = registry.resolve_model("mine.onnx", registry.models(), here / "cache")
    assert found == (Path("mine.onnx"), ModelEntry(name="mine"), True)
    onnx.save(zoo.RECIPES["gpt2-tiny"]().skeleton({}), built)
    assert not registry.resolve_model(str(built), registry.models(), here).synthetic


@pytest.mark.parametrize(("name", "says"), [
    ("restnet50", "no model 'restnet50'; did you mean 'resnet50'"),
    ("gone/model.onnx", "gone/model.onnx: no such file"),
    ("gone.onnx", "gone.onnx: no such file"),
    ("zzz", r"no model 'zzz'\n"),
    ("mine", "model 'mine': gone.onnx does not exist"),
    ("odd", "no recipe 'resnet49'; did you mean 'resnet"),
])
def test_unknown_models(here, name, says):
    entries = registry.models([written(here, "models: {mine: {path: gone.onnx}, odd: {zoo: resnet49}}")])
    with pytest.raises(ModelError, match=says) as caught:
        registry.resolve_model(name, entries, here / "cache")
    assert caught.value.fix


def test_a_folder_of_the_models_name_does_not_shadow_it(here):
    (here / "gpt2-tiny").mkdir()
    assert registry.resolve_model("gpt2-tiny", registry.models(), here / "cache").synthetic


def test_the_whole_road_runs(here):
    """A name, through registry, zoo and inputs, into ONNX Runtime, as the runner does it."""
    found = registry.resolve_model("llama-tiny", registry.models(), here)
    fed = inputs.for_model(model_file.load(found.path, weights=False), found.entry, batch=2, seed=3,
                           shapes={"input_ids": [1, 1], "past_key_values.0.key": [1, 2, 64, 32]})
    session = ort.InferenceSession(str(found.path), providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], fed.arrays)[0]
    assert logits.shape == (2, 1, 4096) and np.isfinite(logits).all()
