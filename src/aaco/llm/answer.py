"""One answer, as its events arrive: the row of `requests` that it becomes, and its rows of `llm_events`."""

from __future__ import annotations

import json
import zlib
from typing import Any

from aaco.llm.answers import (
    DONE,
    Details,
    EventSplitter,
    Malformed,
    Timings,
    Usage,
    decode,
    is_stream,
    kind_of,
    message_of,
)
from aaco.llm.runs import ChunkRun
from aaco.llm.shapes import ChunkShape

KINDS = ("content", "reasoning", "empty", "usage", "error", "done")
CODES = {kind: code for code, kind in enumerate(KINDS)}
CONTENT, REASONING, EMPTY, DONE_CODE = CODES["content"], CODES["reasoning"], CODES["empty"], CODES["done"]
OK = "ok"
COUNTED = "counted"  # source of tokens that were made in this process
MOST_DETAIL = 300
MOST_BODY = 1 << 16  # bytes that are kept of an answer that is no stream
UNKNOWN = -1  # in columns of integers
IDENTITY = "identity"
WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # by Content-Encoding


class StreamedAnswer:
    """What is known of a request and its answer so far."""

    def __init__(self, request: int, intended_ns: int, send_ns: int, cpu_wait_ns: int = UNKNOWN) -> None:
        self.request, self.intended_ns, self.send_ns, self.cpu_wait_ns = request, intended_ns, send_ns, cpu_wait_ns
        self.sent_ns = self.first_byte_ns = self.end_ns = self.first_ns = self.last_ns = UNKNOWN
        self.first_earliest_ns = self.last_earliest_ns = UNKNOWN
        self.read_ns = send_ns  # when the last read came, if that has a stamp, which bounds the next
        self.index = self.chunks = self.again = self.counted = self.in_reasoning = 0
        self.is_counting, self.has_reasoning = True, False  # is_counting: whether each event says how many until it
        self.http_status = UNKNOWN
        self.model = self.detail = self.failure = ""
        self.usage, self.timings = Usage(), Timings()
        self.source = self._counted_by = ""  # which part of the chunks has the counts
        self.place: dict[str, int | None] = {}  # of a turn of a conversation: which
        self.done = self.finished = self.is_stream = False  # is_stream: whether the header promises events
        self.is_plain = False  # whether the next read is events as they are, from the begin of one on
        self._latest = b""  # the last chunk that was taken with others, until it is looked into
        self._shape: ChunkShape | None = None  # the shape of those
        self._head: dict[str, Any] = {}
        self._events = EventSplitter()
        self._body = b""
        self._inflate: Any = None

    def begin(self, head: bytes) -> None:
        """Take what the header says."""
        self._head = json.loads(head)
        self.http_status = int(self._head["status"])
        self.is_stream = is_stream(self.http_status, self._head)
        encoding = self._head.get("content-encoding", IDENTITY).strip().lower()
        if encoding in WINDOWS:
            self._inflate = zlib.decompressobj(WINDOWS[encoding])
        elif self.is_stream and encoding != IDENTITY:
            self.fail("malformed", f"Content-Encoding: {encoding}, which was not asked for")
        self.is_plain = self.is_stream and not self._inflate and not self.failure

    def read(self, content: bytes) -> list[bytes]:
        """Return the data of the events that a read completes; of what is no stream, and after a failure, none."""
        if self.failure:
            return []
        try:
            if self._inflate:
                content = self._inflate.decompress(content)
            if self.is_stream:
                data = self._events.feed(content)
                self.is_plain = not self._inflate and self._events.is_between
                return data
        except (zlib.error, Malformed) as error:
            self.fail("malformed", str(error))
            return []
        self._body = (self._body + content)[:MOST_BODY]
        return []

    @property
    def is_between(self) -> bool:
        """Return whether the last read ended with an event."""
        return self._events.is_between

    def take(self, data: bytes, t_ns: int, earliest_ns: int) -> tuple[int, int]:
        """Take the data of an event that came between these times; return the code of its kind, and its tokens."""
        self._look_into_latest()
        if data == DONE:
            self.done = True
            return DONE_CODE, UNKNOWN
        try:
            chunk = decode(data)
        except Malformed as error:
            self.fail("malformed", f"{error}: {data[:60].decode(errors='replace')}")
            return CODES["error"], UNKNOWN
        code = CODES[kind_of(chunk)]
        if chunk.error is not None:
            self.fail("error_in_stream", message_of(chunk.error))
            return code, UNKNOWN
        self.model = chunk.model or self.model
        for choice in chunk.choices:
            if choice.finish_reason:  # some servers have an empty one until then
                self.finished = True
        total = tokens = UNKNOWN
        if timings := chunk.timings:
            self.timings = timings
            if timings.predicted_n is not None:
                total, self._counted_by = timings.predicted_n, "timings"
        if usage := chunk.usage:
            self.usage = usage
            if usage.completion_tokens is not None:
                total, self._counted_by = usage.completion_tokens, "continuous_usage"
        if code == EMPTY and self.chunks and self.is_counting and total > self.counted:
            code = CONTENT  # a token without text, such as the one that ends the answer
        if code == CONTENT:
            if not self.chunks:
                self.first_ns, self.first_earliest_ns = t_ns, earliest_ns
            self.chunks += 1
            self.last_ns, self.last_earliest_ns = t_ns, earliest_ns
        elif code == REASONING:
            self.has_reasoning = True
        else:
            return code, tokens
        if total < self.counted:
            self.is_counting = False  # what follows cannot be split into its events any more
        elif self.is_counting:  # tokens since the last event with any
            tokens, self.counted, self.source = total - self.counted, total, self._counted_by
            if code == REASONING:
                self.in_reasoning += tokens
        return code, tokens

    def take_alike(self, shape: ChunkShape, run: ChunkRun, last: bytes, first_ns: int, last_ns: int) -> tuple[int, int]:
        """Take chunks of one shape, of which `last` is the data of the last; return the number of the first event, and
        the tokens before it, UNKNOWN where those of the chunks are not known. A number that is UNKNOWN: nothing was
        taken, each is to be taken by itself.
        """
        if not self.is_plain or not run.is_rising or (self.is_counting and 0 <= run.total < self.counted):
            return UNKNOWN, UNKNOWN
        if shape is not self._shape:
            self._look_into_latest()
        self._latest, self._shape = last, shape
        if is_content := shape.kind == "content":
            if not self.chunks:
                self.first_ns, self.first_earliest_ns = first_ns, UNKNOWN
            self.chunks += run.size
            self.last_ns, self.last_earliest_ns = last_ns, UNKNOWN
        else:
            self.has_reasoning = True
        first, before = self.index, UNKNOWN
        self.index += run.size
        self.read_ns = last_ns
        self.is_counting &= run.total != UNKNOWN
        if self.is_counting:
            before, self.counted, self.source = self.counted, run.last_total, "continuous_usage"
            if not is_content:
                self.in_reasoning += run.last_total - before
        return first, before

    def _look_into_latest(self) -> None:
        """Note what is in the last of chunks that were taken together, as it was in those before it."""
        if self._latest:
            chunk = decode(self._latest)
            self.model, self.usage = chunk.model or self.model, chunk.usage or self.usage
            self._latest, self._shape = b"", None

    def take_prompt(self, tokens: int) -> None:
        """Take the length of the prompt of a target in this process, which keeps no prefixes."""
        self.usage = Usage(tokens, prompt_tokens_details=Details(cached_tokens=0))
        self.finished, self.source = True, COUNTED

    def take_token(self, t_ns: int) -> None:
        """Take one token of a target in this process: its time is exact."""
        if not self.chunks:
            self.first_ns = t_ns
        self.chunks += 1
        self.counted += 1
        self.last_ns = t_ns

    def fail(self, why: str, detail: str = "") -> None:
        """Note the first failure."""
        self._look_into_latest()
        if not self.failure:
            self.is_plain, self.failure, self.detail = False, why, " ".join(detail.split())[:MOST_DETAIL]

    def end(self, why: str, at: int) -> None:
        """Take how the connection ended: empty for a complete answer, else the class of the failure and more."""
        self._look_into_latest()
        self.end_ns = at
        status, _, detail = why.partition(": ")
        self.done = self.done or self._events.left == DONE  # the line that ends it may be missing
        if self.http_status not in (UNKNOWN, 200):
            self.fail("http_error", self._said())
        elif self.http_status == 200 and not self.is_stream:
            self.fail("not_streamed", self._said())
        elif status and not self.done:
            self.fail(status, detail)
        elif not (self.done or self.finished):
            self.fail("cut", "the answer ended without [DONE] or a reason to finish")
        elif not self.chunks:
            self.fail("no_tokens", "the answer has reasoning only" if self.has_reasoning else "the answer has no text")

    def _said(self) -> str:
        try:
            words = message_of(json.loads(self._body))
        except (ValueError, RecursionError):
            words = self._body.decode(errors="replace")
        if place := self._head.get("location"):
            words = f"{words} (Location: {place}, which is not followed)"
        wait = self._head.get("retry-after")
        return f"{words} (Retry-After: {wait})" if wait else words

    @property
    def status(self) -> str:
        """Return ok, or the class of the failure."""
        return self.failure or OK

    @property
    def counts(self) -> dict[str, int | str | None]:
        """Return the counts of tokens, as columns of `requests`; None for what the server does not say."""
        usage, timings, is_counted = self.usage, self.timings, bool(self.source) and self.is_counting
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        total = self.counted if is_counted else _first(usage.completion_tokens, timings.predicted_n)
        reasoning = self.in_reasoning if is_counted else completion.reasoning_tokens if completion else None
        if reasoning is None and not self.has_reasoning:
            reasoning = 0
        output = None if total is None or reasoning is None else total - reasoning
        return {"prompt_tokens": _first(usage.prompt_tokens, timings.prompt_n),
                "cached_tokens": _first(prompt.cached_tokens if prompt else None, timings.cache_n),
                "output_tokens": output, "reasoning_tokens": reasoning,
                "tokens_source": None if output is None else self.source if is_counted else "usage",
                "accepted_draft_tokens": _first(completion.accepted_prediction_tokens if completion else None,
                                                timings.draft_n_accepted)}

    @property
    def server_times(self) -> dict[str, int | None]:
        """Return the durations that the server says, ns, as columns of `requests`."""
        return {"server_prefill_ns": _ns(self.timings.prompt_ms), "server_decode_ns": _ns(self.timings.predicted_ms)}


def _ns(ms: float | None) -> int | None:
    return None if ms is None else round(ms * 1e6)


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)
