"""A decoder or a server at several contexts and requests at once: one ordinary session for each pair, in random order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from msgspec.structs import replace

from aaco.analytics.llm.context_slope import ContextPoint, slope_of
from aaco.analytics.llm.load_sweep import ENERGY
from aaco.analytics.llm.summary import Endpoint
from aaco.analytics.what_if.sweep import BatchCurve, BatchPoint, curve, described
from aaco.core.config import Settings
from aaco.core.documents import decode
from aaco.core.readings import Estimate, Reading
from aaco.core.show import SILENT, Show
from aaco.llm.prompts import Lengths
from aaco.pipeline import Run
from aaco.workflows.decode_run import DecodeRequest, ask_decoder
from aaco.workflows.llm_run import LoadRequest, ask_endpoint
from aaco.workflows.llm_session import REQUESTS

SHOWN = ("ttft_p50_ms", "tpot_p50_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s",
         *ENERGY)
NO_CONTEXT = "the server does not say how many tokens a prompt has"
OPEN_TIMES = 10  # requests of a load on a server, for each that is open at once


class DecodePoint(NamedTuple):
    """One session: requests at once, the lengths of its prompts as they were given, and its readings of SHOWN.

    context: tokens of a prompt and half of its answer, mean of all answers; None where the server does not say.
    """

    batch: int
    prompt_tokens: str
    session_id: str
    readings: tuple[Reading, ...]
    context: float | None

    def document(self, at_once: str) -> dict[str, Any]:
        """Return the point as JSON."""
        return {at_once: self.batch, "prompt_tokens": self.prompt_tokens, "session_id": self.session_id,
                "context_tokens": self.context, **{reading.metric: _described(reading) for reading in self.readings}}

    def reading(self, metric: str) -> Reading:
        """Return a reading of SHOWN."""
        return next(reading for reading in self.readings if reading.metric == metric)


class DecodeSweep(NamedTuple):
    """The points by length of prompt and requests at once, by length what more at once bring to decoding, and by
    requests at once what the context adds to a token. at_once: batch of a decoder, concurrency of a server."""

    points: tuple[DecodePoint, ...]
    curves: dict[str, BatchCurve]
    slopes: dict[int, Reading]
    at_once: str

    def document(self) -> dict[str, Any]:
        """Return the sweep as JSON."""
        return {"schema_version": 1, "points": [point.document(self.at_once) for point in self.points],
                "curves": {prompts: {"saturation_batch": described(by_batch.saturation_batch),
                                     "transition_batch": described(by_batch.transition_batch)}
                           for prompts, by_batch in self.curves.items()},
                "decode_slopes_ms_per_1k_tokens": {str(at_once): _described(slope)
                                                   for at_once, slope in self.slopes.items()}}


def sweep(request: DecodeRequest | LoadRequest, at_once: Sequence[int], prompts: Sequence[str], settings: Settings,
          tag: str = "", show: Show = SILENT) -> DecodeSweep:
    """Measure every pair; the order is shuffled by the seed of the request, so that a machine that slows down does not
    look like an effect. Raise AacoError."""
    for length in prompts:
        Lengths.parse(length, "--prompt-tokens")
    name = "batch" if isinstance(request, DecodeRequest) else "concurrency"
    pairs = list(product(dict.fromkeys(prompts), sorted(set(at_once))))
    order = random.Random(request.seed).sample(pairs, len(pairs))
    points = {}
    for at, (length, batch) in enumerate(order, 1):
        show.step(f"{name} {batch}, prompts of {length} ({at} of {len(order)})")
        run = _ask(request, batch, length, at, settings, tag or "sweep-llm", show)
        points[length, batch] = _point(run, batch, length)
    ordered = tuple(points[pair] for pair in pairs)
    rate = "decode_tokens_per_s" if name == "batch" else "output_tokens_per_s"
    made = {length: [place for point in ordered if point.prompt_tokens == length and (place := _place(point, rate))]
            for length in dict.fromkeys(prompts)}
    slopes = {batch: _slope([point for point in ordered if point.batch == batch]) for batch in sorted(set(at_once))}
    return DecodeSweep(ordered, {length: curve(places) for length, places in made.items()
                                 if len(places) > 1 or len(places) == len(set(at_once))}, slopes, name)


def _slope(points: Sequence[DecodePoint]) -> Reading:
    """Return what the context adds to a token; or why there is none."""
    contexts = [in_context for point in points if (in_context := _in_context(point))]
    lacking = [point.reading("tpot_p50_ms").why_absent or NO_CONTEXT for point in points if not _in_context(point)]
    slope = slope_of(contexts)
    return replace(slope, why_absent=lacking[0]) if slope.value is None and lacking else slope


def _ask(request: DecodeRequest | LoadRequest, at_once: int, length: str, number: int, settings: Settings, tag: str,
         show: Show) -> Run:
    """Ask with so many at once. A server gets prompts of its own in each load: it may keep those of one before."""
    if isinstance(request, DecodeRequest):
        return ask_decoder(replace(request, batch=at_once, prompt_tokens=length), settings, tag, show)
    count = request.requests or max(REQUESTS, OPEN_TIMES * at_once)
    return ask_endpoint(replace(request, concurrency=at_once, prompt_tokens=length, requests=count,
                                seed=request.seed + number), settings, tag, show)


def _point(run: Run, at_once: int, length: str) -> DecodePoint:
    endpoint = decode(run.explanation.examined["endpoint"], Endpoint)
    context = None if endpoint.prompt_tokens is None or not endpoint.ok else \
        (endpoint.prompt_tokens + endpoint.output_tokens / 2) / endpoint.ok
    return DecodePoint(at_once, length, run.session.id, tuple(run.metrics[name] for name in SHOWN), context)


def _place(point: DecodePoint, rate_name: str) -> BatchPoint | None:
    """Return the point on a curve over the batch, by the time per token; None where that or the rate is absent."""
    tpot, rate = point.reading("tpot_p50_ms"), point.reading(rate_name)
    if tpot.value is None or rate.value is None:
        return None
    return BatchPoint(point.batch, tpot.value, tpot.low, tpot.high, rate.value, point.session_id)


def _in_context(point: DecodePoint) -> ContextPoint | None:
    """Return the point on a curve over the context; None where its time per token or its context is not known."""
    tpot = point.reading("tpot_p50_ms")
    if tpot.value is None or point.context is None:
        return None
    return ContextPoint(point.context, Estimate(tpot.value, tpot.low, tpot.high))


def _described(reading: Reading) -> dict[str, Any]:
    return {"value": reading.value, "low": reading.low, "high": reading.high, "why_absent": reading.why_absent or None}
