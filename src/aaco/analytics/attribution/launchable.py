"""Whether an operator may launch a kernel of some family: what refutes a match by position, where no name proves it.

Only what is certain refutes: a matrix product is never launched by an addition, nor a normalisation by an embedding. Of
several captures that remain the one is meant whose operators usually launch such kernels.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

# Kinds of operators by their names without namespace; the first that matches decides. An operator of none of them may
# launch anything.
_KINDS: tuple[tuple[str, str], ...] = (
    ("any", r"moe|expert|fused_?dense|compile|graph|custom|mlp"),
    ("attention", r"attention|attn|flash|sdpa|mla\b|paged"),
    ("norm", r"norm"),
    ("gemm", r"(add|ba?d?d?b)?mm\w*|matmul\w*|linear\w*|\w*scaled_mm\w*|\w*gemm\w*|\w*gemv\w*|einsum|addmv|mv|dot"),
    ("conv", r"\w*conv\w*|miopen_conv\w*|cudnn_conv\w*"),
    ("softmax", r"\w*softmax\w*"),
    ("collective", r"\w*all_?(reduce|gather|to_?all)\w*|\w*reduce_scatter\w*|broadcast_?|send|recv"),
    ("reads", r"(index\w*|gather|scatter\w*|embedding|take|store_cache|reshape_and_cache\w*)_?"),
    ("light", r"(add|sub|mul|div|neg|rsub|silu|gelu|relu|sigmoid|tanh|exp|pow|rsqrt|cos|sin|copy|clone|cat|stack|fill"
              r"|zero|ones|arange|slice|where|masked_fill|to|_to_copy|contiguous|argmax|max"
              r"|min|sum|mean|cumsum|topk|sort|eq|ne|lt|gt|le|ge|repeat|expand|silu_and_mul|gelu_and_mul"
              r"|rotary_embedding)_?"),
)
# Families of kernels that tell, and the kinds of operators that launch them.
_LAUNCHED_BY: dict[str, frozenset[str]] = {
    "gemm": frozenset({"gemm", "attention", "conv", "any"}),
    "conv": frozenset({"conv", "any"}),
    "attention": frozenset({"attention", "any"}),
    "norm": frozenset({"norm", "any"}),
    "collective": frozenset({"collective", "any"}),
    "softmax": frozenset({"softmax", "attention", "any"}),
}
_USUALLY: dict[str, frozenset[str]] = {
    **{kind: frozenset({kind}) for kind in ("attention", "norm", "gemm", "conv", "softmax", "collective")},
    "reads": frozenset({"embedding"}),
    "light": frozenset({"elementwise", "copy", "concat", "reduction", "fill", "transpose", "sort"}),
}
_NEVER_LAUNCHES: dict[str, frozenset[str]] = {
    "gemm": frozenset({"embedding", "elementwise", "concat"}),
    "norm": frozenset({"embedding"}),
}


def may_launch(operator: str | None, family: str | None) -> bool:
    """Return whether a kernel of this family may be one of the operator's. True where either is not known."""
    kind = _kind(operator) if operator else ""
    if not kind or not family:
        return True
    return kind in _LAUNCHED_BY.get(family, {kind}) and family not in _NEVER_LAUNCHES.get(kind, ())


def usually_launches(operator: str | None, family: str | None) -> bool:
    """Return whether the operator usually launches kernels of this family; False where either is not known."""
    return (family or "") in _USUALLY.get(_kind(operator) if operator else "", ())


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the kinds with their expressions, compiled where the first name is read."""
    return tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)


@lru_cache(1 << 14)
def _kind(operator: str) -> str:
    """Return the kind of an operator; empty where its name does not tell."""
    name = operator.rpartition("::")[2].lower().lstrip("_")
    whole = {"any", "attention", "norm"}
    return next((kind for kind, pattern in _patterns()
                 if (pattern.search(name) if kind in whole else pattern.fullmatch(name))), "")
