"""The load on an endpoint of a language model, as a session keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aaco.core import documents
from aaco.tracelake import layout

Arrivals = Literal["closed", "constant", "poisson", "trace"]


@documents.document(layout.LOAD)
@dataclass(frozen=True)
class EndpointLoad:
    """runtime/load.json: the requests to an endpoint, and when they were due.

    arrivals: closed: a request when one of `concurrency` is done; else when the clock says so. concurrency: requests
    open at once, also of a load with times; null: no limit. prompts: where they come from. terms: service levels, ms,
    by name: ttft, tpot, latency. answers_as: names of the model that are taken in answers. clock_steps: how often the
    wall clock was set during the load; null: the record was not read yet.
    baseline: session of the endpoint that was asked in turns with this one, prompt by prompt; empty: none was.
    """

    url: str
    api: str
    model: str
    answers_as: list[str]
    requests: int
    arrivals: Arrivals
    rate_per_s: float | None
    concurrency: int | None
    prompts: str
    prompt_tokens: str
    max_tokens: str
    shared_prefix_pct: float
    body: str
    seed: int
    gap_timeout_s: float
    timeout_s: float
    terms: dict[str, float]
    clock_steps: int | None = None
    baseline: str = ""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> EndpointLoad:
        """Return the content of the document. Raise BadBundle."""
        return documents.decode(document, cls)
