"""The table of a decoder or a server at several contexts and requests at once, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aaco.report import format
from aaco.report.sections import load_energy

if TYPE_CHECKING:
    from aaco.workflows.decode_sweep import DecodePoint, DecodeSweep

TIMES = ("ttft_p50_ms", "tpot_p50_ms")
RATES = {"batch": {"prefill_tokens_per_s": "prefill/s", "decode_tokens_per_s": "decode/s"},
         "concurrency": {"output_tokens_per_s": "tokens/s"}}
AT_ONCE = {"batch": "batch", "concurrency": "open"}


def lines(swept: DecodeSweep) -> Iterator[str]:
    """Yield the table, why figures are not in it, where more at once no longer pay, and what the context adds."""
    rates = RATES[swept.at_once]
    yield (f"{'prompt':>9} {AT_ONCE[swept.at_once]:>5}  {'TTFT p50':<23}{'TPOT p50':<23}"
           f"{''.join(f'{title:>10}' for title in rates.values())}  session")
    yield from (_row(point, list(rates)) for point in swept.points)
    yield ""
    energies = [{reading.metric: reading for reading in point.readings} for point in swept.points]
    for point, readings in zip(swept.points, energies, strict=True):
        if energy := load_energy.text(readings):
            yield from format.hung(f"{point.prompt_tokens:>9} {point.batch:>5}  ", energy)
    for reason in dict.fromkeys(reading.why_absent for point in swept.points for name in (*TIMES, *rates)
                                if (reading := point.reading(name)).value is None):
        yield f"n/a: {reason}"
    if why_no_energy := load_energy.absent(energies):
        yield f"energy n/a: {why_no_energy}"
    for prompts, curve in swept.curves.items():
        yield f"prompts of {prompts}: saturation at {swept.at_once} {format.reading(curve.saturation_batch)}"
        yield f"prompts of {prompts}: knee at {swept.at_once} {format.reading(curve.transition_batch)}"
    for at_once, slope in swept.slopes.items():
        yield f"{swept.at_once} {at_once}: 1,000 tokens of context add {format.reading(slope)} to a token"


def _row(point: DecodePoint, rates: list[str]) -> str:
    shown = [f"{format.NA if time.value is None else format.reading(time):<23}" for time in map(point.reading, TIMES)]
    shown += [f"{format.NA if rate.value is None else format.number(rate.value):>10}"
              for rate in map(point.reading, rates)]
    return f"{point.prompt_tokens:>9} {point.batch:>5}  {''.join(shown)}  {point.session_id}"
