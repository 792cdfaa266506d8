"""The shape of a language model, from the fields of its Hugging Face config.json.

Source: the configuration classes of huggingface.co/docs/transformers, and their defaults for fields that may be left
out. A field that is missing and has no default is None, and `absent` says why; one of a wrong type raises UsageError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Any

from msgspec import Struct, field

from aaco.analytics.serving.config_fields import TRY, ConfigFields
from aaco.analytics.serving.quantization import Quantization, read_quantization
from aaco.core.errors import UsageError
from aaco.core.readings import Absent

FULL, SLIDING, CHUNKED, LINEAR = "full", "sliding", "chunked", "linear"
LAYER_TYPES = {"full_attention": FULL, "sliding_attention": SLIDING, "chunked_attention": CHUNKED,
               "linear_attention": LINEAR, "attention": FULL, "global": FULL, "local": SLIDING}
NESTED = ("text_config", "llm_config", "language_config")
MOST_LAYERS = 10_000
ELEMENT_BITS = {"float64": 64, "float32": 32, "float": 32, "float16": 16, "half": 16, "bfloat16": 16,
                "float8_e4m3fn": 8}
# Model types whose feed-forward block has two matrices; the others have a gate beside the first.
UNGATED = {"gpt2", "opt", "gpt_neox", "gptj", "gpt_bigcode", "gpt_neo", "falcon", "bloom", "mpt", "phi", "starcoder2",
           "nemotron", "codegen", "bert", "roberta", "persimmon"}
PATTERNS: dict[str, int] = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4}


class LatentAttention(Struct, frozen=True):
    """Multi-head latent attention: the widths of its compressed keys and values, of a head's parts and its value."""

    kv_rank: int
    rope: int
    nope: int
    value_width: int
    query_rank: int | None = None


class Experts(Struct, frozen=True):
    """A mixture of experts: how many there are, how many a token takes, their width, and which layers have them."""

    count: int
    per_token: int
    intermediate: int
    layers: tuple[bool, ...]
    shared_intermediate: int = 0


class ModelShape(Struct, frozen=True):
    """The sizes of a decoder. None: not in the configuration; `absent` has the reason by the name of the field.

    layer_kinds: attention of each layer; window: how many tokens a sliding or chunked layer sees.
    """

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate: int | None = None
    vocabulary: int | None = None
    tied_embeddings: bool | None = None
    dtype: str | None = None
    gated: bool = True
    layer_kinds: tuple[str, ...] | None = None
    window: int | None = None
    latent: LatentAttention | None = None
    experts: Experts | None = None
    quantization: Quantization | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    def need(self, name: str) -> Any:
        """Return a field. Raise Absent with the reason if the configuration does not have it."""
        stated = getattr(self, name)
        if stated is None:
            raise Absent(self.absent.get(name, f"the model's config.json has no {name}"))
        return stated

    @property
    def element_bits(self) -> int:
        """Return the bits of an activation. Raise Absent if the type is not stated, or not known."""
        dtype = self.need("dtype")
        if dtype not in ELEMENT_BITS:
            raise Absent(f"the model's config.json names a type of unknown width: {dtype[:40]}")
        return ELEMENT_BITS[dtype]


def read_config(document: Mapping[str, Any]) -> ModelShape:
    """Return the shape of the model that a parsed config.json describes. Raise UsageError if a key has a wrong type."""
    if not isinstance(document, Mapping):
        raise UsageError("config.json: not a JSON object", TRY)
    fields = ConfigFields(_text_part(document), document)
    layers = fields.size("layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if layers is not None and layers > MOST_LAYERS:
        raise UsageError(f"config.json: num_hidden_layers is {layers}, above {MOST_LAYERS}", TRY)
    hidden = fields.size("hidden", "hidden_size", "n_embd", "d_model")
    heads = fields.size("heads", "num_attention_heads", "n_head", "n_heads")
    latent = _latent(fields)
    intermediate = fields.size("intermediate", "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size",
                               "n_inner", "ffn_dim") or _four_times(fields, hidden)
    kinds, window = _attention_kinds(fields, layers)
    return ModelShape(
        layers, hidden, heads, _kv_heads(fields, heads), _head_dim(fields, hidden, heads), intermediate,
        fields.size("vocabulary", "vocab_size", "padded_vocab_size"), _tied(fields),
        _dtype(fields), fields.text("model_type") not in UNGATED, kinds, window, latent, _experts(fields, layers),
        read_quantization(fields), fields.absent)


def _text_part(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the language model inside that of a model of several kinds of input."""
    for name in NESTED:
        nested = document.get(name)
        if nested is not None and not isinstance(nested, Mapping):
            raise UsageError(f"config.json: {name} is no JSON object", TRY)
        if nested:
            return nested
    return document


def _kv_heads(fields: ConfigFields, heads: int | None) -> int | None:
    stated = fields.size("", "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    if stated is None and fields.flag("multi_query", default=False):
        return 1
    if stated is None and heads is None:
        fields.absent["kv_heads"] = fields.absent["heads"]
    return stated or heads  # the default: each query head has its own keys and values


def _head_dim(fields: ConfigFields, hidden: int | None, heads: int | None) -> int | None:
    stated = fields.size("", "head_dim", "kv_channels", "head_size")
    if stated is None and (hidden is None or heads is None or hidden % heads):
        fields.absent["head_dim"] = "config.json has no head_dim, and hidden size / heads is no whole number"
    return stated or (hidden // heads if hidden and heads and hidden % heads == 0 else None)


def _four_times(fields: ConfigFields, hidden: int | None) -> int | None:
    """Return the width of the feed-forward block of GPT-2's kind: 4 x hidden where the configuration leaves it out."""
    if hidden and fields.text("model_type") in {"gpt2", "gptj", "gpt_neo", "gpt_bigcode", "falcon", "bloom", "codegen"}:
        fields.absent.pop("intermediate", None)
        return 4 * hidden
    return None


def _dtype(fields: ConfigFields) -> str | None:
    dtype = fields.text("dtype") or fields.text("torch_dtype")
    if dtype is None:
        fields.absent["dtype"] = "config.json has neither dtype nor torch_dtype"
    return None if dtype is None else dtype.removeprefix("torch.")


def _tied(fields: ConfigFields) -> bool | None:
    if fields.raw("tie_word_embeddings") is None:
        fields.absent["tied_embeddings"] = "config.json has no tie_word_embeddings"
        return None
    return fields.flag("tie_word_embeddings", default=False)


def _latent(fields: ConfigFields) -> LatentAttention | None:
    rank = fields.size("", "kv_lora_rank")
    if rank is None:
        return None
    parts = [fields.size(name, name) for name in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")]
    if None in parts:
        raise UsageError("config.json: kv_lora_rank without qk_rope_head_dim, qk_nope_head_dim and v_head_dim",
                         TRY)
    rope, nope, value_width = (part or 0 for part in parts)
    return LatentAttention(rank, rope, nope, value_width, fields.size("", "q_lora_rank"))


def _attention_kinds(fields: ConfigFields, layers: int | None) -> tuple[tuple[str, ...] | None, int | None]:
    """Return what each layer attends to, and the window of those that slide or attend within chunks."""
    sliding, chunk = fields.size("", "sliding_window"), fields.size("", "attention_chunk_size")
    if layers is None:
        fields.absent["layer_kinds"] = fields.absent["layers"]
        return None, sliding or chunk
    listed = _listed_kinds(fields, layers)
    uses = fields.flag("use_sliding_window", default=not (fields.text("model_type") or "").startswith("qwen"))
    window = (sliding if uses else None) or chunk
    if listed is not None:
        return listed, window if {SLIDING, CHUNKED} & set(listed) else None
    if window is None:
        return (FULL,) * layers, None
    return _windowed(fields, layers, SLIDING if uses and sliding else CHUNKED), window


def _listed_kinds(fields: ConfigFields, layers: int) -> tuple[str, ...] | None:
    listed = fields.texts("layer_types") or fields.texts("layers_block_type")
    if listed is None:
        return _with_linear_layers(fields, layers)
    if len(listed) != layers:
        raise UsageError(f"config.json: layer_types names {len(listed)} layers, num_hidden_layers {layers}",
                         TRY)
    return tuple(LAYER_TYPES.get(kind, kind[:40]) for kind in listed)


def _with_linear_layers(fields: ConfigFields, layers: int) -> tuple[str, ...] | None:
    """Return the kinds of a model in which only some layers have attention of all pairs; None of any other."""
    flags = fields.whole_numbers("attn_type_list")
    if flags is not None and len(flags) == layers:
        return tuple(FULL if flag else LINEAR for flag in flags)
    period = fields.size("", "full_attention_interval", "attn_layer_period")
    if period is None:
        return None
    offset = fields.size("", "attn_layer_offset", least=0)
    return _each(layers, lambda layer: FULL if layer % period == (period - 1 if offset is None else offset) else LINEAR)


def _windowed(fields: ConfigFields, layers: int, kind: str) -> tuple[str, ...]:
    """Return the kinds of the layers of a model with a window: by a pattern, from a layer on, or all."""
    pattern = fields.raw("sliding_window_pattern") or PATTERNS.get(fields.text("model_type") or "")
    if isinstance(pattern, str):  # LLLG: three local layers, then a global one
        letters = islice(cycle(pattern), layers)
        return tuple(FULL if letter in "Gg" else kind for letter in letters)
    if pattern is not None:
        period = fields.size("", "sliding_window_pattern") or pattern
        return _each(layers, lambda layer: kind if (layer + 1) % period else FULL)
    if kind == CHUNKED:
        rotary = fields.whole_numbers("no_rope_layers")
        return _each(layers, lambda layer: kind if (rotary[layer] if rotary and len(rotary) == layers
                                                    else (layer + 1) % 4) else FULL)
    first = fields.size("", "max_window_layers", least=0) or 0
    return _each(layers, lambda layer: kind if layer >= first else FULL)


def _each(layers: int, kind: Callable[[int], str]) -> tuple[str, ...]:
    return tuple(kind(layer) for layer in range(layers))


def _experts(fields: ConfigFields, layers: int | None) -> Experts | None:
    count = fields.size("", "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", least=0)
    if not count or count == 1:
        return None
    per_token = fields.size("", "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk",
                            "moe_top_k", "top_k_experts")
    width = fields.size("", "moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size")
    if per_token is None or width is None or layers is None or per_token > count:
        fields.absent["experts"] = f"config.json names {count} experts, but not how many a token takes, or their width"
        return None
    return Experts(count, per_token, width, _expert_layers(fields, layers), _shared_width(fields, width))


def _shared_width(fields: ConfigFields, width: int) -> int:
    stated = fields.size("", "shared_expert_intermediate_size", "shared_intermediate_size", least=0)
    shared = fields.size("", "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", least=0)
    if stated is None and shared is None and (fields.text("model_type") or "").startswith("llama4"):
        shared = 1
    return stated if stated is not None else width * (shared or 0)


def _expert_layers(fields: ConfigFields, layers: int) -> tuple[bool, ...]:
    """Return which layers have experts. The others have a dense block."""
    dense = fields.size("", "first_k_dense_replace", "moe_layer_start_index", least=0) or 0
    without, listed = fields.whole_numbers("mlp_only_layers") or (), fields.whole_numbers("moe_layer_freq")
    step = fields.size("", "decoder_sparse_step", "interleave_moe_layer_step") or 1
    frequency = listed or (1,)
    if len(frequency) == layers:
        return tuple(bool(has) for has in frequency)
    period = max(1, frequency[0])
    return tuple(layer >= dense and layer % period == 0 and (layer + 1) % step == 0 and layer not in without
                 for layer in range(layers))
