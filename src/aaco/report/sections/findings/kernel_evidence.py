"""What kernels say by themselves: the headline of captures that hold counters or instruction traces."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck.kernel_evidence import KernelEvidence, LimitedTime, TracedWaves
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

NAMED = 2  # limits and waits in the headline
ROOFS = {"memory_bandwidth": "memory", "lds": "local memory"}


@finding_view("kernel_evidence", "limits of counted kernels by time, and what traced waves wait for", place=0,
              title="What the kernels say", form=KernelEvidence)
def _rows(evidence: KernelEvidence) -> Iterator[Row]:
    """Yield the headline, then the time of every limit."""
    yield Row("In short", headline(evidence))
    for limited in evidence.limits:
        yield Row(format.kernel_limit(limited.limit).capitalize(), f"{format.plural(limited.kernels, 'kernel name')}, "
                                                     f"{format.duration(limited.ns)}{_reached(limited)}")


def headline(evidence: KernelEvidence) -> str:
    """Return the headline of the session."""
    parts = [*_counted(evidence), *(_traced(evidence.waves) if evidence.waves else ())]
    return "; ".join(parts)


def _counted(evidence: KernelEvidence) -> Iterator[str]:
    total = evidence.kernel_ns or 1
    if evidence.limits:
        limits = ", ".join(f"{format.kernel_limit(limited.limit)} {format.percent(limited.ns / total)} of the time"
                           f"{_reached(limited)}" for limited in evidence.limits[:NAMED])
        yield f"{format.plural(evidence.kernels, 'kernel')}: {limits}"
    elif evidence.without_time:
        yield f"{format.plural(evidence.without_time, 'kernel')} counted, without a time"


def _reached(limited: LimitedTime) -> str:
    """How much of the roof that limits them kernels reach, and over how much of their time that is known."""
    if limited.roof_share is None:
        return ""
    roof = ROOFS.get(limited.limit) or (limited.rate or "compute").replace("_", " ")
    whole = limited.roof_ns == limited.ns
    covered = "" if whole else f" over {format.percent(limited.roof_ns / (limited.ns or 1))} of it"
    return f" ({format.percent(limited.roof_share)} of the {roof} roof{covered})"


def _traced(waves: TracedWaves) -> Iterator[str]:
    kernels = format.plural(waves.kernels, "kernel")
    of, kind = (waves.cycles, "wave cycles") if waves.stalled_cycles is not None else (waves.samples, "samples")
    if not of:
        yield f"{kernels} traced; the capture does not tell stalls from work"
        return
    waits = ", ".join(f"{format.percent(count / of)} of {kind} wait for {format.clean(name)}"
                      for name, count in list(waves.waits.items())[:NAMED] if count)
    stalled = "" if waves.stalled_cycles is None else f"{format.percent(waves.stalled_cycles / of)} of {kind} stalled"
    yield f"{kernels} traced: {', '.join(filter(None, (stalled, waits))) or 'nothing waited'}"
