"""What of a capture became no row, by the parser's own account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KERNEL = "kernel"  # of executions every format counts kernels; one that is in a file twice is `again` there


def executions_left_out(facts: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the executions of a capture that became no row, (count, ns) by reason."""
    return {reason: (part["count"], part["ns"]) for reason, part in facts.get("left_out", {}).items()
            if reason.partition(":")[0] == KERNEL}
