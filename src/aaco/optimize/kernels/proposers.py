"""Who proposes changes of a kernel: the rules of edits/, and any command that reads the prompt and prints a patch."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence

from aaco.core.errors import UsageError
from aaco.core.host import NoAnswer, run
from aaco.core.readings import Absent
from aaco.optimize.kernels import edits
from aaco.optimize.kernels.edit_proof import check_edited
from aaco.optimize.kernels.patches import patched
from aaco.optimize.kernels.prompt import KernelPrompt
from aaco.optimize.kernels.source import KernelSource
from aaco.optimize.kernels.variants import Proposal, Refused

COMMAND = "command"  # no rule has this name, so nothing that it adds to a signature is permitted
ANSWER_S, ANSWER_BYTES, STDERR_BYTES = 120.0, 1 << 20, 2000
ATTEMPTS = 2  # after a refusal, with its reason in the prompt


def check_proposal(kernel: KernelSource, proposal: Proposal) -> KernelSource:
    """Return the edited kernel if a proposal changed only what its proposer may. Raise Refused."""
    return check_edited(kernel, proposal.text, edits.permits(proposal.proposer))


def ask_command(command: Sequence[str], kernel: KernelSource, prompt: KernelPrompt, timeout_s: float = ANSWER_S
                ) -> Proposal:
    """Return what a command proposes: it reads the prompt as JSON, and prints a unified diff or the whole function.

    Raise Refused for its answer: no_answer, empty, bad_patch, and those of check_edited; `unchanged` if it is the same.
    Raise UsageError if the command cannot be run.
    """
    text = patched(kernel, _answer(command, prompt, timeout_s))
    proposal = Proposal(f"{command[0].rpartition('/')[2]}'s patch", COMMAND, text)
    check_proposal(kernel, proposal)
    if text == kernel.text:
        raise Refused("unchanged", "the answer changes nothing")
    return proposal


def _answer(command: Sequence[str], prompt: KernelPrompt, timeout_s: float) -> bytes:
    """Return what the command prints. Raise Refused, UsageError."""
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as errors:
        asked.write(json.dumps(prompt.document()).encode())
        asked.seek(0)
        try:
            code, answer = run(command, timeout_s, ANSWER_BYTES, asked, errors)
        except NoAnswer as reason:
            raise Refused("no_answer", str(reason)) from reason
        except Absent as reason:
            if "is not on PATH" in str(reason):
                raise UsageError(f"the proposer cannot be run: {reason}", "name a program with its path") from reason
            raise Refused("no_answer", str(reason)) from reason
        if code:
            errors.seek(0)
            message = "".join(filter(str.isprintable, errors.read(STDERR_BYTES).decode(errors="replace")))[:200]
            ending = f"exits with {code}" if code > 0 else f"was killed by signal {-code}"
            raise Refused("no_answer", f"{command[0]} {ending}: {message or 'no message'}")
    return answer.encode()
