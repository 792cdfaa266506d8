"""The labels that the scheduler of this process gives it, by core/labels' names."""

from __future__ import annotations

from collections.abc import Mapping

from aaco.core.labels import KUBERNETES, SLURM, kept
from aaco.core.readings import Absent
from aaco.core.redaction import redact, redact_home

# Without these the other variables are somebody else's: Jenkins, for one, has a NODE_NAME, too.
SIGNS = (("SLURM_JOB_ID", SLURM), ("KUBERNETES_SERVICE_HOST", KUBERNETES))


def of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a process's environment gives, credentials redacted. Raise Absent where it gives none."""
    labels: dict[str, str] = {}
    for sign, variables in SIGNS:
        if environ.get(sign):
            labels |= {label: redact(redact_home(environ[name])) for label, names in variables.items()
                       for name in reversed(names) if name in environ}
    if usable := kept(labels):
        return usable
    raise Absent("no job of Slurm and no pod of Kubernetes that names itself: see the guide to fleets")
