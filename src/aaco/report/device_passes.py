"""How kernels of an NVIDIA device were timed and named, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format
from aaco.report.rows import Row

TITLE = "Kernels of the device"
FILE = "how kernels were timed in one pass and named by another: sequences, what was joined, what has no node"


def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """The one section."""
    yield TITLE, list(_absent(document) if "why_absent" in document else _rows(document))


def _absent(document: Mapping[str, Any]) -> Iterator[Row]:
    yield Row("Not traced", str(document["why_absent"]))


def _rows(document: Mapping[str, Any]) -> Iterator[Row]:
    timed, profiled = document["timed"], document["profiled"]
    of, same = timed["inferences"], document["identical"]
    yield Row("Timed", f"{format.plural(timed['kernels'], 'kernel')} in {format.plural(of, 'inference')}, by CUPTI in "
                       f"a pass of their own: {format.duration(timed['ns'] // of)} per inference, the device at work "
                       f"{_share(timed['busy_ns'], document['wall_ns'])} of the time")
    pace = document["latency_ms"]
    plain = document.get("plain_latency_ms")
    slower = f", {_slower(pace, plain)} than without a tracer" if plain else ""
    yield Row("Its cost", f"{format.number(pace)} ms per inference in that pass{slower}")
    yield Row("Named", f"by the profiled pass ({format.plural(profiled['inferences'], 'inference')}): the same "
                       f"sequence of kernels in {same:,} of {of:,} inferences{_parted(document)}; "
                       f"{_share(document['named_ns'], timed['ns'])} of the kernel time has a node")
    for why, count in document["unnamed"].items():
        yield Row("Without a node", f"{format.plural(count, 'kernel')} of the profiled pass: {why}")
    if document["host_nodes"]:
        yield Row("On the host", f"{format.plural(document['host_nodes'], 'node')} of the CPU provider: their time is "
                                 "in the profile, and not among these kernels")
    for problem in document["problems"]:
        yield Row("Lost", problem)


def _parted(document: Mapping[str, Any]) -> str:
    if not document["aligned"]:
        return ""
    return (f", {document['aligned']:,} aligned (they part at kernel {document['first_difference']:,} first)"
            if document["first_difference"] is not None else f", {document['aligned']:,} aligned")


def _share(part: int, whole: int) -> str:
    return format.percent(part / whole) if whole else "no share"


def _slower(pace: float, plain: float) -> str:
    return f"{abs(pace / plain - 1):.0%} {'slower' if pace >= plain else 'faster'}"
