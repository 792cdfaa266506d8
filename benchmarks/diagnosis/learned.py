"""A learned classifier against the rules: multinomial logistic regression on the shares of the time budget.

Trained on the labelled recordings of all workloads but one, judged on that one, as the rules are. It is here to be
beaten: the product ships the rules. Part of `python -m benchmarks.diagnosis`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from benchmarks.claims import Claim
from benchmarks.diagnosis.classify import trusted
from benchmarks.diagnosis.recordings import Recording, recordings
from benchmarks.intervals import wilson

FEATURES = ("compute_limited_pct", "memory_limited_pct", "memory_latency_limited_pct", "transfer_limited_pct",
            "launch_tax_pct", "host_pause_pct", "sync_limited_pct", "microkernel_time_pct", "allocation_call_pct")
RIDGE = 1e-2
Reals = NDArray[np.float64]


def claims(captures: Path) -> list[Claim]:
    """How many held-out recordings the model gets right."""
    found = trusted(list(recordings(captures)))
    right = sum(_judged(found, workload) for workload in dict.fromkeys(one.workload for one in found))
    low, high = wilson(right, len(found))
    return [Claim("a learned model (logistic regression), workload left out: top-1", "(the rules' figure)",
                  f"{right} of {len(found)} [{100 * low:.0f}, {100 * high:.0f}] %", None)]


def _judged(found: Sequence[Recording], workload: str) -> int:
    """Right answers on one workload by a model trained on the others."""
    train, test = ([one for one in found if (one.workload == workload) == held] for held in (False, True))
    labels = sorted({one.label for one in train})
    weights = _fit(_features(train), np.array([labels.index(one.label) for one in train]), len(labels))
    chosen = (_features(test) @ weights).argmax(axis=1)
    return sum(labels[index] == one.label for index, one in zip(chosen.tolist(), test, strict=True))


def _features(found: Sequence[Recording]) -> Reals:
    """Shares of 1 with a constant; what is absent is 0 here, as a model knows no absence."""
    rows = [[(one.readings[name].value or 0.0) / 100 for name in FEATURES] for one in found]
    return np.column_stack([np.array(rows), np.ones(len(rows))])


def _fit(features: Reals, label: NDArray[np.int64], labels: int) -> Reals:
    """Weights of least loss with a ridge penalty."""
    shape, at = (features.shape[1], labels), np.arange(len(label))

    def loss(flat: Reals) -> float:
        scores = features @ flat.reshape(shape)
        return float((logsumexp(scores, axis=1) - scores[at, label]).mean() + RIDGE * (flat**2).sum())

    return np.asarray(minimize(loss, np.zeros(shape[0] * shape[1]), method="L-BFGS-B").x).reshape(shape)
