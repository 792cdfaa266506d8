"""Inputs and outputs that stay in the device's memory: no inference copies them."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.core.providers import MEMORY
from aaco.optimize.situation import Situation


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield the change, or why it is not there to try."""
    yield unless(Candidate("io_device", "Keep inputs and outputs in the device's memory", {"io": "device"},
                        ("inputs_on_device", "pin_memory")),
                 (situation.provider not in MEMORY, f"{situation.provider} has no memory of a device"),
                 (situation.has("io", "device"), ALREADY))
