"""Read and write four neighbouring numbers at once, in a loop in which each thread makes elements of its own.

The capture says that it would help: its pointers are aligned and its bound is a multiple of 4. The edited kernel asks
that again and else runs the loop as it was, so no other launch reads beyond the bound or at an odd address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from aaco.core.candidate import Inapplicable
from aaco.core.readings import Absent
from aaco.optimize.kernels import guards
from aaco.optimize.kernels.lexing import NUMBER, WORD, CodeToken
from aaco.optimize.kernels.situation import KernelSituation
from aaco.optimize.kernels.source import ASM, KernelLoop, KernelSource
from aaco.optimize.kernels.variants import Proposal

PERMITS: frozenset[bytes] = frozenset()
WIDTH, ALIGNMENT, MOST_BOUND = 4, 16, 1 << 30
VECTORS = {b"float": b"float4", b"int": b"int4", b"unsigned": b"uint4"}
CHANGES = frozenset((b"=", b"+=", b"-=", b"*=", b"/=", b"%=", b"&=", b"|=", b"^=", b"<<=", b">>=", b"++", b"--"))


class LoopHead(Struct, frozen=True):
    """for (KIND variable = threadIdx.x; variable < bound; variable += step)."""

    kind: bytes
    variable: bytes
    bound: bytes
    step: bytes


class Access(Struct, frozen=True):
    """An access name[prefix + variable]: the bytes that it takes, and those of its prefix; empty without one."""

    name: bytes
    begin: int
    end: int
    prefix: bytes


def proposals(situation: KernelSituation) -> Iterator[Proposal | Inapplicable]:
    """Yield the edit of each loop, or why it cannot be proved."""
    for loop in situation.kernel.loops:
        name = f"vectors of {WIDTH} in the loop at line {loop.line}"
        try:
            yield Proposal(name, "vector_loads", _edited(situation, loop))
        except Absent as reason:
            yield Inapplicable(name, f"Access {WIDTH} numbers at once in the loop at line {loop.line}", str(reason))


def _edited(situation: KernelSituation, loop: KernelLoop) -> bytes:
    """Return the text with the loop in both forms. Raise Absent with the reason if that is not proved to be the same.
    """
    kernel = situation.kernel
    head = _head(kernel, loop)
    _check_threads(situation, head)
    statement = _statement(kernel, loop)
    accesses = _accesses(statement, head.variable)
    target, *sources = accesses
    _check_statement(kernel, loop, statement, target)
    kinds = {access.name: _kind(kernel, access.name, access is target) for access in accesses}
    _check_capture(situation, head, accesses)
    return kernel.replaced((loop.begin, loop.end, _both(kernel, loop, head, statement, target, sources, kinds)))


def _head(kernel: KernelSource, loop: KernelLoop) -> LoopHead:
    texts = [token.text for token in kernel.tokens_in(loop.begin, loop.body[0])]
    if loop.kind == "for" and loop.pragma is None and len(texts) > 16:
        kind, variable, bound = texts[2], texts[3], texts[11]
        form = [b"for", b"(", kind, variable, b"=", b"threadIdx", b".", b"x", b";", variable, b"<", bound, b";",
                variable, b"+="]
        if texts[:15] == form and texts[-1] == b")" and kind in (b"int", b"unsigned"):
            return LoopHead(kind, variable, bound, b"".join(texts[15:-1]))
    raise Absent("it is not of the form for (int i = threadIdx.x; i < n; i += THREADS)")


def _check_threads(situation: KernelSituation, head: LoopHead) -> None:
    """Raise Absent unless the threads of the block share out all elements, one by one."""
    if any(block[1:] != (1, 1) for block in situation.blocks):
        raise Absent("a block has more than one dimension: several threads have one threadIdx.x")
    step = situation.constant(head.step)
    if head.step != b"blockDim.x" and any(block[0] != step for block in situation.blocks):
        raise Absent(f"its step {guards.shown(head.step)} is not known to be the block's size")


def _statement(kernel: KernelSource, loop: KernelLoop) -> list[CodeToken]:
    """Return the tokens of the one statement in the loop, without its semicolon. Raise Absent."""
    inside = kernel.tokens_in(*loop.body)
    if inside and inside[0].text == b"{" and inside[-1].text == b"}":
        inside = inside[1:-1]
    if not inside or inside[-1].text != b";" or sum(token.text == b";" for token in inside) != 1:
        raise Absent("it has more than one statement")
    return inside[:-1]


def _accesses(statement: Sequence[CodeToken], variable: bytes) -> list[Access]:
    """Return what the statement accesses by the variable, what it assigns first. Raise Absent."""
    accesses, at = [], 0
    while at < len(statement):
        token = statement[at]
        if token.text == variable:
            raise Absent(f"{guards.shown(variable)} is used for more than an index")
        if at + 1 < len(statement) and statement[at + 1].text == b"[" and token.kind == WORD:
            access, at = _access(statement, at, variable)
            accesses.append(access)
            continue
        if token.text == b"[":
            raise Absent("it indexes what is no name")
        at += 1
    if not accesses or accesses[0].begin != statement[0].begin:
        raise Absent("it does not assign an element")
    return accesses


def _access(statement: Sequence[CodeToken], at: int, variable: bytes) -> tuple[Access, int]:
    """Return the access that begins at an index, and the index after it. Raise Absent."""
    close = next((index for index in range(at + 2, len(statement)) if statement[index].text == b"]"), None)
    inside = statement[at + 2:close]
    name = statement[at].text
    if close is None or not inside or inside[-1].text != variable or any(part.text == variable for part in inside[:-1]):
        raise Absent(f"an index of {guards.shown(name)} is not {guards.shown(variable)}, nor a sum that ends in it")
    prefix = inside[:-1]
    plain = frozenset((b"(", b")", b"*", b"+", b"-", b"."))
    if prefix and (prefix[-1].text != b"+" or any(token.text not in plain and token.kind not in (WORD, NUMBER)
                                                  for token in prefix)
                   or any(left.kind == WORD and right.text == b"(" for left, right in pairwise(prefix))):
        raise Absent(f"an index of {guards.shown(name)} is more than products and sums")
    if close + 1 < len(statement) and statement[close + 1].text in (b"[", b".", b"++", b"--"):
        raise Absent(f"an element of {guards.shown(name)} is not used as a number")
    return Access(name, statement[at].begin, statement[close].end,
                  b" ".join(token.text for token in prefix[:-1])), close + 1


def _check_statement(kernel: KernelSource, loop: KernelLoop, statement: Sequence[CodeToken], target: Access) -> None:
    """Raise Absent unless it is an assignment of an element that nothing else in the kernel reads or writes."""
    after = [token for token in statement if token.begin >= target.end]
    if not after or after[0].text != b"=" or any(token.text in CHANGES for token in after[1:]):
        raise Absent("it is not one assignment of an element")
    words = guards.words_in(kernel, *loop.body)
    for word, why in ((guards.barriers(words), "makes threads wait for each other"),
                      (guards.atomics(words), "must keep its order"),
                      (guards.lanes(words), "depends on which threads are in a wave"),
                      (guards.any_of(words, ASM), "may do anything"),
                      (guards.any_of(words, guards.EXITS & kernel.words), "leaves the loop early"),
                      (b"volatile" if b"volatile" in kernel.words else None, "says that others write this memory")):
        if word:
            raise Absent(f"{guards.shown(word)} {why}")
    if sum(token.text == target.name for token in kernel.body_tokens) > 1:
        raise Absent(f"{guards.shown(target.name)} is used elsewhere in the kernel, by another thread perhaps")


def _kind(kernel: KernelSource, name: bytes, is_target: bool) -> bytes:
    """Return the type of the elements that a name points to. Raise Absent if it is not a pointer to plain numbers."""
    kinds = [parameter.kind for parameter in kernel.parameters if parameter.name == name and parameter.is_pointer]
    body = kernel.body_tokens
    for at in range(2, len(body) - 1):
        if [body[at - 1].text, body[at].text, body[at + 1].text] == [b"*", name, b"="]:
            kinds += [(b"const",) * (body[at - 3].text == b"const") + (body[at - 2].text, b"*")]
    if len(kinds) != 1 or kernel.declared[name] != 1 or (is_target and kinds[0][0] == b"const"):
        raise Absent(f"what {guards.shown(name)} points to is not known")
    plain = [word for word in kinds[0] if word not in (b"const", b"*", b"__restrict__", b"__restrict")]
    if len(plain) != 1 or plain[0] not in VECTORS:
        raise Absent(f"{guards.shown(name)} does not point to numbers of 4 bytes")
    return plain[0]


def _check_capture(situation: KernelSituation, head: LoopHead, accesses: Sequence[Access]) -> None:
    """Raise Absent unless the captured launch would take the new form."""
    kernel, body = situation.kernel, situation.kernel.body_tokens
    if situation.no_arguments:
        raise Absent(situation.no_arguments)
    if head.bound not in situation.integers:
        raise Absent(f"its bound {guards.shown(head.bound)} is no number that the capture holds")
    uses = [at for at, token in enumerate(body) if token.text == head.bound]
    if kernel.declared[head.bound] > 1 or any(
            {part.text for part in body[at + 1:at + 2]} & CHANGES or {part.text for part in body[max(0, at - 1):at]}
            & {b"++", b"--", b"&"} for at in uses):
        raise Absent(f"its bound {guards.shown(head.bound)} may change")
    if (bound := situation.integers[head.bound]) % WIDTH:
        raise Absent(f"its bound {guards.shown(head.bound)} was {bound}, no multiple of {WIDTH}")
    for name in {access.name for access in accesses}:
        origin = next((part for part in _origins(kernel, name) if part in situation.targets), None)
        if origin is None:
            raise Absent(f"{guards.shown(name)} comes from no pointer that the capture holds")
        if (address := situation.targets[origin].address) % ALIGNMENT:
            raise Absent(f"{guards.shown(origin)} was at {address:#x}, which is no multiple of {ALIGNMENT}")


def _origins(kernel: KernelSource, name: bytes) -> Iterator[bytes]:
    """Yield the name, and the words of what it is initialised with."""
    yield name
    body = kernel.body_tokens
    for at in range(1, len(body) - 1):
        if body[at].text == name and body[at - 1].text == b"*" and body[at + 1].text == b"=":
            for token in body[at + 2:]:
                if token.text in (b";", b","):
                    return
                if token.kind == WORD:
                    yield token.text


def _both(kernel: KernelSource, loop: KernelLoop, head: LoopHead, statement: Sequence[CodeToken], target: Access,
          sources: Sequence[Access], kinds: dict[bytes, bytes]) -> bytes:
    """Return the loop in vectors where the pointers and the bound allow it, and else as it was."""
    fresh = b"vector"
    while any(word.startswith(fresh) for word in kernel.words):
        fresh += b"_"
    distinct = list(dict.fromkeys((source.name, source.prefix) for source in sources))
    names = {access: b"%s_%d" % (fresh, number) for number, access in enumerate(distinct)}
    places = dict.fromkeys([(target.name, target.prefix), *distinct])
    aligned = b" | ".join(b"(unsigned long long)&%s[%s]" % (name, prefix or b"0") for name, prefix in places)
    v, result = head.variable, fresh + b"_result"
    inner = [b"%s %s = *(const %s *)&%s[%s];" % (VECTORS[kinds[name]], names[name, prefix], VECTORS[kinds[name]], name,
                                                 _index(prefix, v)) for name, prefix in distinct]
    inner.append(b"%s %s;" % (VECTORS[kinds[target.name]], result))
    begin = statement[0].begin
    for lane in (b"x", b"y", b"z", b"w"):
        text, last = b"", target.end
        for source in sources:
            text += kernel.text[last:source.begin] + names[source.name, source.prefix] + b"." + lane
            last = source.end
        inner.append(result + b"." + lane + text + kernel.text[last:statement[-1].end] + b";")
    assert begin == target.begin
    inner.append(b"*(%s *)&%s[%s] = %s;" % (VECTORS[kinds[target.name]], target.name, _index(target.prefix, v), result))
    line = kernel.newline
    vectors = b"for (%s %s = %d * threadIdx.x; %s < %s; %s += %d * (%s)) {%s%s%s}" % (
        head.kind, v, WIDTH, v, head.bound, v, WIDTH, head.step, line, line.join(inner), line)
    condition = b"%s <= %d && %s %% %d == 0 && ((%s) & %d) == 0" % (
        head.bound, MOST_BOUND, head.bound, WIDTH, aligned, ALIGNMENT - 1)
    return b"{ if (%s) {%s%s%s} else %s }" % (condition, line, vectors, line, kernel.text[loop.begin:loop.end])


def _index(prefix: bytes, variable: bytes) -> bytes:
    return prefix + b" + " + variable if prefix else variable
