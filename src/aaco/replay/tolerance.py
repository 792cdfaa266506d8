"""How much the numbers in a replay's memory may differ from the captured ones."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from aaco.core.errors import UsageError

# Bytes of a number, and what native/replay/memory.cu calls its type.
NUMBER_TYPES = {"float64": (8, 0), "float32": (4, 1), "float16": (2, 2), "bfloat16": (2, 3)}
FORM = "TYPE:RELATIVE or TYPE:RELATIVE:ABSOLUTE"


class NumberTolerance(NamedTuple):
    """Numbers may differ by absolute + relative * |the captured number|.

    Only zero and normal numbers may: small whole numbers look like subnormal ones, and have to be equal.
    """

    number_type: str
    relative: float
    absolute: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the tolerance that a text such as float32:1e-6 means. Raise UsageError."""
        number_type, *limits = text.split(":")
        if number_type not in NUMBER_TYPES or len(limits) not in (1, 2):
            raise UsageError(f"{text!r} is no tolerance: {FORM}", f"TYPE is one of {', '.join(NUMBER_TYPES)}")
        try:
            numbers = [float(limit) for limit in limits]
        except ValueError:
            numbers = [math.nan]
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise UsageError(f"{text!r} is no tolerance: its limits are no numbers from 0", f"{number_type}:1e-6")
        return cls(number_type, *numbers)
