"""What the rules offer to change in a kernel, one file per kind of edit.

Each has `proposals(situation)`, which yields every edit or why it cannot be made here, and PERMITS: what it may add to
the kernel's signature. The files are read by walking this folder. The proof that an edit changed nothing else is not
the edit's own: edit_proof.check_edited makes it for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from aaco.core.candidate import Inapplicable
from aaco.optimize.kernels.edit_proof import check_edited
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.variants import Proposal

NAMES = tuple(sorted(entry.name for entry in iter_modules(__path__)))


def permits(proposer: str) -> frozenset[bytes]:
    """Return what a proposer may add to a signature. Only rules may add anything, each its own."""
    return import_module(f"{__name__}.{proposer}").PERMITS if proposer in NAMES else frozenset()


def rule_proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield what every rule offers. Raise Refused if an edit of a rule changed more than it may: a defect."""
    for name in NAMES:
        for offer in import_module(f"{__name__}.{name}").proposals(situation):
            if isinstance(offer, Proposal):
                check_edited(situation.kernel, offer.text, permits(offer.proposer))
            yield offer
