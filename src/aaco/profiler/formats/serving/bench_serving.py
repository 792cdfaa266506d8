"""Results of `vllm bench serve` (--save-result --save-detailed) and of SGLang's bench_serving (--output-details).

One JSON object with a list for each fact of a request, all in one order: prompt and output tokens, time to the first
chunk (`ttfts`), gaps between chunks (`itls`), errors; newer versions of vLLM add when each was sent and how long it
waited in the client. Times are seconds of the client's own clock, as it read the chunks.

What is called itl there is the gap between chunks, of which one may hold several tokens. A gap is one token's only
where every answer has as many chunks as tokens, through an interface of which no chunk is empty.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.errors import BadCapture
from aaco.core.tables import LLM_EVENTS, REQUESTS
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.io import jsonfile

FORMAT = "bench_serving"
MOST_BYTES = 512 << 20
HEAD = 1 << 13
PIECE = 1 << 14  # requests of a piece
FIX = "record it again: vllm bench serve --save-result --save-detailed, or bench_serving --output-details"
VLLM, SGLANG = "vllm bench serve", "sglang bench_serving"
MARKS = {VLLM: (b'"tokenizer_id"', b'"num_prompts"'),
         SGLANG: (b'"backend"', b'"dataset_name"', b'"random_range_ratio"')}
SPREADING = ("sglang", "sglang-native")  # interfaces of which bench_serving divides a gap by the tokens behind it
LISTS = ("input_lens", "output_lens", "ttfts", "itls")
LONGEST_S = 1e7  # of a request; a longer time is none
LATEST_S = 9e9  # of a clock: what fits 64 bits of ns
MOST_TOKENS = 1 << 40
LONGEST_ERROR = 300
FAILED, UNUSABLE = "failed_elsewhere", "no_times"
IN_CHUNKS = "itls are gaps between chunks, which may hold several tokens: they are ICL, not ITL"
ROLE = "the first chunk of a chat may hold the role only: its TTFT may be too short"
NO_START = "it does not say when requests were sent: there is no steady window and no rate"
NO_DUE = "it does not say when requests were due: what waited in the client is in no latency"
SPREAD = "a gap before several tokens was shared by them: that chunks came together is not in it, and ICL is as ITL"
NO_STAMP = "times are those at which the client read; how late it was is not known"
NO_SOURCE = "output tokens are the server's count, or the tool's own count of the text: it does not say which"


class BenchLists(Struct, frozen=True):
    """The lists of a result, request by request: seconds, NaN where there is none, and counts.

    gaps: those of all requests, one after the other; gap_counts: how many each has.
    """

    prompt: Reals
    output: Reals
    ttft: Reals
    latency: Reals
    start: Reals
    queue: Reals
    gaps: Reals
    gap_counts: Ints
    errors: list[str]

    def is_usable(self) -> Flags:
        """Return which requests have times: first chunk, gaps and, where they are there, the others."""
        is_gap = (self.gaps >= 0) & (self.gaps < LONGEST_S)
        owner = np.repeat(np.arange(len(self.ttft)), self.gap_counts)
        bad = np.bincount(owner[~is_gap], minlength=len(self.ttft))
        sums = np.bincount(owner[is_gap], self.gaps[is_gap], minlength=len(self.ttft))
        return np.asarray((self.ttft > 0) & (self.ttft < LONGEST_S) & (bad == 0) & (sums < LONGEST_S)
                          & _is_absent_or(self.latency, self.ttft, LONGEST_S) & _is_absent_or(self.start, 0.0, LATEST_S)
                          & _is_absent_or(self.queue, -LONGEST_S, LONGEST_S))

    def gaps_ns(self) -> Ints:
        """Return the gaps; 0 for what is none."""
        return _ns(np.where((self.gaps >= 0) & (self.gaps < LONGEST_S), self.gaps, 0.0))


def recognises(path: Path) -> bool:
    """Return whether the file begins as one of the tools writes it."""
    return _tool(jsonfile.head(path, HEAD)) is not None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield requests and llm_events, then the facts. Raise BadCapture."""
    tool = _tool(jsonfile.head(path, HEAD))
    document = _document(path)
    lists = _lists(path, document)
    has_start = bool(np.isfinite(lists.start).all())
    is_single = _is_single(document, lists)
    with jsonfile.sound(path, FIX):
        yield from _tables(lists, document, has_start, is_single)
    metadata = {name: document[name] for name in ("backend", "max_concurrency", "request_rate") if name in document}
    yield CaptureFacts(FORMAT, tool=tool, records={"request": len(lists.ttft)}, metadata=metadata,
                       problems=tuple(_limits(document, lists, has_start, is_single)))


def _tool(head: bytes) -> str | None:
    is_object = head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")
    return next((tool for tool, marks in MARKS.items() if is_object and all(mark in head for mark in marks)), None)


def _document(path: Path) -> Mapping[str, Any]:
    """Return the one result in a file. Raise BadCapture; also for several, which are not one load."""
    text = jsonfile.text(path, MOST_BYTES, FIX)
    decoder, documents, at = json.JSONDecoder(), list[Any](), 0
    try:
        while at < len(text):
            document, end = decoder.raw_decode(text, at + _space(text, at))
            documents.append(document)
            at = end + _space(text, end)
    except (ValueError, RecursionError) as error:
        raise BadCapture(f"{path}: not the JSON that belongs there, or cut short: {error}", FIX) from error
    if len(documents) != 1:
        raise BadCapture(f"{path}: holds the results of {len(documents)} runs",
                         f"sed -n 1p {path.name} > run1.json, and import that")
    if not isinstance(documents[0], dict):
        raise BadCapture(f"{path}: no object", FIX)
    return documents[0]


def _space(text: str, start: int) -> int:
    """Return how many characters of white space begin there."""
    end = start
    while end < len(text) and text[end] in " \t\r\n":
        end += 1
    return end - start


def _lists(path: Path, document: Mapping[str, Any]) -> BenchLists:
    """Return the lists of a result. Raise BadCapture where they are missing, or no lists of one length."""
    missing = [name for name in LISTS if not isinstance(document.get(name), list)]
    if missing:
        raise BadCapture(f"{path}: it has sums only: no {', '.join(missing)} of each request", FIX)
    count = len(document["ttfts"])
    names = [name for name in (*LISTS, "latencies", "start_times", "queue_times", "errors") if document.get(name)]
    other = [name for name in names if not isinstance(document[name], list) or len(document[name]) != count]
    if other or not count:
        raise BadCapture(f"{path}: {', '.join(other)}: no list of {count:,}, as ttfts is" if other
                         else f"{path}: no request in it", FIX)
    gaps = document["itls"]
    if not all(isinstance(entry, list) for entry in gaps):
        raise BadCapture(f"{path}: itls: not a list for each request", FIX)
    absent = [math.nan] * count
    prompt, output, ttft, latency, start, queue = (
        _numbers(path, name, document.get(name) or absent)
        for name in ("input_lens", "output_lens", "ttfts", "latencies", "start_times", "queue_times"))
    errors = [str(error or "")[:LONGEST_ERROR] for error in document.get("errors") or [""] * count]
    return BenchLists(prompt, output, ttft, latency, start, queue,
                      _numbers(path, "itls", list(chain.from_iterable(gaps))),
                      np.array([len(entry) for entry in gaps], np.int64), errors)


def _numbers(path: Path, name: str, entries: list[Any]) -> Reals:
    """Return a list of numbers, NaN for null. Raise BadCapture for anything else."""
    if not set(map(type, entries)) <= {int, float, type(None)}:
        raise BadCapture(f"{path}: {name}: holds something that is no number", FIX)
    try:
        return np.array(entries, np.float64)
    except OverflowError as error:
        raise BadCapture(f"{path}: {name}: {error}", FIX) from error


def _is_single(document: Mapping[str, Any], lists: BenchLists) -> bool:
    """Return whether each chunk is one token: as many of either in every answer, and no chunk for the role."""
    answered = lists.ttft > 0
    is_even = (lists.gap_counts[answered] + 1 == lists.output[answered]).all() and bool(answered.any())
    return bool(is_even) and bool(_interface(document)) and "chat" not in _interface(document)


def _interface(document: Mapping[str, Any]) -> str:
    return " ".join(str(document[name]) for name in ("endpoint_type", "backend") if document.get(name))


def _limits(document: Mapping[str, Any], lists: BenchLists, has_start: bool, is_single: bool) -> Iterator[str]:
    """Yield what the file does not have."""
    yield NO_STAMP
    yield NO_SOURCE
    if not is_single:
        yield IN_CHUNKS
    elif document.get("backend") in SPREADING:
        yield SPREAD
    if "chat" in _interface(document) or not _interface(document):
        yield ROLE
    if not has_start:
        yield NO_START
    if not np.isfinite(lists.queue).all():
        yield NO_DUE


def _tables(lists: BenchLists, document: Mapping[str, Any], has_start: bool, is_single: bool) -> Iterator[pa.Table]:
    """Yield the rows of requests, then those of events in pieces."""
    is_failed = np.array([bool(error.strip()) for error in lists.errors], bool)
    is_ok = lists.is_usable() & ~is_failed
    send = _ns(np.where(is_ok, lists.start, 0.0)) if has_start else np.zeros(len(is_ok), np.int64)
    first = send + _ns(np.where(is_ok, lists.ttft, 0.0))
    until = np.append(0, np.cumsum(lists.gaps_ns()))  # differences of it are right even where it overflows
    ends = np.cumsum(lists.gap_counts)
    last = first + until[ends] - until[ends - lists.gap_counts]
    whole = send + _ns(np.where(is_ok & np.isfinite(lists.latency), lists.latency, 0.0))
    has_due = is_ok & np.isfinite(lists.queue) & has_start
    has_send, output, count = is_ok | (not has_start), _counts(lists.output), len(is_ok)
    yield REQUESTS.build(
        request_id=np.arange(count), t_send_ns=pa.array(send, mask=~has_send), from_send=np.full(count, not has_start),
        t_intended_ns=pa.array(send - _ns(np.where(has_due, lists.queue, 0.0)), mask=~has_due),
        t_first_ns=pa.array(first, mask=~is_ok), t_last_ns=pa.array(last, mask=~is_ok),
        t_end_ns=pa.array(np.maximum(whole, last), mask=~is_ok), prompt_tokens=_counts(lists.prompt),
        output_tokens=output, tokens_source=[None if number is None else "tool" for number in output.to_pylist()],
        chunks=np.where(is_ok, lists.gap_counts + 1, 0),
        status=np.where(is_failed, FAILED, np.where(is_ok, "ok", UNUSABLE)).tolist(),
        detail=[error or None for error in lists.errors], model=[_text(document.get("model_id"))] * count,
        sent_again=np.zeros(count, np.int64))
    for begin in range(0, count, PIECE):
        yield _events(lists, first, until, slice(begin, min(begin + PIECE, count)), is_ok, is_single)


def _events(lists: BenchLists, first: Ints, until: Ints, part: slice, is_ok: Flags, is_single: bool) -> pa.Table:
    """Return the chunks of some requests: each a gap after the one before."""
    counts = np.where(is_ok, lists.gap_counts + 1, 0)[part]
    request = np.repeat(np.arange(part.start, part.stop), counts)
    index = np.arange(len(request)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = (np.cumsum(lists.gap_counts) - lists.gap_counts)[request]
    return LLM_EVENTS.build(
        request_id=request, index=index, t_ns=first[request] + until[begins + index] - until[begins],
        kind=pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(request), np.int32)), pa.array(["content"])),
        tokens=np.ones(len(request), np.int64) if is_single else None)


def _is_absent_or(seconds: Reals, least: float | Reals, most: float) -> Flags:
    return np.asarray(np.isnan(seconds) | ((seconds >= least) & (seconds < most)))


def _ns(seconds: Reals) -> Ints:
    """Return seconds as ns."""
    return np.rint(seconds * 1e9).astype(np.int64)


def _counts(numbers: Reals) -> pa.Array:
    """Return whole numbers of tokens; null for anything else."""
    is_count = (numbers >= 0) & (numbers < MOST_TOKENS) & (numbers == np.floor(numbers))
    return pa.array(np.where(is_count, numbers, 0).astype(np.int64), mask=~is_count)


def _text(entry: Any) -> str | None:
    return entry[:LONGEST_ERROR] if isinstance(entry, str) else None
