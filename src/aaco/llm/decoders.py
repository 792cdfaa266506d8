"""Decoders in this process: a model with a key-value cache in ONNX Runtime, and onnxruntime-genai.

Tokens are chosen greedily and no token ends an answer, so that lengths are those of the request.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from aaco.core.arrays import Ints
from aaco.core.errors import ModelError, UsageError
from aaco.core.providers import CPU, MEMORY
from aaco.runner import provider
from aaco.runner.job import Job

IDS, MASK, POSITIONS, LOGITS, PAST, PRESENT = (
    "input_ids", "attention_mask", "position_ids", "logits", "past_key_values.", "present.")
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
SHORTER = "shorter prompts or answers, or fewer at once: --prompt-tokens, --max-tokens, --batch"


class Decoder(Protocol):
    """A model that continues a batch of prompts by one token at a time."""

    engine: str
    vocabulary: int
    pads: bool  # whether the prompts of a batch may have different lengths
    padding: int  # a token that is none of a prompt, -1: every token may be

    def start(self, prompts: Ints, mask: Ints, tokens: int) -> None:
        """Read prompts, [batch, length], and choose the first token of each. mask: 0 where there is none, left of it.

        tokens: of the longest answer. Raise UsageError.
        """

    def step(self) -> None:
        """Choose the next token of each. Raise UsageError."""

    @property
    def chosen(self) -> Ints:
        """Return the last token of each, [batch]."""


class OnnxDecoder:
    """A decoder that takes its cache as past_key_values.* and gives it back as present.*, as exporters name them."""

    pads, padding = True, -1

    def __init__(self, job: Job) -> None:
        """Raise ModelError for a model without a cache, Missing, UsageError."""
        self.engine = f"onnxruntime {ort.__version__}"
        self._session = provider.open_session(job)
        inputs = {item.name: item for item in self._session.get_inputs()}
        self._optional = {MASK, POSITIONS} & inputs.keys()
        self._past = {name: item for name, item in inputs.items() if name.startswith(PAST)}
        outputs = {item.name: item for item in self._session.get_outputs()}
        _refuse(job.model, inputs, outputs, self._past)
        self._memory = MEMORY.get(job.provider, "cpu")
        self._device = int(self._session.get_provider_options().get(job.provider, {}).get("device_id", "0"))
        self._resident = job.provider != CPU
        self.vocabulary = int(outputs[LOGITS].shape[-1])
        self._cache: list[ort.OrtValue] = []
        self._mask, self.chosen = np.zeros((0, 0), np.int64), np.zeros(0, np.int64)

    def start(self, prompts: Ints, mask: Ints, tokens: int) -> None:
        """Read prompts and choose the first tokens. Raise UsageError."""
        self._cache = [self._empty(item, len(prompts)) for item in self._past.values()]
        self._mask = mask
        self._run(prompts, np.maximum(np.cumsum(mask, axis=1) - 1, 0))

    def step(self) -> None:
        """Choose the next tokens. Raise UsageError."""
        self._mask = np.concatenate([self._mask, np.ones((len(self._mask), 1), np.int64)], axis=1)
        self._run(self.chosen[:, None], self._mask.sum(axis=1, keepdims=True) - 1)

    def _run(self, ids: Ints, positions: Ints) -> None:
        binding = self._session.io_binding()
        for name, array in ((IDS, ids), (MASK, self._mask), (POSITIONS, positions)):
            if name == IDS or name in self._optional:
                binding.bind_cpu_input(name, np.ascontiguousarray(array, np.int64))
        for name, cache in zip(self._past, self._cache, strict=True):
            binding.bind_ortvalue_input(name, cache)
        binding.bind_output(LOGITS)
        for name in self._past:
            binding.bind_output(name.replace(PAST, PRESENT), self._memory, self._device)
        try:
            self._session.run_with_iobinding(binding)
        except provider.FAILURES as error:
            raise UsageError(_why_failed(error, *self._mask.shape), SHORTER) from error
        logits, *self._cache = binding.get_outputs()
        self.chosen = np.asarray(logits.numpy()[:, -1].argmax(axis=-1), np.int64)

    def _empty(self, item: Any, batch: int) -> ort.OrtValue:
        shape = (batch, item.shape[1], 0, item.shape[3])
        return ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, TYPES[item.type]),
                                                *((self._memory, self._device) if self._resident else ()))


def _why_failed(error: Exception, batch: int, context: int) -> str:
    if isinstance(error, MemoryError) or provider.NO_ROOM.search(str(error)):
        return f"no memory for {batch} answers at once, each with a context of {context:,} tokens"
    return f"the decoder failed: {' '.join(str(error).split())[:300]}"


def _refuse(model: str, inputs: dict[str, Any], outputs: dict[str, Any], past: dict[str, Any]) -> None:
    """Raise ModelError unless these inputs and outputs are of a decoder with a cache."""
    lacks = next((name for name, there in ((IDS, inputs), (LOGITS, outputs)) if name not in there), "")
    if not past or lacks:
        raise ModelError(f"{model}: no decoder with a key-value cache: it has no {lacks or PAST + '*'}",
                         "export it with its cache as past_key_values.* and present.*; aaco models has some")
    for name, item in inputs.items():
        if name not in (IDS, MASK, POSITIONS, *past):
            raise ModelError(f"{model}: its input {name} is none that a decoder is fed here", "export it without")
        if name in past and (name.replace(PAST, PRESENT) not in outputs or item.type not in TYPES
                             or [type(size) for size in item.shape] != [str, int, str, int]):
            raise ModelError(f"{model}: its cache {name} is {item.type} {item.shape}, or is not given back",
                             "float or float16, [batch, heads, past, width], and a present.* for each")
    if not isinstance(outputs[LOGITS].shape[-1], int):
        raise ModelError(f"{model}: the size of its vocabulary is not fixed", "export it with that")


class GenaiDecoder:
    """A folder with genai_config.json, as the model builder of onnxruntime-genai writes it."""

    pads = False

    def __init__(self, folder: Path) -> None:
        """Raise UsageError for what is no such folder, ModelError for a model that does not load, Missing."""
        import onnxruntime_genai as og

        try:
            model = json.loads((folder / "genai_config.json").read_bytes())["model"]
            self.vocabulary, self.padding = int(model["vocab_size"]), int(model["pad_token_id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{folder}: no model of onnxruntime-genai: {error!r}", "a folder with genai_config.json"
                             ) from error
        self.engine = f"onnxruntime-genai {metadata.version('onnxruntime-genai')}"
        self._og = og
        try:
            self._model = og.Model(str(folder))
        except Exception as error:  # it raises whatever its C++ does
            raise ModelError(f"{folder}: onnxruntime-genai cannot load it: {error}", "build it again") from error
        self._generator: Any = None

    def start(self, prompts: Ints, mask: Ints, tokens: int) -> None:
        """Read prompts and choose the first tokens: append_tokens computes all of the prompt. Raise UsageError."""
        longest = prompts.shape[1] + tokens
        try:
            options = self._og.GeneratorParams(self._model)
            options.set_search_options(batch_size=len(prompts), max_length=longest, min_length=longest,
                                       do_sample=False)
            self._generator = self._og.Generator(self._model, options)
            self._generator.append_tokens(np.asarray(prompts, np.int32))
        except Exception as error:
            raise UsageError(f"onnxruntime-genai failed: {error}", SHORTER) from error
        self.step()

    def step(self) -> None:
        """Choose the next tokens. Raise UsageError."""
        try:
            self._generator.generate_next_token()
        except Exception as error:
            raise UsageError(f"onnxruntime-genai failed: {error}", SHORTER) from error

    @property
    def chosen(self) -> Ints:
        """Return the last token of each, [batch]."""
        return np.asarray(self._generator.get_next_tokens(), np.int64)
