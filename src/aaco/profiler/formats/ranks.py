"""Which rank of a distributed run a process was, by the environment variables of its launcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")


def of(environment: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return rank and world size; None if the environment does not state them."""
    return _first_number(environment, RANK), _first_number(environment, WORLD)


def _first_number(environment: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    texts = (str(environment[name]) for name in names if name in environment)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10), None)
