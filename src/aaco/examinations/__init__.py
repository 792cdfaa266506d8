"""What is found in the tables of a session, one file per question: of an import, or of a run whose device was traced.

Each has `examine(session, settings)`, which reads tables a piece at a time, asks analytics/, and writes its own files
into the bundle; where it finds nothing, they are not there. The answers (imported.py, derive.py) are read from those
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.examinations import (
    attribution,
    critical_path,
    device_work,
    fingerprints,
    fusion,
    inferences,
    instructions,
    kernel_classes,
    kernel_groups,
    kernel_names,
    launch_tax,
    operator_costs,
    products,
    roofline,
    stacks,
    trace,
    truth,
)

# One may read what those before it wrote.
IN_ORDER = (
    kernel_groups, kernel_names, fingerprints, truth, trace, attribution, operator_costs, products, fusion,
    instructions, roofline, device_work, kernel_classes, critical_path, launch_tax, stacks,
)
# Of a run: its graph says what others ask a framework's operators (derive.py); waves it has none.
OF_A_RUN = (fingerprints, trace, roofline, kernel_classes, critical_path, launch_tax, stacks)
OF_ITS_TABLES = (kernel_names, truth)  # warm-up and all: what is lost there is lost, too


def of_import(session: Session, settings: Analysis, show: Show = SILENT) -> None:
    """Examine an imported session anew. Raises BadBundle, StorageError."""
    _every(IN_ORDER, session, settings, show)


def of_run(session: Session, settings: Analysis, show: Show = SILENT) -> None:
    """Examine anew what the device of a run did: its tables, and in them its measured inferences. Raises BadBundle,
    StorageError."""
    _every(OF_ITS_TABLES, session, settings, SILENT)
    _every(OF_A_RUN, inferences.of(session), settings, show)


def _every(wanted: Sequence[ModuleType], session: Session, settings: Analysis, show: Show) -> None:
    for done, examination in enumerate(wanted):
        show.progress(done, len(wanted))
        examination.examine(session, settings)
