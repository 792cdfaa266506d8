"""The category of a GPU instruction, by its mnemonic (AMD GCN, CDNA and RDNA).

`CATEGORIES` follows the unit that completes an instruction, because that explains a stall: `global_` and `scratch_`
instructions are encoded as FLAT, and trace decoders class them so, but only vector memory ever completes them; they are
vmem here. Sources: AMD's instruction set documents of CDNA 3 and RDNA 3, and LLVM's AMDGPUUsage.
"""

from __future__ import annotations

import re

# The first rule that matches the beginning of the mnemonic decides.
CATEGORIES: tuple[tuple[str, str], ...] = (
    (r"s_barrier|ds_gws_barrier", "barrier"),
    (r"s_wait(?:cnt|_)", "waitcnt"),
    (r"s_sendmsg", "message"),
    (r"s_(?:branch|cbranch|setpc|swappc|call|rfe|subvector_loop)", "branch"),
    (r"s_(?:load|store|buffer|scratch|atomic|dcache|gl1|prefetch|memtime|memrealtime|get_waveid|atc_probe)", "smem"),
    (r"s_(?:nop|sleep|setprio|sethalt|setkill|trap|endpgm|code_end|icache|inst_prefetch|set_inst_prefetch|clause"
     r"|delay_alu|wakeup|ttracedata|incperflevel|decperflevel|version|round_mode|denorm_mode)", "other"),
    (r"s_", "salu"),
    (r"v_(?:mfma|smfmac|wmma|swmmac)", "mfma"),
    (r"v_", "valu"),
    (r"ds_|lds_", "lds"),
    (r"flat_", "flat"),
    (r"buffer_|tbuffer_|global_|scratch_|image_", "vmem"),
)
_RULES = tuple((re.compile(prefix), name) for prefix, name in CATEGORIES)


def category(instruction: str) -> str:
    """Return the category of an instruction's text, as `wave_instructions` names it; "other" if no rule matches."""
    mnemonic = instruction.lstrip().lower()
    return next((name for rule, name in _RULES if rule.match(mnemonic)), "other")
