"""Spans of requests that vLLM and SGLang export, as OTLP JSON: what OpenTelemetry's collector writes with `file`.

Each line, or the whole file, is an object with `resourceSpans`. A span that has attributes gen_ai.latency.* or
gen_ai.usage.* is a request: it starts when the server took it, and its latencies are the server's, in seconds. What the
client saw is not in it: when it sent the request, and when the tokens came.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import REQUESTS
from aaco.profiler.capture import CaptureFacts, Subtotal
from aaco.profiler.io import jsonfile, jsonstream

FORMAT = "gen_ai_spans"
MOST_LINE = 64 << 20
FIX = 'export it with the "file" exporter of OpenTelemetry\'s collector, format json'
OTHER = "span: not of a request to a language model"
NO_TIME = "span: its start or end is no time"
LONGEST_S = 1e7
MOST_TOKENS = 1 << 40
LONGEST_TEXT = 300
FAILED = "failed_elsewhere"
ERRORS = (2, "STATUS_CODE_ERROR")
FROM_SERVER = "spans are the server's: when the client sent a request, and when its tokens came, is not in them"
DURATIONS = {"server_queue_ns": "gen_ai.latency.time_in_queue",
             "server_prefill_ns": "gen_ai.latency.time_in_model_prefill",
             "server_decode_ns": "gen_ai.latency.time_in_model_decode",
             "server_ttft_ns": "gen_ai.latency.time_to_first_token", "server_latency_ns": "gen_ai.latency.e2e"}
# Of several names of a count the first that is there; the second are those of newer semantic conventions.
COUNTS = {"prompt_tokens": ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"),
          "output_tokens": ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"),
          "cached_tokens": ("gen_ai.usage.cached_tokens", "gen_ai.usage.cache_read.input_tokens")}
MODELS = ("gen_ai.response.model", "gen_ai.request.model")
_BEGINS = re.compile(rb'\s*\{\s*"resourceSpans"\s*:')


class OtlpValue(msgspec.Struct):
    """A value of an attribute; integers may be text (protobuf's JSON)."""

    stringValue: str | None = None
    intValue: int | str | None = None
    doubleValue: float | str | None = None


class OtlpAttribute(msgspec.Struct):
    """An attribute of a span."""

    key: str
    value: OtlpValue = msgspec.field(default_factory=OtlpValue)


class OtlpStatus(msgspec.Struct):
    """How a span ended."""

    code: int | str = 0
    message: str = ""


class OtlpSpan(msgspec.Struct):
    """A span, as far as it is read."""

    startTimeUnixNano: int | str = 0
    endTimeUnixNano: int | str = 0
    attributes: list[OtlpAttribute] = []
    status: OtlpStatus = msgspec.field(default_factory=OtlpStatus)


class OtlpScope(msgspec.Struct):
    """The spans of an instrumented library."""

    spans: list[OtlpSpan] = []


class OtlpResource(msgspec.Struct):
    """The spans of a process."""

    scopeSpans: list[OtlpScope] = []


class OtlpTraces(msgspec.Struct):
    """An export."""

    resourceSpans: list[OtlpResource]


def recognises(path: Path) -> bool:
    """Return whether the file begins as an export of spans."""
    return _BEGINS.match(jsonstream.head(path, 4096)) is not None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield requests, in the order of the file, then the facts. Raise BadCapture."""
    spans = requests = untimed = 0
    for export in _exports(path):
        rows = []
        for span in _spans(export):
            spans += 1
            attributes = {attribute.key: attribute.value for attribute in span.attributes}
            if not any(name.startswith(("gen_ai.latency.", "gen_ai.usage.")) for name in attributes):
                continue
            row = _row(span, attributes, requests)
            if row is None:
                untimed += 1
                continue
            rows.append(row)
            requests += 1
        with jsonfile.sound(path, FIX):
            yield REQUESTS.build(**{name: [row.get(name) for row in rows] for name in REQUESTS.columns})
    if untimed and not requests:
        raise BadCapture(f"{path}: of none of its {untimed:,} requests start and end are times", FIX)
    if not requests:
        raise BadCapture(f"{path}: none of its {spans:,} spans has attributes gen_ai.latency.* or gen_ai.usage.*",
                         "vllm serve --otlp-traces-endpoint URL")
    left_out = {OTHER: spans - requests - untimed, NO_TIME: untimed}
    yield CaptureFacts(FORMAT, clock="realtime", records={"span": spans}, problems=(FROM_SERVER,),
                       left_out={reason: Subtotal(count, 0) for reason, count in left_out.items() if count})


def _exports(path: Path) -> Iterator[OtlpTraces]:
    """Yield the exports of a file: one in each line, or one in all. Raise BadCapture."""
    decoder = msgspec.json.Decoder(OtlpTraces)
    with jsonstream.opened(path) as file:
        try:
            first = file.readline(MOST_LINE)
            try:
                export = decoder.decode(first)
            except msgspec.DecodeError:
                export = decoder.decode(first + file.read(MOST_LINE))
            yield export
            while line := file.readline(MOST_LINE):
                if line.strip():
                    yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadCapture(f"{path}: not OTLP JSON, or cut short: {error}", FIX) from error


def _spans(export: OtlpTraces) -> Iterator[OtlpSpan]:
    return (span for resource in export.resourceSpans for scope in resource.scopeSpans for span in scope.spans)


def _row(span: OtlpSpan, attributes: Mapping[str, OtlpValue], number: int) -> dict[str, Any] | None:
    """Return the row of a request; None if its start or end is no time."""
    start, end = _integer(span.startTimeUnixNano), _integer(span.endTimeUnixNano)
    if start is None or end is None or not 0 < start <= end < 1 << 63:
        return None
    durations = {column: _ns(attributes.get(name)) for column, name in DURATIONS.items()}
    counts = {column: _count(attributes, names) for column, names in COUNTS.items()}
    is_failed = span.status.code in ERRORS
    return {"request_id": number, "server_start_ns": start, **durations, **counts, "chunks": 0, "sent_again": 0,
            "tokens_source": None if counts["output_tokens"] is None else "server",
            "status": FAILED if is_failed else "ok", "detail": span.status.message[:LONGEST_TEXT] or None,
            "model": next((value.stringValue[:LONGEST_TEXT] for name in MODELS if (value := attributes.get(name))
                           and value.stringValue), None)}


def _ns(value: OtlpValue | None) -> int | None:
    """Return seconds as ns; None for what is no duration."""
    written = None if value is None else value.intValue if value.doubleValue is None else value.doubleValue
    try:
        seconds = math.nan if written is None else float(written)
    except (ValueError, OverflowError):
        return None
    return round(seconds * 1e9) if 0 <= seconds < LONGEST_S else None


def _count(attributes: Mapping[str, OtlpValue], names: Sequence[str]) -> int | None:
    counts = (_integer(attributes[name].intValue) for name in names if name in attributes)
    return next((count for count in counts if count is not None and 0 <= count < MOST_TOKENS), None)


def _integer(written: int | str | None) -> int | None:
    """Return a whole number that may be text; None for any other text."""
    if isinstance(written, str):
        return int(written) if len(written) < 20 and written.isascii() and written.isdigit() else None
    return written
