"""The table of a decoder at several batches and lengths of prompts, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aaco.report import format

if TYPE_CHECKING:
    from aaco.workflows.decode_sweep import DecodePoint, DecodeSweep

HEAD = f"{'prompt':>9} {'batch':>5}  {'TTFT p50':<23}{'TPOT p50':<23}{'prefill/s':>10}{'decode/s':>10}  session"


def lines(swept: DecodeSweep) -> Iterator[str]:
    """Yield the table, why figures are not in it, and by length of prompt where more at once no longer pay."""
    yield HEAD
    yield from map(_row, swept.points)
    yield ""
    for reason in dict.fromkeys(reading.why_absent for point in swept.points for reading in point.readings
                                if reading.value is None):
        yield f"n/a: {reason}"
    for prompts, curve in swept.curves.items():
        yield f"prompts of {prompts}: saturation at batch {format.reading(curve.saturation_batch)}"
        yield f"prompts of {prompts}: knee at batch {format.reading(curve.transition_batch)}"


def _row(point: DecodePoint) -> str:
    ttft, tpot, prefill, decode, _ = point.readings
    rates = "".join(f"{format.NA if rate.value is None else format.number(rate.value):>10}"
                    for rate in (prefill, decode))
    shown = "".join(f"{format.NA if time.value is None else format.reading(time):<23}" for time in (ttft, tpot))
    return f"{point.prompt_tokens:>9} {point.batch:>5}  {shown}{rates}  {point.session_id}"
