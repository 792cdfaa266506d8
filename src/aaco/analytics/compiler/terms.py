"""A function of any compiler's text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct, field

from aaco.core.records import as_dict


class CompiledFunction(Struct):
    """blocks: basic blocks; operations by name. workgroup: threads along x, y, z, or one number for all; lds_bytes:
    memory that a workgroup shares. calls: functions that it calls, by name, and how often."""

    name: str
    is_kernel: bool = False
    blocks: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    workgroup: tuple[int, ...] | None = None
    lds_bytes: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the JSON form: operations and calls most frequent first."""
        return as_dict(self) | {"operations": dict(self.operations.most_common()),
                               "calls": dict(self.calls.most_common()), "total": self.operations.total(),
                               "workgroup": list(self.workgroup) if self.workgroup else None}
