"""A server under a rising load: one ordinary session for each step, until it does not keep up any more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from aaco.analytics.llm.backlog import NAME as BACKLOG
from aaco.analytics.llm.backlog import Backlog
from aaco.analytics.llm.load_sweep import ENERGY, LoadStep, LoadSteps, LoadSweep, Over, StepFigure, sweep_of
from aaco.analytics.llm.summary import NAME as ENDPOINT
from aaco.analytics.llm.summary import Endpoint
from aaco.core.config import Settings
from aaco.core.documents import decode, encode
from aaco.core.errors import UsageError
from aaco.core.readings import Reading
from aaco.core.show import SILENT, Show
from aaco.pipeline import Run
from aaco.steps.seal import seal
from aaco.tracelake import documents, layout
from aaco.workflows.llm_run import LoadRequest, ask_endpoint, refuse_descriptors
from aaco.workflows.llm_session import REQUESTS

SHOWN = ("output_tokens_per_s", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", *ENERGY)
STEP_S = 10.0  # that a rate lasts, unless the user says how many requests
OPEN_TIMES = 10  # requests of a step, for each that is open at once
MOST_REQUESTS = 10_000_000  # of a step whose number the user leaves to us
HALVINGS = 2  # of the range that is left, on the scale of doublings
FIELDS: Mapping[Over, str] = {"rate": "rate_per_s", "poisson": "poisson_per_s", "concurrency": "concurrency"}


class RisingLoad(NamedTuple):
    """What rises: these loads, in order; narrow: what is left between the last two is narrowed down."""

    over: Over
    loads: Sequence[float]
    narrow: bool


class SweptLoad(NamedTuple):
    """The last session, which holds the whole sweep, and what the sweep says."""

    last: Run
    sweep: LoadSweep


def doublings(least: float, most: float) -> list[float]:
    """Return the loads from the least by doublings to the most, which is one of them."""
    return [*takewhile(lambda load: load < most, (least * 2 ** power for power in range(64))), most]


def sweep(request: LoadRequest, rising: RisingLoad, settings: Settings, tag: str = "", show: Show = SILENT
          ) -> SweptLoad:
    """Ask with one load after the other until the server is saturated. Raise AacoError.

    Loads rise, as a server that was overloaded may not be itself for a while. No step has the prompts of another: a
    prefix that it left in the server's cache would make the next look faster.
    """
    if request.prompts or request.trace or request.conversations:
        _refuse_source(request)
    _refuse_top(request, rising)
    steps: list[LoadStep] = []
    run = None
    for number, (load, between) in enumerate(next_loads(rising, steps)):
        show.step(f"{rising.over} {load:.4g}")
        run = ask_endpoint(_at(request, rising.over, load, number), settings, tag or "sweep-llm", show)
        steps.append(_step(run, load, between))
    if run is None:
        raise UsageError("no load to ask with", "--rate 1:64")
    measured = LoadSteps(rising.over, steps)
    run.session.write_json(layout.LOAD_STEPS, encode(measured))
    return SweptLoad(Run(run.session, seal(run.session, settings, show=show)), sweep_of(measured))


def _refuse_top(request: LoadRequest, rising: RisingLoad) -> None:
    """Raise UsageError where the highest load is one that no client can send, before there is a session."""
    top = max(rising.loads, default=0)
    if not request.requests and _count(rising.over, top) > MOST_REQUESTS:
        raise UsageError(f"--{rising.over}: a load of {top:.4g} takes more than {MOST_REQUESTS:,} requests",
                         "a lower load, or -n for the requests of each step")
    if rising.over == "concurrency":
        refuse_descriptors(round(top))


def _refuse_source(request: LoadRequest) -> None:
    raise UsageError("a rising load makes its own prompts: those of a file would be in the server's cache after the "
                     "first step", "leave out --prompts, --conversations and --trace")


def next_loads(rising: RisingLoad, steps: Sequence[LoadStep]) -> Iterator[tuple[float, bool]]:
    """Yield the next load, and whether it narrows down, as the steps that were measured until then say.

    After the first saturated step there is another where the knee is not seen yet.
    """
    for number, load in enumerate(rising.loads):
        yield load, False
        sweep = sweep_of(LoadSteps(rising.over, list(steps)))
        states = [judged.saturated for judged in sweep.steps]
        is_silent = states[-1] is None and (rising.over != "concurrency" or number > 0)
        if is_silent or states[-2:] == [True, True] or (states[-1] and sweep.knee is not None):
            break
    for _ in range(HALVINGS if rising.narrow else 0):
        sweep = sweep_of(LoadSteps(rising.over, list(steps)))
        if sweep.sustained is None or sweep.saturated_from is None:
            return
        yield math.sqrt(sweep.sustained * sweep.saturated_from), True


def _at(request: LoadRequest, over: Over, load: float, number: int) -> LoadRequest:
    """Return the request of a step."""
    count = request.requests or math.ceil(_count(over, load))
    setting = {FIELDS[over]: round(load) if over == "concurrency" else load}
    return replace(request, **setting, requests=count, seed=request.seed + number)


def _count(over: Over, load: float) -> float:
    """Return how many requests a step has, unless the user says it."""
    return max(REQUESTS, load * (OPEN_TIMES if over == "concurrency" else STEP_S))


def _step(run: Run, load: float, between: bool) -> LoadStep:
    endpoint = decode(documents.require(run.session, layout.finding(ENDPOINT)), Endpoint)
    backlog = decode(documents.require(run.session, layout.finding(BACKLOG)), Backlog)
    return LoadStep(load, between, run.session.id, endpoint.requests, endpoint.requests - endpoint.ok, backlog,
                    [_figure(run.metrics[name]) for name in SHOWN])


def _figure(reading: Reading) -> StepFigure:
    return StepFigure(reading.metric, reading.unit, reading.value, reading.low, reading.high, reading.why_absent)
