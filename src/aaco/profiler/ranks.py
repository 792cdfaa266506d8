"""Which rank of a distributed run a process was, by what its launcher put into its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")


def of(environment: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size; None for what the environment does not say."""
    return _first(environment, RANK), _first(environment, WORLD)


def _first(environment: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = (str(environment[name]) for name in names if name in environment)
    return next((int(text) for text in found if text.isascii() and text.isdigit() and len(text) < 10), None)
