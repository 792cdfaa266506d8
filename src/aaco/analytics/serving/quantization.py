"""How many bits a model's weights have, from the quantization_config of its config.json.

Sources: the quantization pages of huggingface.co/docs/transformers and of vLLM; the OCP Microscaling specification (one
8-bit scale for 32 numbers). Layers that a list of exceptions names one by one are counted as quantized.
"""

from __future__ import annotations

from msgspec import Struct

from aaco.analytics.serving.config_fields import ConfigFields, wrong

WIDTHS = {"fp8": 8, "int8": 8, "fp4": 4, "mxfp4": 4, "nvfp4": 4, "int4": 4, "uint4": 4, "nf4": 4, "w4a16": 4, "w8a8": 8,
          "fbgemm_fp8": 8, "w8a8_fp8": 8, "w8a8_int8": 8, "ptpc_fp8": 8, "eetq": 8}
MICROSCALED = {"mxfp4": 8 / 32, "nvfp4": 8 / 16, "fp4": 8 / 32}  # bits of scales for each number
ATTENTION = ("self_attn", "attn", "attention")


class Quantization(Struct, frozen=True):
    """The bits of a quantized weight and of its scales, None where the method is not known; what keeps the
    model's own type."""

    method: str
    bits: float | None
    scale_bits: float = 0.0
    attention: bool = True
    lm_head: bool = False
    dense: bool = True


def read_quantization(fields: ConfigFields) -> Quantization | None:
    """Return how the weights are quantized; None if they are not. Note the reason where the bits are not known."""
    stated = fields.part("quantization_config") or fields.part("compression_config")
    if stated is None:
        return None
    method = (stated.text("quant_method") or stated.text("quant_algo") or "unknown").lower()
    bits, scales = _bits(method, stated)
    if bits is None:
        fields.absent["quantization"] = f"the bits of weights quantized by {method[:40]} are not known"
    kept = [name for key in ("modules_to_not_convert", "ignore", "exclude", "exclude_modules", "ignored_layers")
            for name in _names(stated, key)]
    everywhere = [name for name in kept if not any(letter.isdigit() for letter in name)]
    attention = not any(name in word for word in everywhere for name in ATTENTION)
    return Quantization(method, bits, scales, attention, stated.flag("lm_head", default=False), method != "mxfp4")


def _names(stated: ConfigFields, key: str) -> list[str]:
    names = stated.raw(key)
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise wrong(key, names, "a list of names")
    return names or []


def _bits(method: str, stated: ConfigFields) -> tuple[float | None, float]:
    if method in ("gptq", "awq", "gptq_marlin", "awq_marlin", "auto-round", "hqq", "autoround"):
        group = stated.size("", "group_size", "q_group_size", least=-1)
        return _grouped(stated, stated.size("", "bits", "w_bit"), group)
    if method == "bitsandbytes":
        return (4, 32 / 64) if stated.flag("load_in_4bit", default=False) else (8, 0)
    if method == "compressed-tensors":
        return _compressed(stated)
    if method == "quark":
        return _quark(stated)
    algorithm = (stated.text("quant_algo") or method).lower().removeprefix("modelopt_")
    if method == "fp8" and (blocks := stated.whole_numbers("weight_block_size")):
        return 8, 32 / max(1, blocks[0] * blocks[-1])
    return WIDTHS.get(algorithm), MICROSCALED.get(algorithm, 0)


def _grouped(stated: ConfigFields, bits: int | None, group: int | None) -> tuple[float | None, float]:
    """Return the bits of integers with a 16-bit scale, and a zero point unless they are symmetric, for each group."""
    if bits is None:
        return None, 0
    symmetric = stated.flag("sym", default=False) or not stated.flag("zero_point", default=True)
    return bits, (16 + (0 if symmetric else bits)) / group if group and group > 0 else 0


def _compressed(stated: ConfigFields) -> tuple[float | None, float]:
    """Return the bits of the weights of all groups of compressed-tensors; None if groups differ."""
    groups = stated.part("config_groups")
    schemes = [group.part("weights") for name in (groups.fields if groups else ()) if groups
               and (group := groups.part(name))]
    widths = {(scheme.size("", "num_bits"), scheme.size("", "group_size", least=-1)) for scheme in schemes if scheme}
    if len(widths) != 1:
        return None, 0
    bits, group_size = widths.pop()
    return bits, 16 / group_size if group_size and group_size > 0 else 0


def _quark(stated: ConfigFields) -> tuple[float | None, float]:
    whole = stated.part("global_quant_config")
    weight = whole.part("weight") if whole else None
    dtype = (weight.text("dtype") or "").lower() if weight else ""
    kind = next((name for name in ("fp8", "fp4", "int8", "int4", "uint4") if dtype.startswith(name)), "")
    return WIDTHS.get(kind), MICROSCALED.get(kind, 0)
