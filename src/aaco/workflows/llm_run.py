"""An endpoint of a language model under a load: `aaco llm`. Composes load, client, record and session."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from aaco import __version__
from aaco.analytics.llm.load import Arrivals, EndpointLoad
from aaco.analytics.llm.summary import NAME as ENDPOINT
from aaco.analytics.llm.summary import Endpoint
from aaco.core import files
from aaco.core.arrays import Ints
from aaco.core.config import Settings
from aaco.core.documents import decode, encode
from aaco.core.errors import AacoError, UsageError
from aaco.core.redaction import redact
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import REQUESTS as REQUESTS_TABLE
from aaco.governance.interleaved import request_pairs
from aaco.governance.verdict_document import RegressionVerdict
from aaco.llm import arrivals, client, own_thread, own_tokens, prompts, server_metrics, server_profile, target, turns
from aaco.llm.conversations import ConversationTurn, RunningConversations, ask_of
from aaco.llm.packets import PacketTap
from aaco.llm.prompts import Ask, Lengths
from aaco.llm.target import Api, Server, Target
from aaco.pipeline import Run
from aaco.steps import endpoint_tables
from aaco.steps.device import telemetry
from aaco.steps.seal import outcome, seal
from aaco.tracelake import documents, layout, store
from aaco.workflows import server_trace
from aaco.workflows.llm_session import REQUESTS, begin

SPARE = 64  # descriptors of this process that are no connections
LONGEST_KEY = 1 << 16


class LoadRequest(Struct, frozen=True):
    """What to ask of which endpoint, as a user gives it; as EndpointLoad where the names are the same.

    requests: None: 100, or as many as the trace or the file of conversations has; of conversations their number.
    turns: of each made conversation, a number or a range; None: single requests. rate_per_s, poisson_per_s, trace: at
    most one. answers_as: more names of the model that an answer may give. body: further fields of every request.
    key_env, key_file: where the key is. server_traces: where the server's profiler writes to. tokenizer:
    counts the answers' text, too. telemetry: record this machine's devices, which are the server's.
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
    turns: str | None = None
    conversations: Path | None = None
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
    server_traces: Path | None = None
    tokenizer: Path | None = None
    telemetry: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be."""
        timed = [option for option, setting in (("--rate", self.rate_per_s), ("--poisson", self.poisson_per_s),
                                              ("--trace", self.trace)) if setting is not None]
        if len(timed) > 1:
            raise UsageError(f"{' and '.join(timed)}: two plans of when to send", "give one of them")
        sources = [option for option, source in (("--prompts", self.prompts), ("--conversations", self.conversations),
                                                 ("--turns", self.turns)) if source]
        if len(sources) > 1:
            raise UsageError(f"{' and '.join(sources)}: two sources of what to ask", "give one of them")
        if self.trace and (self.turns or self.conversations):
            raise UsageError("--trace is of single requests", "--rate or --poisson: when conversations begin")
        if self.trace and self.prompts:
            raise UsageError("--trace brings its own prompts", "leave out --prompts")
        if self.key_env and self.key_file:
            raise UsageError("--api-key-env and --api-key-file: two keys", "give one of them")

    @property
    def has_turns(self) -> bool:
        """Return whether it is for conversations, in place of single requests."""
        return bool(self.turns or self.conversations)

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
    own_count = own_tokens.counter(request.tokenizer) if request.tokenizer else None
    refuse_descriptors(concurrency)
    asks, talk, count = _content(request, to, key)
    due = _due(request, asks, count)
    load = _document(request, to, talk.left if talk else count, concurrency)
    show.step(f"looking for {to.url}")
    server = target.reach(to, request.certificates)
    _refuse_privileges(request, server)
    bodies = [_encoded(request, to, ask, key) for ask in asks]
    load = replace(load, server=server_metrics.before(to, server, key))
    written = server_profile.files_in(request.server_traces) if request.server_traces else {}
    if request.server_traces:
        server_profile.call(server_profile.START, to, server, key)
    session = begin(load, settings, tag, request.telemetry)
    with outcome(session):
        show.step(f"asking {request.model} at {to.url} {load.requests:,} times")
        try:
            with telemetry.devices_and_packages(session, request.telemetry):
                client.run(client.Load(bodies, due, concurrency, request.gap_timeout_s, request.timeout_s,
                                       request.real_time, request.packet_stamps, talk), server,
                           session.folder / layout.READS, key, show.progress)
        finally:
            why_not = _stop_profiler(to, server, key) if request.server_traces else ""
        _count_after(session, to, server, key)
        if request.tokenizer and own_count:
            show.step("counting the tokens of the answers")
            _count_own(session, request.tokenizer, own_count)
        if request.server_traces:
            server_trace.join(session, request.server_traces, written, settings, tag, show, why_not)
        show.step("explaining")
        return Run(session, seal(session, settings, "complete", show))


def _stop_profiler(to: Target, server: Server, key: str) -> str:
    """Stop the server's profiler; return why it was not stopped, empty where it was."""
    try:
        server_profile.call(server_profile.STOP, to, server, key)
    except AacoError as error:
        return error.what
    return ""


def _count_after(session: Session, to: Target, server: Server, key: str) -> None:
    """Keep what the server has counted since the session began."""
    load = decode(documents.require(session, layout.LOAD), EndpointLoad)
    if load.server:
        counted = server_metrics.after(load.server, to, server, key)
        session.write_json(layout.LOAD, encode(replace(load, server=counted)))


def _count_own(session: Session, tokenizer: Path, count: own_tokens.Counter) -> None:
    """Keep what a tokenizer counts of the answers. Raise BadCapture, StorageError."""
    load = decode(documents.require(session, layout.LOAD), EndpointLoad)
    own = own_tokens.count(session.folder / layout.READS, [load.model, *load.answers_as], tokenizer, count)
    session.write_json(layout.LOAD, encode(replace(load, own_tokens=own)))


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
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{where} holds no key", "one line of ASCII letters, without the word Bearer")
    return key


def _content(request: LoadRequest, to: Target, key: str) -> tuple[list[Ask], RunningConversations | None, int]:
    """Return what to ask, or the conversations to hold, and how many of either. Raise UsageError, StorageError."""
    if not request.has_turns:
        asks = _asks(request)
        return asks, None, len(asks)
    talk = RunningConversations(_conversations(request), lambda messages, most: _encoded(
        request, to, ask_of(messages, most, to.api), key))
    return [], talk, talk.count


def _conversations(request: LoadRequest) -> list[list[ConversationTurn]]:
    """Return the conversations to hold. Raise UsageError, StorageError."""
    prompt, answer = _lengths(request)
    if request.conversations:
        return turns.read_turns(request.conversations, request.requests, answer, request.seed)
    return turns.made_turns(request.requests or REQUESTS, Lengths.parse(request.turns or "1", "--turns"), prompt,
                            answer, request.shared_prefix_pct, request.seed)


def _lengths(request: LoadRequest) -> tuple[Lengths, Lengths]:
    """Return the lengths of prompts and of answers. Raise UsageError."""
    return Lengths.parse(request.prompt_tokens, "--prompt-tokens"), Lengths.parse(request.max_tokens, "--max-tokens")


def _asks(request: LoadRequest) -> list[Ask]:
    """Return what to ask, in order. Raise UsageError, StorageError."""
    prompt, answer = _lengths(request)
    if request.trace:
        return prompts.read_trace(request.trace, request.requests, answer, request.seed)
    if request.prompts:
        return prompts.read(request.prompts, request.requests or REQUESTS, answer, request.seed)
    return prompts.made(request.requests or REQUESTS, prompt, answer, request.shared_prefix_pct, request.seed)


def _due(request: LoadRequest, asks: Sequence[Ask], count: int) -> Ints | None:
    """Return when each, or each conversation, is due, ns since the start; None: when one before it is done.

    Raise UsageError.
    """
    if request.rate_per_s:
        return arrivals.constant(request.rate_per_s, count)
    if request.poisson_per_s:
        return arrivals.poisson(request.poisson_per_s, count, request.seed)
    if request.trace:
        return arrivals.trace([ask.at_ms or 0.0 for ask in asks])
    return None


def refuse_descriptors(concurrency: int | None) -> None:
    """Let this process open as many files as it may. Raise UsageError if the requests open at once need more."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and (concurrency or 0) > hard - SPARE:
        raise UsageError(f"--concurrency {concurrency}: this process may open {hard:,} files", "ulimit -n 100000")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _refuse_privileges(request: LoadRequest, server: Server) -> None:
    """Raise Missing or UsageError, before there is a session, for what this process may not do, or not from here."""
    with own_thread.real_time(request.real_time):
        pass
    if request.telemetry and not target.is_here(server):
        raise UsageError(f"--telemetry records this machine, and {server.host} is another one",
                         "run aaco llm where the server runs")
    if request.packet_stamps:
        PacketTap(server.family, *server.address[:2]).close()


def _document(request: LoadRequest, to: Target, count: int, concurrency: int | None) -> EndpointLoad:
    source = request.trace or request.prompts or request.conversations
    return EndpointLoad(
        url=to.url, api=to.api, model=request.model, answers_as=list(request.answers_as), requests=count,
        arrivals=request.arrivals, rate_per_s=request.rate_per_s or request.poisson_per_s, concurrency=concurrency,
        prompts=f"{source} sha256 {files.sha256(source)}" if source else "random words",
        prompt_tokens=request.prompt_tokens, max_tokens=request.max_tokens,
        shared_prefix_pct=request.shared_prefix_pct, body=redact(json.dumps(dict(request.body))), seed=request.seed,
        gap_timeout_s=request.gap_timeout_s, timeout_s=request.timeout_s, terms=dict(request.terms),
        turns=request.turns or ("of the file" if request.conversations else ""))


def _encoded(request: LoadRequest, to: Target, ask: Ask, key: str) -> bytes:
    """Return a request as bytes; fields of the user replace the client's."""
    options: dict[str, Any] = {"include_usage": True}
    counting = {"timings_per_token": True} if request.count_chunks else {}  # llama.cpp
    if request.count_chunks:
        options["continuous_usage_stats"] = True  # vLLM
    body = {"model": request.model, **ask.body(to.api), "stream": True, "stream_options": options, **counting}
    return target.encode(to, body | dict(request.body), key)


class ComparedEndpoints(Struct, frozen=True):
    """Two endpoints that answered in turns: the session of each, and the verdict on the second, kept with it."""

    baseline: Run
    current: Run
    verdict: RegressionVerdict


def compare_endpoints(request: LoadRequest, against: str, settings: Settings, tolerance_pct: float, tag: str = "",
                      show: Show = SILENT) -> ComparedEndpoints:
    """Send each prompt to both endpoints in an order that is drawn, and judge the one of the request against the other.

    Each endpoint has a session of its own. Raise AacoError.
    """
    if request.trace:
        raise UsageError("--trace sends at times of its own", "leave out --against")
    if request.has_turns:
        raise UsageError("turns of a conversation hold the answers of one server", "leave out --against")
    if request.telemetry:
        raise UsageError("--telemetry is of one endpoint", "leave out --telemetry or --against")
    if request.tokenizer:
        raise UsageError("--tokenizer is of one endpoint", "leave out --against")
    if request.server_traces:
        raise UsageError("a profiler slows the server that it runs in", "leave out --server-traces or --against")
    key, targets = _key(request), [target.parse(url, request.api) for url in (against, request.url)]
    concurrency = request.concurrency or (2 if request.arrivals == "closed" else None)
    refuse_descriptors(concurrency)
    asks = _asks(request)
    sides = request_pairs.sides(len(asks), request.seed)
    due = _due(request, asks, len(asks))
    show.step(f"looking for {' and '.join(to.url for to in targets)}")
    servers = [target.reach(to, request.certificates) for to in targets]
    for server in servers:
        _refuse_privileges(request, server)
    number = np.arange(len(sides)) // 2
    bodies = [_encoded(request, targets[side], asks[pair], key) for pair, side in zip(number, sides, strict=True)]
    loads = [replace(_document(request, to, len(asks), concurrency), server=server_metrics.before(to, server, key))
             for to, server in zip(targets, servers, strict=True)]
    first = begin(loads[0], settings, tag)
    second = begin(replace(loads[1], baseline=first.id), settings, tag)
    with outcome(first), outcome(second):
        show.step(f"asking {request.model} at both {len(asks):,} times")
        client.run_in_turns(
            client.Load(bodies, None if due is None else due[number], concurrency, request.gap_timeout_s,
                        request.timeout_s, request.real_time, request.packet_stamps), servers, sides.tolist(),
            [session.folder / layout.READS for session in (first, second)], key, show.progress)
        for session, to, server in zip((first, second), targets, servers, strict=True):
            _count_after(session, to, server, key)
        show.step("explaining")
        baseline = Run(first, seal(first, settings, "complete", show))
        endpoint_tables.make(second)
        verdict = None
        if all("ok" in store.read(session, REQUESTS_TABLE)["status"].to_pylist() for session in (first, second)):
            verdict = judge_endpoints(second, first, settings, tolerance_pct)
            second.write_json(layout.VERDICT, verdict.model_dump(mode="json"))
        current = Run(second, seal(second, settings, "complete", show))
    if verdict is None:
        raise _unanswered(baseline, current)
    return ComparedEndpoints(baseline, current, verdict)


def _unanswered(baseline: Run, current: Run) -> AacoError:
    """Return the error of endpoints of which one, or both, answered no request: with the failure of the first."""
    answers = [(run, decode(run.explanation.examined[ENDPOINT], Endpoint)) for run in (current, baseline)]
    run, endpoint = next((run, endpoint) for run, endpoint in answers if not endpoint.ok)
    by = "" if not any(endpoint.ok for _, endpoint in answers) else f" by {run.session.record.plan['endpoint']}"
    failure = endpoint.failures[0]
    detail = f": {failure.detail}" if failure.detail else ""
    return AacoError(f"no request was answered{by}: {failure.status}{detail}", f"aaco report {run.session.id}  # why")


def judge_endpoints(current: Session, baseline: Session, settings: Settings, tolerance_pct: float) -> RegressionVerdict:
    """Return what the pairs of requests of two sessions say. Raise AacoError."""
    pairs = request_pairs.table(*(store.read(session, REQUESTS_TABLE) for session in (baseline, current)))
    loads = [decode(documents.require(session, layout.LOAD), EndpointLoad) for session in (baseline, current)]
    terms = request_pairs.terms(pairs, tolerance_pct, settings.config.analysis.false_alarm_pct / 100)
    command = f"aaco llm {loads[1].url} --against {loads[0].url} --model {loads[1].model} -n {loads[1].requests} " \
              f"--seed {loads[1].seed}"
    return request_pairs.verdict(pairs, terms, loads[1].requests, (loads[0].url, loads[1].url),
                                 (baseline.id, current.id), loads[1].seed, __version__, command)
