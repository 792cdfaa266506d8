"""Moves interrupts to CPUs outside the laboratory (Documentation/core-api/irq/irq-affinity.rst)."""

from __future__ import annotations

import errno

from aaco.core.host import cpu_list, text
from aaco.core.readings import Absent, known
from aaco.laboratory.knobs.knob import FileKnob, NotHere, Want, listed


class Interrupts(FileKnob):
    """The CPUs of each interrupt. An interrupt that its driver manages refuses (EPERM, EIO): the others still count."""

    name = "interrupts"
    meaning = "interrupts are served by other CPUs"

    def wishes(self, want: Want) -> dict[str, str]:
        folder = self.host.proc / "irq"
        lists = sorted(folder.glob("[0-9]*/smp_affinity_list"), key=lambda path: int(path.parent.name))
        if not lists:
            raise NotHere(f"{folder}: no interrupt")
        others = set(cpu_list(text(self.host.cpus / "online"))) - set(want.cpus)
        if not others:
            raise Absent("every CPU is the laboratory's: no other is left to serve interrupts")
        return {str(path): listed(others) for path in lists
                if {*cpu_list(known(text, path) or "")} & {*want.cpus}}

    def read(self, target: str) -> str:
        return listed(set(cpu_list(super().read(target))))

    def excused(self, reason: Absent) -> bool:
        return isinstance(reason.__cause__, OSError) and reason.__cause__.errno in (errno.EPERM, errno.EIO)

    def note(self) -> str:
        names = (known(text, path) for path in self.host.proc.glob("[0-9]*/comm"))
        return "irqbalance runs and may move them back" if "irqbalance" in names else ""
