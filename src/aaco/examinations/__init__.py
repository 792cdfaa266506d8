"""What is found in the tables of an imported session, one file per question.

Each has `examine(session, settings)`, which reads tables a piece at a time, asks analytics/, and writes its own files
into the bundle; where it finds nothing, they are not there. The answers (imported.py) are read from those files.
"""

from __future__ import annotations

from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.examinations import (
    attribution,
    critical_path,
    device_work,
    fingerprints,
    fusion,
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


def run(session: Session, settings: Analysis, show: Show = SILENT) -> None:
    """Examine the session anew. Raises BadBundle, StorageError."""
    for done, examination in enumerate(IN_ORDER):
        show.progress(done, len(IN_ORDER))
        examination.examine(session, settings)
