"""The text that a proposer prints becomes the text of a whole source file: of a unified diff, or of the function.

It is data: nothing of it is run, and of a file name in it nothing is opened. Whether it changed only the kernel is for
edit_proof.check_edited to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from aaco.optimize.kernels import lexing
from aaco.optimize.kernels.source import KernelSource, find_kernel
from aaco.optimize.kernels.variants import Refused

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_FENCE = re.compile(rb"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)^[ \t]*(?:```|~~~)[ \t]*\r?$", re.DOTALL | re.MULTILINE)
NO_NEWLINE = rb"\ No newline"


class PatchHunk(Struct, frozen=True):
    """A hunk of a diff. line: where the old lines begin, from 1. Lines are without their ends."""

    line: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


def patched(kernel: KernelSource, answer: bytes) -> bytes:
    """Return the text of the file with a proposer's answer in it. Raise Refused: empty, bad_patch, outside_kernel."""
    fenced = _FENCE.findall(answer)
    if len(fenced) > 1:
        raise Refused("bad_patch", "the answer has several blocks of code: which one is meant is not known")
    text = fenced[0] if fenced else answer
    if not text.strip():
        raise Refused("empty", "the answer is empty")
    if re.search(rb"^@@ ", text, re.MULTILINE):
        return _apply(kernel, text)
    return _with_function(kernel, text)


def _with_function(kernel: KernelSource, text: bytes) -> bytes:
    """Return the file with the function of the answer in the place of its own."""
    offered = find_kernel(text.replace(b"\r\n", b"\n"), kernel.name.decode())
    around = lexing.code(list(lexing.tokens(offered.text[:offered.begin] + b"\n" + offered.text[offered.end:])))
    if around:
        raise Refused("outside_kernel", f"line {lexing.line_of(text, text.find(around[0].text))} of the answer is not "
                                        f"of {kernel.name.decode()}: {lexing.printable(around[0].text)}")
    function = offered.text[offered.begin:offered.end].replace(b"\n", kernel.newline)
    return kernel.replaced((kernel.begin, kernel.end, function))


def _apply(kernel: KernelSource, text: bytes) -> bytes:
    lines = kernel.text.split(b"\n")
    bare = [line.removesuffix(b"\r") for line in lines]
    ends = b"\r" if kernel.newline == b"\r\n" else b""
    shift, done = 0, 0
    for hunk in _hunks(text):
        at = _place(bare, hunk, hunk.line - 1 + shift, done)
        size = len(hunk.old)
        bare[at:at + size] = hunk.new
        lines[at:at + size] = _with_ends(hunk, lines[at:at + size], ends)
        shift += len(hunk.new) - size
        done = at + len(hunk.new)
    return b"\n".join(lines)


def _with_ends(hunk: PatchHunk, replaced: Sequence[bytes], ends: bytes) -> list[bytes]:
    """Return the new lines of a hunk; those which it does not change stay byte for byte."""
    first = next((at for at, (old, new) in enumerate(zip(hunk.old, hunk.new, strict=False)) if old != new),
                 min(len(hunk.old), len(hunk.new)))
    most = min(len(hunk.old), len(hunk.new)) - first
    last = next((at for at in range(most) if hunk.old[-1 - at] != hunk.new[-1 - at]), most)
    changed = [line + ends for line in hunk.new[first:len(hunk.new) - last]]
    return [*replaced[:first], *changed, *replaced[len(hunk.old) - last:]]


def _hunks(text: bytes) -> Iterator[PatchHunk]:
    """Yield the hunks of a diff of one file. Raise Refused: bad_patch."""
    lines = [line.removesuffix(b"\r") for line in text.split(b"\n")]
    if sum(line.startswith(b"+++ ") for line in lines) > 1:
        raise Refused("outside_kernel", "the diff changes more than one file")
    at = next(at for at, line in enumerate(lines) if line.startswith(b"@@ "))
    while at < len(lines):
        match = _HUNK.match(lines[at])
        if match is None:
            if lines[at].strip():
                raise Refused("bad_patch", f"line {at + 1} of the diff is no hunk: {lexing.printable(lines[at])}")
            at += 1
            continue
        begin = at + 1
        at = begin
        counts = [int(match[2] or 1), int(match[4] or 1)]
        while at < len(lines) and (counts[0] > 0 or counts[1] > 0 or lines[at].startswith(NO_NEWLINE)):
            mark = lines[at][:1]
            if mark not in (b" ", b"+", b"-", b"", b"\\"):
                raise Refused("bad_patch", f"line {at + 1} of the diff begins with no mark: "
                                           f"{lexing.printable(lines[at])}")
            counts[0] -= mark in (b" ", b"-", b"")
            counts[1] -= mark in (b" ", b"+", b"")
            at += 1
        inside = [line for line in lines[begin:at] if not line.startswith(b"\\")]
        if counts != [0, 0]:
            raise Refused("bad_patch", f"line {begin} of the diff: the hunk has not the lines that it counts")
        yield PatchHunk(int(match[1]), tuple(line[1:] for line in inside if line[:1] != b"+"),
                        tuple(line[1:] for line in inside if line[:1] != b"-"))


def _place(lines: Sequence[bytes], hunk: PatchHunk, at: int, least: int) -> int:
    """Return the index at which a hunk's old lines: where it says, or the only other place. Raise Refused."""
    size = len(hunk.old)
    if at >= least and tuple(lines[at:at + size]) == hunk.old and size:
        return at
    places = [index for index in range(least, len(lines) - size + 1) if tuple(lines[index:index + size]) == hunk.old]
    if len(places) != 1 or not size:
        raise Refused("bad_patch", f"the lines of the hunk at line {hunk.line} are "
                                   f"{'in several places' if places and size else 'not in the file'}")
    return places[0]
