"""What a proposer is given to read: the kernel, its launch, and what limits it, without credentials and paths.

The text of the kernel goes out as it is but for credentials, comments included; a proposer is the
user's own choice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from aaco.core.records import as_dict
from aaco.core.redaction import redact, redact_json
from aaco.optimize.kernels.lexing import WORD
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.source import KernelSource
from aaco.optimize.kernels.variants import Refused, Resources

VERSION = 1
ASK = ("Change the body of the kernel so that it takes less time and computes the same, to the last bit if you can. "
       "Keep its signature and everything outside of it. Answer with a unified diff of the file, or with the whole "
       "function, and nothing else.")
_FOLDERS = re.compile(r"(?<![\w.)/:])(?:~|/)(?:[\w.@%+-]+/)+(?=[\w.@%+-])")  # of absolute paths


class KernelPrompt(Struct, frozen=True):
    """What is known of a kernel, for a proposer. why_absent: of the facts that are not known, and why."""

    name: str
    file: str
    line: int
    source: str
    macros: dict[str, str]
    signature: str
    facts: dict[str, Any]
    why_absent: dict[str, str]
    refused: list[dict[str, str]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the prompt as a JSON document, redacted."""
        document: dict[str, Any] = {"schema_version": VERSION, "task": ASK} | as_dict(self)
        return _without_folders(redact_json(document | {"source": redact(self.source)}))

    def markdown(self) -> str:
        """Return the prompt as text, redacted."""
        document = self.document()
        facts = [f"- {name}: {value}" for name, value in document["facts"].items() if value is not None]
        absent = [f"- {name}: not known, {why}" for name, why in document["why_absent"].items()]
        macros = [f"#define {name}{replacement}" for name, replacement in document["macros"].items()]
        refused = [f"- refused before: {refusal['reason']}: {refusal['detail']}" for refusal in document["refused"]]
        code = ["```cpp", *macros, document["source"], "```"]
        title = f"# {document['name']} in {document['file']}, line {document['line']}"
        return "\n".join([title, "", ASK, "", *code, "", *facts, *absent, *refused]) + "\n"


def kernel_prompt(kernel: KernelSource, file: str, situation: KernelSituation | None, resources: Resources | None,
                  why_no_resources: str = "", profile: dict[str, Any] | None = None,
                  refused: Sequence[Refused] = ()) -> KernelPrompt:
    """Return the prompt of a kernel. profile: the document of `rocm-perf profile`; refused: what was tried before."""
    facts: dict[str, Any] = {}
    why: dict[str, str] = {}
    if situation is None:
        why["launch"] = "no capture is given"
    else:
        facts |= {"device": situation.arch, "grid": list(situation.grid), "block": list(situation.block),
                  "dynamic_shared_bytes": situation.dynamic_bytes,
                  "arguments": {name.decode(): value for name, value in situation.integers.items()} or None}
    if resources is None:
        why["resources"] = why_no_resources or "it was not compiled"
    else:
        facts |= {"registers": resources.registers, "spill_bytes": resources.spill_bytes,
                  "shared_bytes": resources.shared_bytes}
    if profile is None:
        why["profile"] = "no session is given"
    else:
        facts["profile"] = profile
    return KernelPrompt(kernel.name.decode(), file, kernel.line(kernel.begin),
                        kernel.text[kernel.begin:kernel.end].decode(errors="replace"), _macros(kernel),
                        b" ".join(token.text for token in kernel.signature).decode(errors="replace"), facts, why,
                        [{"reason": refusal.reason, "detail": refusal.detail} for refusal in refused])


def _macros(kernel: KernelSource) -> dict[str, str]:
    """Return the macros that the kernel names, with their replacements."""
    named = {token.text for token in kernel.read if token.kind == WORD} & kernel.macros.keys()
    return {name.decode(): kernel.macros[name].decode(errors="replace") for name in sorted(named)}


def _without_folders(content: Any) -> Any:
    """Return a document with every absolute path cut to its last name."""
    if isinstance(content, str):
        return _FOLDERS.sub("", content)
    if isinstance(content, dict):
        return {_without_folders(key): _without_folders(entry) for key, entry in content.items()}
    return [_without_folders(entry) for entry in content] if isinstance(content, list) else content
