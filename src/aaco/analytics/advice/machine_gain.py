"""What advice gained where it was tried on the machine of a session, as a document."""

from __future__ import annotations

from msgspec import Struct

from aaco.core import documents
from aaco.tracelake import layout


class MachineGain(Struct, frozen=True):
    """How many times faster models became by an advice on one machine: the median, and the ends of 90 %."""

    factor: float
    low: float
    high: float
    models: int


@documents.document(layout.MACHINE_GAINS, version=1)
class MachineGains(Struct, frozen=True):
    """machine_gains.json: by advice, what its trials on the session's machine gained when the session was analysed."""

    gains: dict[str, MachineGain]
