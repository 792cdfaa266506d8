"""`aaco try --all` on a real GPU: what it keeps of two models is judged again, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from aaco.workflows.try_advice import TryRequest
from benchmarks.claims import Claim
from benchmarks.try_advice import zoo

MODELS = ("resnet50", "bert-base")
BUDGET_S = 420.0
ACCEPTED = 0.006  # float16 differs by as much of the largest element
REQUEST = TryRequest(everything=True, budget_s=BUDGET_S, seed=1, accept_error=ACCEPTED)


def claims(captures: Path) -> Iterator[Claim]:
    """Search for about seven minutes a model."""
    with tempfile.TemporaryDirectory(prefix="aaco-gpu-try-") as folder:
        for name in MODELS:
            yield from zoo.of_model(Path(folder) / name, name, REQUEST, "cuda")
