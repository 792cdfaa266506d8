"""What advice gained where it was tried on the machine of a session, as a document."""

from __future__ import annotations

from dataclasses import dataclass

from aaco.core import documents
from aaco.tracelake import layout


@dataclass(frozen=True)
class MachineGain:
    """How many times faster models became by an advice on one machine: the median, and the ends of 90 %."""

    factor: float
    low: float
    high: float
    models: int


@documents.document(layout.MACHINE_GAINS, version=1)
@dataclass(frozen=True)
class MachineGains:
    """machine_gains.json: by advice, what its trials on the session's machine gained when the session was analysed."""

    gains: dict[str, MachineGain]
