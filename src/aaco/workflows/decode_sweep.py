"""A decoder at several batches and lengths of prompts: one ordinary session for each pair, in random order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from aaco.analytics.what_if.sweep import BatchCurve, BatchPoint, curve, described
from aaco.core.config import Settings
from aaco.core.readings import Reading
from aaco.core.show import SILENT, Show
from aaco.llm.prompts import Lengths
from aaco.workflows.decode_run import DecodeRequest, ask_decoder

SHOWN = ("ttft_p50_ms", "tpot_p50_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s")


class DecodePoint(NamedTuple):
    """One session: its batch, the lengths of its prompts as they were given, and its readings of SHOWN."""

    batch: int
    prompt_tokens: str
    session_id: str
    readings: tuple[Reading, ...]

    def document(self) -> dict[str, Any]:
        """Return the point as JSON."""
        return {"batch": self.batch, "prompt_tokens": self.prompt_tokens, "session_id": self.session_id,
                **{reading.metric: {"value": reading.value, "low": reading.low, "high": reading.high,
                                    "why_absent": reading.why_absent or None}
                   for reading in self.readings}}


class DecodeSweep(NamedTuple):
    """The points by length of prompt and batch, and by length what more requests at once bring to decoding."""

    points: tuple[DecodePoint, ...]
    curves: dict[str, BatchCurve]

    def document(self) -> dict[str, Any]:
        """Return the sweep as JSON."""
        return {"schema_version": 1, "points": [point.document() for point in self.points],
                "curves": {prompts: {"saturation_batch": described(by_batch.saturation_batch),
                                     "transition_batch": described(by_batch.transition_batch)}
                           for prompts, by_batch in self.curves.items()}}


def sweep(request: DecodeRequest, batches: Sequence[int], prompts: Sequence[str], settings: Settings, tag: str = "",
          show: Show = SILENT) -> DecodeSweep:
    """Measure every pair; the order is shuffled by the seed of the request, so that a machine that slows down does not
    look like an effect. Raise AacoError."""
    for length in prompts:
        Lengths.parse(length, "--prompt-tokens")
    pairs = list(product(dict.fromkeys(prompts), sorted(set(batches))))
    order = random.Random(request.seed).sample(pairs, len(pairs))
    points = {}
    for at, (length, batch) in enumerate(order, 1):
        show.step(f"batch {batch}, prompts of {length} ({at} of {len(order)})")
        run = ask_decoder(replace(request, batch=batch, prompt_tokens=length), settings, tag or "sweep-llm", show)
        points[length, batch] = DecodePoint(batch, length, run.session.id, tuple(run.metrics[name] for name in SHOWN))
    ordered = tuple(points[pair] for pair in pairs)
    made = {length: [place for point in ordered if point.prompt_tokens == length and (place := _place(point))]
            for length in dict.fromkeys(prompts)}
    return DecodeSweep(ordered, {length: curve(places) for length, places in made.items() if places})


def _place(point: DecodePoint) -> BatchPoint | None:
    """Return the point on a curve over the batch, by the time per token; None where that or the rate is absent."""
    readings = {reading.metric: reading for reading in point.readings}
    tpot, rate = readings["tpot_p50_ms"], readings["decode_tokens_per_s"]
    if tpot.value is None or rate.value is None:
        return None
    return BatchPoint(point.batch, tpot.value, tpot.low, tpot.high, rate.value, point.session_id)
