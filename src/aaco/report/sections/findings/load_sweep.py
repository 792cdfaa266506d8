"""How a server answers a rising load, as rows of text for every report and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.llm.load_sweep import ENERGY, NAME, JudgedStep, LoadSweep
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row
from aaco.report.sections import load_energy

LOADS = {"rate": "requests/s", "poisson": "requests/s at random times", "concurrency": "open at once"}
STATES = {True: "saturated", False: "keeps up", None: format.NA}


@finding_view(NAME, "from which load on a server does not keep up, and where more load brings less", place=3,
              title="Rising load", form=LoadSweep)
def _rows(sweep: LoadSweep) -> Iterator[Row]:
    """Yield the steps, and what they say together."""
    yield from map(_row, sweep.steps)
    yield from conclusions(sweep)


def _row(judged: JudgedStep) -> Row:
    """Return a step in a line."""
    throughput, *times = cells(judged)
    latencies = "; ".join(f"{label} {time} ms" for label, time in zip(("TTFT", "TPOT"), times[1:], strict=True))
    energy = load_energy.text(judged.step.readings)
    return Row(f"{judged.step.load:.4g}", f"{throughput} answers/s, {times[0]} tokens/s; {latencies}; "
               f"{STATES[judged.saturated]}: {judged.why}{f'; {energy}' if energy else ''}")


def cells(judged: JudgedStep) -> tuple[str, str, str, str]:
    """Return answers and tokens per second, and p50 / p99 of TTFT and TPOT, ms."""
    tokens, *times = (format.NA if figure.value is None else format.number(figure.value)
                      for figure in judged.step.figures)
    answered = judged.step.backlog.answered_per_s
    return (format.NA if answered is None else format.number(answered), tokens, f"{times[0]} / {times[1]}",
            f"{times[2]} / {times[3]}")


def conclusions(sweep: LoadSweep) -> Iterator[Row]:
    """Yield from where on the server is saturated, the knee, the most that it answered, and why figures are absent."""
    yield Row("Load", LOADS[sweep.over])
    yield Row("Keeps up with", format.unavailable("no step below a saturated one surely is") if sweep.sustained is None
              else f"{sweep.sustained:.4g}")
    yield Row("Saturated from", format.unavailable("no step is: a higher load says it") if sweep.saturated_from is None
              else f"{sweep.saturated_from:.4g}")
    yield Row("Knee", format.unavailable(sweep.why_no_knee) if sweep.knee is None else f"{sweep.knee:.4g}")
    if sweep.most_answered_per_s is not None:
        most = format.quantity(sweep.most_answered_per_s, "1/s", sweep.most_answered_low, sweep.most_answered_high)
        yield Row("Most answered", most)
    reasons = {figure.why_absent.partition(":")[0]: figure.why_absent for judged in sweep.steps
               for figure in judged.step.figures if figure.value is None and figure.name not in ENERGY}
    if reasons:
        yield Row("Not shown", "; ".join(reasons.values()))
    if why_no_energy := load_energy.absent(judged.step.readings for judged in sweep.steps):
        yield Row("Energy not shown", why_no_energy)
