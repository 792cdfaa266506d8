"""Labels: what a scheduler calls the work that a session was part of, by the same names for Slurm and Kubernetes.

The names are these and no others; a value is one line of at most LONGEST letters. What is in an environment or a bundle
may be anything: what is no such value is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST = 253  # letters: the most that Kubernetes takes for a name
# By label the variables that hold it. Slurm sets its own (sbatch(1), srun(1)). Those of a pod are what its author maps
# from the downward API: these are the names in Kubernetes' documentation and in common use.
SLURM = {"job": ("SLURM_JOB_ID",), "job_name": ("SLURM_JOB_NAME",), "partition": ("SLURM_JOB_PARTITION",),
         "cluster": ("SLURM_CLUSTER_NAME",), "node": ("SLURMD_NODENAME",), "rank": ("SLURM_PROCID",)}
KUBERNETES = {"pod": ("POD_NAME", "MY_POD_NAME"), "namespace": ("POD_NAMESPACE", "MY_POD_NAMESPACE"),
              "node": ("NODE_NAME", "MY_NODE_NAME")}
NAMES = tuple(dict.fromkeys((*SLURM, *KUBERNETES)))


def kept(labels: Any) -> dict[str, str]:
    """Return those of a document's labels that are labels, in the order of NAMES."""
    if not isinstance(labels, Mapping):
        return {}
    return {name: labels[name] for name in NAMES if is_value(labels.get(name))}


def is_value(label: Any) -> bool:
    """Return whether this can be the value of a label."""
    return isinstance(label, str) and 0 < len(label) <= LONGEST and label.isprintable()
