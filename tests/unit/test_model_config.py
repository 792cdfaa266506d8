"""The shape of a model out of its config.json: families of models with their defaults, and what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aaco.analytics.serving.model_config import Experts, LatentAttention, read_config
from aaco.analytics.serving.model_weights import EXPERT, products
from aaco.core.errors import UsageError
from aaco.core.readings import Absent

QWEN3_8B = {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
            "torch_dtype": "bfloat16", "tie_word_embeddings": False, "sliding_window": None, "max_window_layers": 36,
            "use_sliding_window": False}
DEEPSEEK_V3 = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
               "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
               "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
               "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_shared_experts": 1, "moe_layer_freq": 1,
               "intermediate_size": 18432, "vocab_size": 129280, "torch_dtype": "bfloat16",
               "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
GPT_OSS = {"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64,
           "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
           "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "dtype": "bfloat16",
           "layer_types": ["sliding_attention", "full_attention"] * 12,
           "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
               "model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]}}


def _with(base, **changes):
    return read_config({**base, **changes})


def all_weight_bytes(shape, tp=1):
    """Bytes of the weights on one rank by product, those of all experts included."""
    return {product.name: product.times * _experts(product, shape.experts.count if shape.experts else 1)
            for product in products(shape, 1, 1, tp)}


def expert_bytes(shape):
    """Bytes of one expert of one layer."""
    return sum(_experts(product, 1) for product in products(shape, 1, 1) if product.name.startswith(EXPERT))


def _experts(product, count):
    chosen = replace(product, copies=(count, count)) if product.name.startswith(EXPERT) else product
    return chosen.weight_bytes[0]


def test_a_dense_model():
    shape = read_config(QWEN3_8B)
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim) == (36, 4096, 32, 8, 128)
    assert (shape.intermediate, shape.vocabulary, shape.dtype, shape.tied_embeddings) == (
        12288, 151936, "bfloat16", False)
    assert shape.layer_kinds == ("full",) * 36 and shape.window is None and not shape.absent
    layers = 36 * (4096 * 128 * (2 * 32 + 2 * 8) + 3 * 4096 * 12288)
    assert sum(all_weight_bytes(shape).values()) == 2 * (layers + 4096 * 151936)


def test_defaults_of_a_head():
    shape = read_config({"num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 8})
    assert (shape.head_dim, shape.kv_heads, shape.gated) == (64, 8, True)
    gpt2 = read_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257})
    assert (gpt2.layers, gpt2.head_dim, gpt2.intermediate, gpt2.gated) == (12, 64, 3072, False)
    assert read_config({"multi_query": True, "n_head": 4}).kv_heads == 1


def test_what_is_missing_has_its_reason():
    shape = read_config({"hidden_size": 100, "num_attention_heads": 8})
    for name in ("layers", "head_dim", "intermediate", "vocabulary", "dtype", "tied_embeddings", "layer_kinds"):
        assert getattr(shape, name) is None and "config.json has no" in shape.absent[name].replace("neither", "no")
        with pytest.raises(Absent, match=r"config\.json"):
            shape.need(name)


@pytest.mark.parametrize(("changes", "key"), [
    ({"num_hidden_layers": "36"}, "num_hidden_layers is '36'"), ({"hidden_size": 0}, "hidden_size is 0"),
    ({"num_attention_heads": True}, "num_attention_heads is True"), ({"head_dim": 1.5}, "head_dim is 1.5"),
    ({"torch_dtype": 16}, "torch_dtype is 16"), ({"layer_types": "full"}, "layer_types is 'full'"),
    ({"layer_types": ["full_attention"]}, "layer_types names 1"), ({"use_sliding_window": 1}, "use_sliding_window"),
    ({"quantization_config": []}, "quantization_config is list"), ({"text_config": 3}, "text_config"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"), ({"vocab_size": 10**40}, "vocab_size"),
    ({"kv_lora_rank": 512}, "kv_lora_rank without"), ({"hidden_size": float("nan")}, "hidden_size is nan"),
    ({"quantization_config": {"quant_method": "awq", "bits": "4"}}, "bits is '4'"),
])
def test_a_wrong_type_names_its_key(changes, key):
    with pytest.raises(UsageError) as error:
        _with(QWEN3_8B, **changes)
    assert key in str(error.value) and "try:" in str(error.value)


def test_a_document_that_is_no_object():
    with pytest.raises(UsageError):
        read_config([1])


@pytest.mark.parametrize(("changes", "kinds", "window"), [
    ({"sliding_window": 4096}, "FFFF", None),  # use_sliding_window is false
    ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 2}, "FFSS", 4096),
    ({"model_type": "mistral", "sliding_window": 4096, "use_sliding_window": None, "max_window_layers": None},
     "SSSS", 4096),
    ({"model_type": "gemma2", "sliding_window": 4096, "use_sliding_window": None}, "SFSF", 4096),
    ({"model_type": "x", "sliding_window": 512, "sliding_window_pattern": 3, "use_sliding_window": None}, "SSFS", 512),
    ({"model_type": "exaone4", "sliding_window": 512, "sliding_window_pattern": "LLG", "use_sliding_window": None},
     "SSFS", 512),
    ({"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 64, "use_sliding_window": True},
     "FSFS", 64),
    ({"layer_types": ["full_attention"] * 4, "sliding_window": 64, "use_sliding_window": True}, "FFFF", None),
    ({"model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 0]}, "CCCF", 8192),
    ({"model_type": "llama4_text", "attention_chunk_size": 8192}, "CCCF", 8192),
    ({"layer_types": ["linear_attention", "full_attention"] * 2}, "LFLF", None),
    ({"full_attention_interval": 4}, "LLLF", None), ({"attn_type_list": [0, 1, 0, 1]}, "LFLF", None),
    ({"attn_layer_period": 4, "attn_layer_offset": 1}, "LFLL", None),
])
def test_which_layers_have_a_window(changes, kinds, window):
    names = {"F": "full", "S": "sliding", "C": "chunked", "L": "linear"}
    shape = _with(QWEN3_8B, num_hidden_layers=4, **changes)
    assert (shape.layer_kinds, shape.window) == (tuple(names[kind] for kind in kinds), window)


def test_latent_attention_and_experts():
    shape = read_config(DEEPSEEK_V3)
    assert shape.latent == LatentAttention(512, 64, 128, 128, 1536)
    assert shape.experts == Experts(256, 8, 2048, (False,) * 3 + (True,) * 58, 2048)
    assert expert_bytes(shape) == 3 * 7168 * 2048 + 2 * (7168 * 2048 // 128**2) * 4 + 7168 * 2048 // 128**2 * 4
    parameters = 58 * 256 * 3 * 7168 * 2048
    experts = sum(size for name, size in all_weight_bytes(shape).items() if name.startswith("expert_"))
    assert experts == parameters + parameters // 128**2 * 4
    assert sum(all_weight_bytes(shape).values()) == pytest.approx(671e9, rel=.01)  # the published size, 8 bits each


def test_experts_of_four_bits_beside_attention_of_sixteen():
    shape = read_config(GPT_OSS)
    bits = {product.name: product.weight_bits for product in products(shape, 1, 1)}
    assert (bits["qkv_proj"], bits["expert_down_proj"], bits["router"], bits["lm_head"]) == (16, 4.25, 16, 16)
    assert shape.layer_kinds[:2] == ("sliding", "full") and shape.window == 128
    assert expert_bytes(shape) == 3 * 2880 * 2880 * 17 // 32


def test_layers_with_experts_between_dense_ones():
    base = {**QWEN3_8B, "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    assert _with(base, decoder_sparse_step=2, mlp_only_layers=[3]).experts.layers == (False, True, False, False)
    assert _with(base, interleave_moe_layer_step=2).experts.layers == (False, True, False, True)
    assert _with(base, moe_layer_freq=[0, 1, 1, 0]).experts.layers == (False, True, True, False)
    assert _with(base, shared_expert_intermediate_size=96).experts.shared_intermediate == 96
    assert _with(base, num_experts=0).experts is None
    with pytest.raises(Absent, match="8 experts"):
        products(_with(base, num_experts_per_tok=None), 1, 1)


def test_a_model_inside_one_of_several_kinds_of_input():
    shape = read_config({"model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 3},
                         "text_config": {**QWEN3_8B, "torch_dtype": None, "hidden_size": 2560}})
    assert (shape.hidden, shape.dtype) == (2560, "bfloat16")


@pytest.mark.parametrize(("stated", "bits"), [
    ({"quant_method": "fp8", "activation_scheme": "static"}, 8),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 16 / 128),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 4 + 20 / 128),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, 8),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5), ({"quant_method": "fbgemm_fp8"}, 8),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, 8),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}}}, 4.5),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 8),
])
def test_bits_of_quantized_weights(stated, bits):
    shape = _with(QWEN3_8B, quantization_config=stated)
    made = {product.name: product.weight_bits for product in products(shape, 1, 1)}
    assert (made["down_proj"], made["qkv_proj"], made["lm_head"]) == (bits, bits, 16)


@pytest.mark.parametrize("stated", [{"quant_method": "novel"}, {}, {"quant_method": "compressed-tensors"}])
def test_an_unknown_quantization_gives_no_bytes(stated):
    shape = _with(QWEN3_8B, quantization_config={"kept": 1, **stated})
    with pytest.raises(Absent, match="bits of weights"):
        products(shape, 1, 1)


def test_ranks_share_heads_and_widths():
    one, eight = read_config(QWEN3_8B), all_weight_bytes(read_config(QWEN3_8B), 8)
    assert 8 * sum(eight.values()) == sum(all_weight_bytes(one).values())
    sixteen = {product.name: product.n for product in products(one, 1, 1, 16)}
    assert sixteen["qkv_proj"] == (2 + 2 * 1) * 128  # a KV head is copied when there are more ranks than heads
    with pytest.raises(UsageError, match="does not divide 32 heads"):
        products(one, 1, 1, 3)
