"""The load on an endpoint of a language model, as a session keeps it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from aaco.analytics.llm.server_counters import ServerCounters
from aaco.core import documents
from aaco.tracelake import layout

WHOLE_TRACE = "all"  # in place of a phase
PROCESS = "process:"  # before the name of a model that answered in a process of its own, in place of a URL
Arrivals = Literal["closed", "constant", "poisson", "trace"]


class InProcess(Struct, frozen=True):
    """What answered in a process of its own, in place of a server. batch: requests that it answered at once, at most.

    identity: SHA-256 of the model's files. backend: its name here; empty where the model itself says it.
    """

    engine: str
    backend: str
    identity: str
    batch: int


class OwnTokenCount(Struct, frozen=True):
    """Tokens of the text of answers by a tokenizer of the user's, and the server's count of the same answers.

    tokenizer: name and SHA-256 of its file. own_tokens: of all whole answers. compared: those of which the server says
    its count, too; own_compared and server_tokens: tokens of those. differ: answers with two different
    counts; least_difference and most_difference: smallest and largest difference in an answer, own minus server.
    """

    tokenizer: str
    own_tokens: int
    compared: int
    own_compared: int
    server_tokens: int
    differ: int
    least_difference: int
    most_difference: int


class TracedClass(Struct, frozen=True):
    """What limits the steps of a phase, or "all" of it, by the server's trace. label: null for the reason in why."""

    phase: str
    label: str | None
    confidence: float | None
    why: str


@documents.document(layout.LOAD)
class EndpointLoad(Struct, frozen=True):
    """runtime/load.json: the requests to an endpoint, and when they were due.

    arrivals: closed: a request when one of `concurrency` is done; else when the clock says so. concurrency: requests
    open at once, also of a load with times; null: no limit. prompts: where they come from. terms: service levels, ms,
    by name: ttft, tpot, latency. answers_as: names of the model that are taken in answers. clock_steps: how often the
    wall clock was set during the load; null: the record was not read yet. packets: of a load with packet stamps how
    many packets came ("packets"), how many of them the client did not see ("dropped"), its reads ("reads"), and those
    of which a packet is missing ("missed"); null: without, or cut short. process: null: a server answered.
    baseline: session of the endpoint that was asked in turns with this one, prompt by prompt; empty: none was.
    server: what the server itself counted; null: it was not asked. turns: of each conversation, a number or a range;
    empty: single requests. device_session: of the trace that the server wrote meanwhile, or that
    `aaco trace` makes of a decoder; why_no_steps: why its steps are not on the clock of the requests; both empty:
    without a trace. device_classes: what limits that trace.
    own_tokens: the text of the answers counted by a tokenizer of the user's; null: without.
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
    packets: dict[str, int] | None = None
    process: InProcess | None = None
    baseline: str = ""
    server: ServerCounters | None = None
    turns: str = ""
    device_session: str = ""
    why_no_steps: str = ""
    own_tokens: OwnTokenCount | None = None
    device_classes: list[TracedClass] = field(default_factory=list)
