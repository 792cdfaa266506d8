"""Answers of OpenAI-compatible servers: server-sent events of a stream, one chunk of JSON each, and what each says.

Events are lines, as the HTML standard has them (section 9.2.6): any of CRLF, LF and CR ends one, a comment begins with
a colon, an empty line ends an event.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from aaco.core.arrays import Flags, Ints

EVENT_STREAM = "text/event-stream"
ANY_WINDOW = 32 + zlib.MAX_WBITS  # of gzip and of zlib
MOST_READ = 1 << 16  # bytes of one read of a connection
MOST_LINE = 16 << 20  # bytes: a line beyond it is no chunk of any server
END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r(?!\n)|\n\r\n|\r\n\n")
LINE = re.compile(rb"\r\n|\n|\r")
DONE = b"[DONE]"
EVENT, NEWLINE = b"data: {", ord("\n")
# Fields with data: the first of a stream may follow a byte order mark, and older llama.cpp has errors in their own.
FIELDS = (b"data", b"error", b"\xef\xbb\xbfdata")
Text = str | None
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None  # what a float, and so any reader of JSON, holds exactly
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)] | None  # 30 years


class Details(msgspec.Struct, gc=False):
    """Parts of the counts of tokens."""

    cached_tokens: Count = None
    reasoning_tokens: Count = None
    accepted_prediction_tokens: Count = None


class Usage(msgspec.Struct, gc=False):
    """Counts of tokens until now."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


class Timings(msgspec.Struct, gc=False):
    """What llama.cpp's server says of the time: its prompt until the first token, and the tokens after that."""

    predicted_n: Count = None
    prompt_n: Count = None
    cache_n: Count = None
    draft_n_accepted: Count = None
    prompt_ms: Milliseconds = None
    predicted_ms: Milliseconds = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk of a chat adds. Text is only looked at for being there."""

    content: Text = None
    reasoning_content: Text = None
    reasoning: Text = None
    tool_calls: list[Any] | None = None
    refusal: Text = None


class ChunkChoice(msgspec.Struct, gc=False):
    """One of the answers in a chunk: of a chat a delta, of a completion text."""

    index: int = 0
    delta: Delta | None = None
    text: Text = None
    finish_reason: Text = None


class Chunk(msgspec.Struct, gc=False):
    """A chunk of a stream; an error in its place is an object, or a text."""

    choices: list[ChunkChoice] = []
    model: Text = None
    usage: Usage | None = None
    timings: Timings | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


def is_stream(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether an answer with this header is a stream of events."""
    return status == 200 and EVENT_STREAM in headers.get("content-type", EVENT_STREAM).lower()


class Malformed(ValueError):
    """An event that is no chunk; the message says why."""


def decode(content: bytes) -> Chunk:
    """Return the chunk that is the data of an event. Raise Malformed."""
    try:
        chunk = _decode(content)
        if not (chunk.choices or chunk.usage or chunk.timings or chunk.error):
            chunk.error = _bare_error(content)
        return chunk
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error


def _bare_error(content: bytes) -> dict[str, Any] | None:
    """Return an object that is an error by itself, not in a field of that name, as older vLLM and FastAPI write it."""
    fields: dict[str, Any] = msgspec.json.decode(content)
    is_error = fields.get("object") == "error" or fields.get("message") or fields.get("detail")
    return fields if is_error else None


def kind_of(chunk: Chunk) -> str:
    """Return what the chunk brings: content, reasoning, usage, error, or empty."""
    if chunk.error is not None:
        return "error"
    if not chunk.choices:
        return "usage" if chunk.usage or chunk.timings else "empty"
    if len(chunk.choices) == 1:
        return _kind_of_choice(chunk.choices[0])
    kinds = [_kind_of_choice(choice) for choice in chunk.choices]
    return next((kind for kind in ("content", "reasoning") if kind in kinds), "empty")


def text_of_choice(choice: ChunkChoice) -> str:
    """Return the text that a choice brings; empty for none."""
    return (choice.delta.content if choice.delta else choice.text) or ""


def _kind_of_choice(choice: ChunkChoice) -> str:
    delta = choice.delta
    if choice.text or (delta and (delta.content or delta.tool_calls or delta.refusal)):
        return "content"
    return "reasoning" if delta and (delta.reasoning_content or delta.reasoning) else "empty"


def are_one_event(content: bytes, ends: Ints) -> Flags:
    """Return which pieces of the content, by where they end, are the one line of an event and the line that ends it, as
    nearly all reads of a stream are."""
    letters, begins = np.frombuffer(content, np.uint8), np.append(0, ends)[:-1]
    lines = np.flatnonzero(letters == NEWLINE)
    before = np.searchsorted(lines, begins)
    is_one = (ends - begins > len(EVENT)) & (np.searchsorted(lines, ends) - before == 2)
    is_one[is_one] = (lines[before[is_one]] == ends[is_one] - 2) & (lines[before[is_one] + 1] == ends[is_one] - 1)
    first = letters[begins[is_one, None] + np.arange(len(EVENT))]
    is_one[is_one] = (first == np.frombuffer(EVENT, np.uint8)).all(axis=1)
    return is_one


class EventSplitter:
    """Cuts the content of one answer into the data of its events; pieces may end anywhere."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # what has no end yet
        self._size = 0

    def feed(self, content: bytes) -> list[bytes]:
        """Return the data of the events that the content completes. Raise Malformed for a line without end."""
        if not self._size and content.startswith(EVENT) and content.find(b"\n") == len(content) - 2 \
                and content.endswith(b"\n"):
            return [content[6:-2]]  # nearly all are like this
        self._pieces.append(content)
        self._size += len(content)
        if self._size > MOST_LINE:
            raise Malformed(f"a line of more than {MOST_LINE >> 20} MiB")
        if b"\n" not in content and b"\r" not in content:
            return []
        *blocks, remainder = END_OF_EVENT.split(b"".join(self._pieces))
        self._pieces, self._size = [remainder] if remainder else [], len(remainder)
        return [data for block in blocks if (data := _data(block))]

    @property
    def is_between(self) -> bool:
        """Return whether what was fed ends with an event."""
        return not self._size

    @property
    def left(self) -> bytes:
        """Return the data of what came without an end."""
        return _data(b"".join(self._pieces))


def _data(block: bytes) -> bytes:
    """Return the data of an event; empty for a comment or an event without any."""
    if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
        return block[6:]
    lines = (line.partition(b":") for line in LINE.split(block))
    return b"\n".join(content.removeprefix(b" ") for name, _, content in lines if name in FIELDS)


def message_of(error: Any) -> str:
    """Return the words of an error object, or of a body that holds one."""
    inner = error.get("error", error) if isinstance(error, dict) else error
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or inner
    return " ".join(str(inner).split())
