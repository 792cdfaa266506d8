"""The kernel's own account of how long threads waited for a CPU."""

from __future__ import annotations

from pathlib import Path


def waits_ns(pid: int) -> dict[int, int]:
    """Return by living thread its run-queue wait since it began, ns (proc(5): schedstat, the second number)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name): int((task / "schedstat").read_text().split()[1]) for task in tasks}
