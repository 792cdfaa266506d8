"""What an operator costs: FLOPs, compulsory bytes and kernel family, only from its shapes and attributes.

The conventions are in the files of the families, the operators in `table.TABLE`. A multiply-add counts 2 FLOPs; integer
operations count as floating-point ones. Bytes are compulsory traffic: each distinct input and each output once, as if
caches were perfect; views move nothing. A fused operator costs the FLOPs of what it fuses, and moves only what crosses
its border. Control flow costs nothing itself: the code that walks the graph counts its body's nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aaco.analytics.costs.table import TABLE
from aaco.analytics.costs.terms import FAMILIES, Cost, CostRule, OperatorCall, TensorType

__all__ = ["FAMILIES", "TABLE", "Cost", "CostRule", "OperatorCall", "TensorType", "cost", "family", "family_of_any",
           "modelled"]


def cost(op_type: str, domain: str, attributes: Mapping[str, Any], inputs: Sequence[TensorType | None],
         outputs: Sequence[TensorType | None], names: Sequence[str] = ()) -> Cost | None:
    """Return the cost of one execution; None when the operator is not modelled or a shape it needs is not known.

    None among inputs and outputs is an operand that is not given. Attribute strings are str. `names` are the inputs'
    tensor names, so that a tensor given twice is read once; without them all inputs are distinct. Operands that break
    the operator's own contract (a rank, a missing attribute) have no cost either.
    """
    rule = _find(op_type, domain)
    if rule is None or rule.flops is None:
        return None
    repeated = frozenset(index for index, name in enumerate(names) if name in names[:index])
    call = OperatorCall(attributes, inputs, outputs, repeated)
    try:
        # A reduction over an empty axis has fewer inputs than outputs, and no work.
        return Cost(max(0, rule.flops(call)), rule.traffic(call))
    except (ValueError, LookupError, ZeroDivisionError):
        return None


def family(op_type: str, domain: str = "") -> str:
    """Return the operator's kernel family, or "unknown"."""
    rule = _find(op_type, domain)
    return rule.family if rule else "unknown"


def family_of_any(op_type: str) -> str:
    """Return the operator's kernel family in any operator set that has it, or "unknown"."""
    return _ANYWHERE.get(op_type, "unknown")


def modelled(op_type: str, domain: str = "") -> bool:
    """Return whether `cost` knows this operator, given the shapes."""
    rule = _find(op_type, domain)
    return rule is not None and rule.flops is not None


_ANYWHERE = {name: rule.family for (_, name), rule in reversed(TABLE.items())}


def _find(op_type: str, domain: str) -> CostRule | None:
    return TABLE.get(("" if domain == "ai.onnx" else domain, op_type))
