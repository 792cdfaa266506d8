"""What a server counts of its own requests: queue, prefill and decode of vLLM and SGLang, before and after a load.

Names of vLLM's histograms: https://docs.vllm.ai/en/latest/design/metrics; of SGLang's: its production metrics. SGLang
has none of prefill and decode.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct

from aaco.core.readings import Absent

HISTOGRAMS = {"vllm:request_queue_time_seconds": "queue", "sglang:queue_time_seconds": "queue",
              "vllm:request_prefill_time_seconds": "prefill", "vllm:request_decode_time_seconds": "decode"}
PHASES = ("queue", "prefill", "decode")
SAMPLE = re.compile(rf"^({'|'.join(HISTOGRAMS)})_(sum|count)(?:\{{.*\}})?[ \t]+(\S+)", re.MULTILINE)
NO_HISTOGRAM = "the server's /metrics has no such histogram"
CUT_SHORT = "the load was cut short before the server's /metrics were read again"
RESTARTED = "the server's counters fell during the load: it was restarted"
NONE_ENDED = "the server counted no request during the load"


class PhaseTotal(Struct, frozen=True):
    """Requests that ended since the server began, and the time of all of them in one phase."""

    requests: int
    seconds: float


class ServerCounters(Struct, frozen=True):
    """By phase what the server had counted before and after a load. after: null: it was not read. why_absent: why
    neither could be read."""

    before: dict[str, PhaseTotal]
    after: dict[str, PhaseTotal] | None
    why_absent: str


class PhaseMean(Struct, frozen=True):
    """Mean time that requests, of whatever client, were in a phase of the server; or why it is not known."""

    name: str
    requests: int | None
    mean_ms: float | None
    why_absent: str


def totals(text: str) -> dict[str, PhaseTotal]:
    """Return the totals in Prometheus's text, over all engines and models of the server. Raise Absent."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for name, part, number in SAMPLE.findall(text):
        sums[HISTOGRAMS[name], part] += _number(name, number)
    found = {phase: PhaseTotal(round(sums[phase, "count"]), sums[phase, "sum"]) for phase in PHASES
             if (phase, "count") in sums and (phase, "sum") in sums}
    if not found:
        raise Absent("the server's /metrics has no histogram of vLLM or SGLang")
    return found


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 2 ** 53:
        raise Absent(f"the server's /metrics says {text[:40]} of {name}")
    return number


def means(counters: ServerCounters) -> Iterator[PhaseMean]:
    """Yield the mean of each phase over the requests that ended between the two readings."""
    for phase in PHASES:
        try:
            requests, seconds = _meanwhile(counters, phase)
        except Absent as reason:
            yield PhaseMean(phase, None, None, str(reason))
        else:
            yield PhaseMean(phase, requests, 1e3 * seconds / requests, "")


def _meanwhile(counters: ServerCounters, phase: str) -> tuple[int, float]:
    """Return the requests that ended meanwhile, and their seconds in a phase. Raise Absent."""
    if counters.why_absent:
        raise Absent(counters.why_absent)
    if counters.after is None:
        raise Absent(CUT_SHORT)
    if phase not in counters.before or phase not in counters.after:
        raise Absent(NO_HISTOGRAM)
    before, after = counters.before[phase], counters.after[phase]
    requests, seconds = after.requests - before.requests, after.seconds - before.seconds
    if requests < 0 or seconds < 0:
        raise Absent(RESTARTED)
    if not requests:
        raise Absent(NONE_ENDED)
    return requests, seconds
