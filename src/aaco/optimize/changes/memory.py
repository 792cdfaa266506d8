"""How ONNX Runtime gets memory for tensors: one block planned ahead, and an arena that keeps what was freed."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import Candidate, Inapplicable, unless
from aaco.core.providers import CPU
from aaco.optimize.situation import Situation

PATTERN, ARENA = "session.enable_mem_pattern", "session.enable_cpu_mem_arena"


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield the two changes, each away from what the session has, or why it is not there to try."""
    yield unless(_switched(situation, PATTERN, "mem_pattern", "planning memory from the sizes of earlier inferences"),
                 (situation.has("session.execution_mode", "parallel"),
                  "operators that run at the same time have no pattern of memory"))
    yield unless(_switched(situation, ARENA, "cpu_arena", "the arena of the host's memory"),
                 (situation.provider != CPU, "its tensors lie in memory of the provider's own"))


def _switched(situation: Situation, setting: str, name: str, what: str) -> Candidate:
    if situation.has(setting, "true"):
        return Candidate(f"no_{name}", f"Go without {what}", {setting: "false"})
    return Candidate(name, f"Use {what}", {setting: "true"})
