"""Options of the compiler that leave what is computed as it is: registers of a thread, and the assembler's level.

Fast math and -fmad stay as the build has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import Inapplicable
from aaco.optimize.kernels import guards
from aaco.optimize.kernels.grammar import LAUNCH_BOUNDS
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.variants import Proposal

PERMITS: frozenset[bytes] = frozenset()
REGISTERS = (32, 48, 64, 96, 128)
PTXAS_LEVELS = (1, 2)  # 3 is its default
LEVELS = ("-O1", "-O2", "-Os")


def proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield each option, or why it says nothing here."""
    text = situation.kernel.text
    if situation.vendor != "NVIDIA":
        for level in LEVELS:
            if level not in situation.options:
                yield Proposal(f"compiled with {level}", "compiler_options", text, (level,))
        return
    if why := _against_registers(situation):
        yield Inapplicable("maxrregcount", "Limit the registers of a thread", why)
    else:
        for count in REGISTERS:
            yield Proposal(f"at most {count} registers", "compiler_options", text, (f"-maxrregcount={count}",))
    if any(option.startswith(("-Xptxas", "--ptxas-options")) for option in situation.options):
        yield Inapplicable("ptxas", "Lower the assembler's level", "the build has options for ptxas of its own")
        return
    for ptxas_level in PTXAS_LEVELS:
        yield Proposal(f"ptxas -O{ptxas_level}", "compiler_options", text, ("-Xptxas", f"-O{ptxas_level}"))


def _against_registers(situation: KernelSituation) -> str:
    if any("maxrregcount" in option for option in situation.options):
        return "the build limits them already"
    if any(token.text == LAUNCH_BOUNDS for token in situation.kernel.signature):
        return "its launch bounds decide, and the option would be ignored"
    if guards.is_recursive(situation.kernel):
        return "a function that it calls is recursive: its stack grows with what registers do not hold"
    return ""
