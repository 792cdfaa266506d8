"""A decoder in ONNX as a folder that onnxruntime-genai loads: the model, and a configuration that its graph gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import onnx

from aaco.core import files
from aaco.core.errors import ModelError, UsageError
from aaco.llm.decoders import IDS, LOGITS, MASK, PAST, POSITIONS, PRESENT
from aaco.runner import model_file

CONFIG = "genai_config.json"
MOST_CONTEXT = 1 << 17  # tokens, of a model without a table of positions
PADDING, FIRST, LAST = 0, 1, 2  # tokens: no prompt made here holds the first, and none ends an answer
PARTS, CACHE_AXES = ("key", "value"), 4  # [batch, heads, past, width]


def write(path: Path, folder: Path) -> None:
    """Write a model file, and the files of its weights, as a folder. Raise ModelError, UsageError, StorageError."""
    model = model_file.load(path, weights=False)
    config = config_of(path, model)
    with files.storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder}: not empty", "a new folder")
        for name in model_file.identity(path, model).files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path.parent / name, folder / name)
    files.write_json(folder / CONFIG, config)  # last: without it the folder is none


def config_of(path: Path, model: onnx.ModelProto) -> dict[str, Any]:
    """Return genai_config.json of a decoder that takes and gives its cache as past_key_values.* and present.*.

    Raise ModelError for another model.
    """
    inputs, outputs = ({tensor.name: _sizes(tensor) for tensor in tensors}
                       for tensors in (model.graph.input, model.graph.output))
    layers = max(1, sum(name.startswith(PAST) for name in inputs) // len(PARTS))
    caches = [f"{layer}.{part}" for layer in range(layers) for part in PARTS]
    for there, names in ((inputs, (IDS, MASK, *(PAST + cache for cache in caches))),
                         (outputs, (LOGITS, *(PRESENT + cache for cache in caches)))):
        for name in names:
            if name not in there:
                raise ModelError(f"{path}: no decoder with a key-value cache: it has no {name}",
                                 "aaco models has some: llama-tiny, gpt2")
    (*_, vocabulary), cache, context = (0, *outputs[LOGITS]), inputs[PAST + caches[0]], _positions(model.graph)
    if not vocabulary or len(cache) != CACHE_AXES or not (cache[1] and cache[3]):
        raise ModelError(f"{path}: the sizes of its vocabulary and its cache are not fixed", "export it with them")
    fed = {IDS: IDS, MASK: MASK, **({POSITIONS: POSITIONS} if POSITIONS in inputs else {})}
    return {"model": {
        "type": "llama", "bos_token_id": FIRST, "eos_token_id": LAST, "pad_token_id": PADDING,
        "context_length": context, "vocab_size": vocabulary, "decoder": {
            "filename": path.name, "head_size": cache[3], "num_key_value_heads": cache[1], "num_hidden_layers": layers,
            "session_options": {"provider_options": []},
            "inputs": fed | {f"past_{part}_names": f"{PAST}%d.{part}" for part in PARTS},
            "outputs": {LOGITS: LOGITS, **{f"present_{part}_names": f"{PRESENT}%d.{part}" for part in PARTS}}}},
        "search": {"max_length": context, "past_present_share_buffer": False}}


def _sizes(tensor: onnx.ValueInfoProto) -> list[int]:
    """Return the sizes of a tensor; 0 for one that is open."""
    return [size.dim_value for size in tensor.type.tensor_type.shape.dim]


def _positions(graph: onnx.GraphProto) -> int:
    """Return how many positions a model has: those of its table, where it has one."""
    tables = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    return min((tables[node.input[0]] for node in graph.node
                if node.op_type == "Gather" and node.input[1] == POSITIONS and node.input[0] in tables),
               default=MOST_CONTEXT)
