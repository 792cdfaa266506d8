"""Whether a capture is what was captured: every page against its digest, and the launch against its code object."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.replay.capture import KernelCapture
from aaco.replay.code import CodeLayout, read_code
from aaco.replay.documents import CapturedRegion, When, pages_of


class CaptureVerification(Struct, frozen=True):
    """What was checked, and what is wrong with it. digests: of pages; none in captures of the first format."""

    pages: int
    digests: int
    problems: tuple[str, ...]


def verify(capture: KernelCapture) -> CaptureVerification:
    """Read all of a capture. Raise StorageError."""
    problems: list[str] = []
    pages, seen = 0, set[tuple[str, int]]()
    for region, when, number, digest in _list_pages(capture):
        pages += 1
        size = min(capture.document.page_bytes, region.size - number * capture.document.page_bytes)
        if digest is not None and (digest, size) in seen:
            continue
        seen.add((digest or "", size))
        try:
            capture.page(region, when, number)
        except BadCapture as error:
            problems.append(error.what)
    problems += [f"{capture.path}: {name} is named nowhere in capture.json" for name in sorted(capture.unused_blobs())]
    problems += _check_code(capture)
    return CaptureVerification(pages, len({digest for digest, _ in seen} - {""}), tuple(problems))


def _list_pages(capture: KernelCapture) -> Iterator[tuple[CapturedRegion, When, int, str | None]]:
    states: tuple[When, When] = ("before", "after")
    for region in capture.regions:
        for when in states:
            digests = region.before if when == "before" else region.after
            if digests is not None:
                yield from ((region, when, number, digest) for number, digest in enumerate(digests))
            elif when == "before":
                yield from ((region, when, number, None)
                            for number in range(pages_of(region, capture.document.page_bytes)))


def _check_code(capture: KernelCapture) -> list[str]:
    """Return where the launch and the variables do not fit the code object."""
    try:
        layout = read_code(capture.path, capture.document.code.kind, capture.code())
    except BadCapture as error:
        return [error.what]
    return list(_compare(capture, layout))


def _compare(capture: KernelCapture, layout: CodeLayout) -> Iterator[str]:
    launch, isa = capture.launch, capture.document.captured_from.isa
    symbol = launch.symbol.removesuffix(".kd")
    if layout.isa is not None and not isa.startswith(layout.isa):
        yield f"{capture.path}: its code is for {layout.isa}, it was captured on {isa}"
    if symbol not in layout.arguments:
        yield f"{capture.path}: its code has no kernel {symbol[:200]}"
        return
    places = layout.arguments[symbol]
    if places is not None and launch.layout is not None and places != launch.layout:
        yield f"{capture.path}: its arguments lie elsewhere than the code object of {symbol[:200]} has them"
    if places and max(place.offset + place.size for place in places) * 2 > len(launch.arguments):
        yield f"{capture.path}: {len(launch.arguments) // 2} bytes of arguments are fewer than {symbol[:200]} takes"
    for region in capture.regions:
        if region.symbol and layout.variables.get(region.symbol, region.size) != region.size:
            yield f"{capture.path}: its code has {region.symbol[:200]} of another size than {region.size} bytes"
