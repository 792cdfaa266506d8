"""An endpoint of a language model under a load: `aaco llm`. Composes load, client, record and session."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aaco.analytics.llm.load import Arrivals, EndpointLoad
from aaco.core import files
from aaco.core.arrays import Ints
from aaco.core.config import Settings
from aaco.core.errors import UsageError
from aaco.core.redaction import redact
from aaco.core.show import SILENT, Show
from aaco.llm import arrivals, client, own_thread, prompts, target
from aaco.llm.packets import PacketTap
from aaco.llm.prompts import Ask, Lengths
from aaco.llm.target import Api, Target
from aaco.pipeline import Run
from aaco.steps.seal import outcome, seal
from aaco.tracelake import layout
from aaco.workflows.llm_session import REQUESTS, begin

SPARE = 64  # descriptors of this process that are no connections
LONGEST_KEY = 1 << 16
TERMS = ("ttft", "tpot", "latency")


@dataclass(frozen=True)
class LoadRequest:
    """What to ask of which endpoint, as a user gives it; as EndpointLoad where the names are the same.

    requests: None: 100, or as many as the trace has. rate_per_s, poisson_per_s, trace: at most one. answers_as: more
    names of the model that an answer may give. body: further fields of every request. key_env, key_file: where the
    key is.
    """

    url: str
    model: str
    api: Api = "chat"
    requests: int | None = None
    concurrency: int | None = None
    rate_per_s: float | None = None
    poisson_per_s: float | None = None
    trace: Path | None = None
    prompts: Path | None = None
    prompt_tokens: str = "128"
    max_tokens: str = "64"
    shared_prefix_pct: float = 0.0
    count_chunks: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)
    answers_as: Sequence[str] = ()
    terms: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    gap_timeout_s: float = 60.0
    timeout_s: float = 600.0
    real_time: bool = False
    packet_stamps: bool = False
    key_env: str | None = None
    key_file: Path | None = None
    certificates: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be."""
        timed = [option for option, setting in (("--rate", self.rate_per_s), ("--poisson", self.poisson_per_s),
                                              ("--trace", self.trace)) if setting is not None]
        if len(timed) > 1:
            raise UsageError(f"{' and '.join(timed)}: two plans of when to send", "give one of them")
        if self.trace and self.prompts:
            raise UsageError("--trace brings its own prompts", "leave out --prompts")
        if self.key_env and self.key_file:
            raise UsageError("--api-key-env and --api-key-file: two keys", "give one of them")

    @property
    def arrivals(self) -> Arrivals:
        """Return by which plan requests are sent."""
        return "constant" if self.rate_per_s else "poisson" if self.poisson_per_s else "trace" if self.trace else \
            "closed"


def ask_endpoint(request: LoadRequest, settings: Settings, tag: str = "", show: Show = SILENT) -> Run:
    """Send a load to an endpoint, keep all that comes back, and explain it. Raise AacoError.

    Options that are misspelt, and a server that does not answer, are refused before there is a session. A load that is
    interrupted leaves an incomplete session, with what came until then.
    """
    key, to = _key(request), target.parse(request.url, request.api)
    concurrency = request.concurrency or (1 if request.arrivals == "closed" else None)
    _refuse_descriptors(concurrency)
    with own_thread.real_time(request.real_time):
        pass  # refused before there is a session
    asks = _asks(request)
    due = _due(request, asks)
    load = _document(request, to, len(asks), concurrency)
    show.step(f"looking for {to.url}")
    server = target.reach(to, request.certificates)
    if request.packet_stamps:
        PacketTap(server.family, *server.address[:2]).close()  # refused before there is a session
    bodies = [_encoded(request, to, ask, key) for ask in asks]
    session = begin(load, settings, tag)
    with outcome(session):
        show.step(f"asking {request.model} at {to.url} {len(asks):,} times")
        client.run(client.Load(bodies, due, concurrency, request.gap_timeout_s, request.timeout_s,
                               request.real_time, request.packet_stamps), server,
                   session.folder / layout.READS, key, show.progress)
        show.step("explaining")
        return Run(session, seal(session, settings, "complete", show))


def _key(request: LoadRequest) -> str:
    """Return the key to send; empty for none. Raise UsageError, StorageError."""
    if request.key_file:
        with files.storage(request.key_file):
            key = request.key_file.read_bytes()[:LONGEST_KEY].decode(errors="replace").strip()
        where = str(request.key_file)
    elif request.key_env:
        key, where = os.environ.get(request.key_env, "").strip(), f"the variable {request.key_env}"
    else:
        return ""
    if not key or not key.isascii() or not key.isprintable():
        raise UsageError(f"{where} holds no key", "one line of ASCII letters, without the word Bearer")
    return key


def _asks(request: LoadRequest) -> list[Ask]:
    """Return what to ask, in order. Raise UsageError, StorageError."""
    prompt, answer = Lengths.parse(request.prompt_tokens, "--prompt-tokens"), Lengths.parse(request.max_tokens,
                                                                                            "--max-tokens")
    if source := request.trace or request.prompts:
        count = request.requests if request.trace else request.requests or REQUESTS
        return prompts.read(source, count, prompt, answer, request.seed)
    return prompts.made(request.requests or REQUESTS, prompt, answer, request.shared_prefix_pct, request.seed)


def _due(request: LoadRequest, asks: Sequence[Ask]) -> Ints | None:
    """Return when each is due, ns since the start; None: when one before it is done. Raise UsageError."""
    if request.rate_per_s:
        return arrivals.constant(request.rate_per_s, len(asks))
    if request.poisson_per_s:
        return arrivals.poisson(request.poisson_per_s, len(asks), request.seed)
    if request.trace:
        times = [ask.at_ms for ask in asks if ask.at_ms is not None]
        if len(times) < len(asks):
            raise UsageError(f"{request.trace}: an entry has no time", '{"timestamp": MS, "input_length": 100}')
        return arrivals.trace(times)
    return None


def _refuse_descriptors(concurrency: int | None) -> None:
    """Let this process open as many files as it may. Raise UsageError if the requests open at once need more."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and (concurrency or 0) > hard - SPARE:
        raise UsageError(f"--concurrency {concurrency}: this process may open {hard:,} files", "ulimit -n 100000")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _document(request: LoadRequest, to: Target, count: int, concurrency: int | None) -> EndpointLoad:
    source = request.trace or request.prompts
    return EndpointLoad(
        url=to.url, api=to.api, model=request.model, answers_as=list(request.answers_as), requests=count,
        arrivals=request.arrivals, rate_per_s=request.rate_per_s or request.poisson_per_s, concurrency=concurrency,
        prompts=f"{source} sha256 {files.sha256(source)}" if source else "random words",
        prompt_tokens=request.prompt_tokens, max_tokens=request.max_tokens,
        shared_prefix_pct=request.shared_prefix_pct, body=redact(json.dumps(dict(request.body))), seed=request.seed,
        gap_timeout_s=request.gap_timeout_s, timeout_s=request.timeout_s, terms=dict(request.terms))


def _encoded(request: LoadRequest, to: Target, ask: Ask, key: str) -> bytes:
    """Return a request as bytes; fields of the user replace the client's."""
    options: dict[str, Any] = {"include_usage": True}
    counting = {"timings_per_token": True} if request.count_chunks else {}  # llama.cpp
    if request.count_chunks:
        options["continuous_usage_stats"] = True  # vLLM
    body = {"model": request.model, **ask.body(to.api), "stream": True, "stream_options": options, **counting}
    return target.encode(to, body | dict(request.body), key)
