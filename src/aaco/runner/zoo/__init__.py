"""The model zoo: well-known architectures with synthetic weights, built on first use, no download.

Latency, memory and kernels are those of the architecture; what the model answers is meaningless. Every file says so in
its metadata (`aaco.synthetic_weights`), and so does everything measured from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import onnx

from aaco.core.errors import ModelError, StorageError
from aaco.core.files import write_atomically
from aaco.core.near import meant
from aaco.runner.zoo import bert, builder, gpt2, llama, mobilenet, resnet

# Raise it when the way weights are drawn changes; a changed graph changes the digest by itself.
GENERATOR = 1
SYNTHETIC = "aaco.synthetic_weights"

RECIPES: dict[str, Callable[[], builder.GraphBuilder]] = {
    "resnet18": resnet.resnet18,
    "resnet50": resnet.resnet50,
    "mobilenet-v2": mobilenet.mobilenet_v2,
    "bert-tiny": bert.bert_tiny,
    "bert-base": bert.bert_base,
    "gpt2-tiny": gpt2.gpt2_tiny,
    "gpt2": gpt2.gpt2,
    "llama-tiny": llama.llama_tiny,
}
ALIASES = {"mobilenet": "mobilenet-v2", "mobilenet_v2": "mobilenet-v2", "bert": "bert-base", "resnet-50": "resnet50"}


def recipe_name(name: str) -> str | None:
    """Return the recipe of this name or alias, or None."""
    name = ALIASES.get(name, name)
    return name if name in RECIPES else None


def build(name: str, cache: Path, seed: int = 0) -> Path:
    """Return the .onnx file of a recipe, built under `cache` the first time: <cache>/<name>-<digest>.onnx.

    The digest is over the graph, the laws of its weights, the seed and the generator's version. Weights are inside the
    file. Two processes may build at once: each writes its own temporary file and the last rename wins. Raise ModelError
    for an unknown recipe and StorageError if the disk refuses (nothing is left on it).
    """
    recipe = recipe_name(name)
    if recipe is None:
        raise ModelError(f"no recipe {name!r}{meant(name, [*RECIPES, *ALIASES])}", "aaco models")
    graph = RECIPES[recipe]()
    metadata = {SYNTHETIC: "true", "aaco.recipe": recipe, "aaco.seed": str(seed), "aaco.generator": str(GENERATOR)}
    path = cache / f"{recipe}-{_digest(graph, metadata)}.onnx"
    if not path.is_file():
        onnx.checker.check_model(graph.skeleton(metadata, weights_as_inputs=True), full_check=True)
        _store(path, graph, seed, metadata)
    return path


def _store(path: Path, graph: builder.GraphBuilder, seed: int, metadata: dict[str, str]) -> None:
    try:
        write_atomically(path, lambda file: builder.write(graph, seed, metadata, file))
    except StorageError as error:
        megabytes = sum(weight.size for weight in graph.weights) * 4 / 1e6
        fix = f"free {megabytes:.0f} MB there, or choose another folder: AACO_CACHE_DIR=DIR"
        raise StorageError(error.what, fix) from error


def _digest(graph: builder.GraphBuilder, metadata: dict[str, str]) -> str:
    """Return twelve hex digits that change with anything the file would hold."""
    content = graph.skeleton(metadata).SerializeToString(deterministic=True) + repr(graph.weights).encode()
    return hashlib.sha256(content).hexdigest()[:12]
