"""How operators of one kind are costed, and the reasons for which some are not."""

from __future__ import annotations

from msgspec import Struct

from aaco.analytics.costs.terms import Formula, everything
from aaco.analytics.costs.torch.arguments import Form


class Model(Struct, frozen=True):
    """How operators of one kind are costed. flops and traffic are None where `why` says what is not known.

    traffic: every operand once, unless a row says otherwise.
    """

    kind: str
    family: str
    form: Form
    flops: Formula | None
    traffic: Formula | None = everything
    why: str = ""


EXPERTS = "which experts the tokens go to, and their weights, are not recorded"
RANKS = "how many ranks take part is not among the recorded arguments"
FUSED = "what a fused kernel computes is not recorded"
VALUES = "how much it finds depends on values that are not recorded"
BACKWARD_OF_LAYERS = "what the gradient of a recurrent layer reads again is up to the library"
RANDOM = "how a generator makes its numbers is its own affair"

Row = tuple[Model, str]
