"""The proof that an edit changed nothing of a file but one kernel's body."""

from __future__ import annotations

from collections.abc import Sequence

from aaco.optimize.kernels import lexing
from aaco.optimize.kernels.grammar import LAUNCH_BOUNDS, PRAGMAS
from aaco.optimize.kernels.lexing import DIRECTIVE, CodeToken, line_of
from aaco.optimize.kernels.source import ASM, RESTRICT, RESTRICTS, KernelSource, find_kernel, is_unroll
from aaco.optimize.kernels.variants import Refused


def check_edited(old: KernelSource, after: bytes, permitted: frozenset[bytes] = frozenset()) -> KernelSource:
    """Return the kernel of an edited file if nothing but its body changed. Raise Refused.

    Bytes outside of the definition are compared, its signature token by token, and directives in its body, as they act
    on what follows the kernel.
    """
    before, name = old.text, old.name.decode()
    new = find_kernel(after, name, old.headers)
    if before[:old.begin] != after[:new.begin] or before[old.end:] != after[new.end:]:
        at = _first_difference(before[:old.begin], after[:new.begin], before[old.end:], after[new.end:], new.end)
        raise Refused("outside_kernel", f"line {line_of(after, at)} outside of {name} is changed")
    if _comparable(old.signature, permitted) != _comparable(new.signature, permitted):
        raise Refused("signature", f"line {line_of(after, new.begin)}: the signature of {name} is changed: "
                                   f"{_shown(old.signature, new.signature)}")
    kept, directives = _directives(old), _directives(new)
    if [text for _, text in kept] != [text for _, text in directives]:
        changed = next((position for position, text in directives if text not in {part for _, part in kept}), new.begin)
        raise Refused("directive", f"line {line_of(after, changed)}: a directive acts on what follows the kernel; only "
                                   "unroll pragmas may be changed")
    old_statements = {text for _, text in _assembly(old)}
    if added := next((at for at, text in _assembly(new) if text not in old_statements), 0):
        raise Refused("assembly", f"line {line_of(after, added)}: inline assembly is added, which can read files where "
                                  "it is compiled")
    return new


def _directives(kernel: KernelSource) -> list[tuple[int, bytes]]:
    """Return position and text of each directive in a body that is no plain unroll pragma."""
    read = kernel.body_tokens
    return [(token.begin, b"".join(part.text for part in read[at:at + (1 if token.kind == DIRECTIVE else 4)]))
            for at, token in enumerate(read) if token.text in PRAGMAS
            or (token.kind == DIRECTIVE and not is_unroll(token.text))]


def _assembly(kernel: KernelSource) -> list[tuple[int, bytes]]:
    """Return position and text of each statement of inline assembly in a body."""
    read = kernel.body_tokens
    collected = []
    for at, token in enumerate(read):
        if token.text in ASM:
            end = next((index for index in range(at, len(read)) if read[index].text == b";"), len(read))
            collected.append((token.begin, b" ".join(part.text for part in read[at:end])))
    return collected


def _comparable(signature: Sequence[CodeToken], permitted: frozenset[bytes]) -> list[bytes]:
    """Return the tokens without those that may be added."""
    texts, at, closings = [], 0, lexing.closings(signature)
    while at < len(signature):
        text = signature[at].text
        if text == LAUNCH_BOUNDS and text in permitted:
            at = closings.get(at + 1, at) + 1
            continue
        if not (text in RESTRICTS and RESTRICT in permitted):
            texts.append(text)
        at += 1
    return texts


def _shown(before: Sequence[CodeToken], after: Sequence[CodeToken]) -> str:
    for old, new in zip(before, after, strict=False):
        if old.text != new.text:
            return f"{lexing.printable(old.text)} became {lexing.printable(new.text)}"
    longer = max(before, after, key=len)[min(len(before), len(after)):]
    return f"{lexing.printable(longer[0].text)} is {'added' if len(after) > len(before) else 'gone'}"


def _first_difference(head: bytes, new_head: bytes, tail: bytes, new_tail: bytes, tail_begin: int) -> int:
    """Return the byte of the edited text at which what is outside first differs."""
    if head != new_head:
        return _common(head, new_head)
    return tail_begin + _common(tail, new_tail)


def _common(left: bytes, right: bytes) -> int:
    """Return how many bytes two texts begin with in common."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low
