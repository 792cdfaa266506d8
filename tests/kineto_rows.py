"""Real PyTorch traces as tables, read the slow and obvious way; the product's own parser is tested against its own."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests import third_party, timed

COPY_KINDS = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d"}


def path(name: str) -> Path:
    """A file of the third-party captures; the test is skipped without them."""
    return third_party.captures() / name


def read(name: str) -> dict[str, pa.Table]:
    """The tables kernels, copies and api_calls of a trace of the third-party captures."""
    document = json.loads(gzip.decompress(path(name).read_bytes()), parse_float=Decimal)
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    found: dict[str, list[dict[str, Any]]] = {"kernels": [], "copies": [], "calls": []}
    for event in events:
        _sort(event, found)
    return {"kernels": timed.kernels(*found["kernels"]), "copies": timed.copies(*found["copies"]),
            "api_calls": timed.calls(*found["calls"])}


def _sort(event: dict[str, Any], found: dict[str, list[dict[str, Any]]]) -> None:
    kind, arguments = event.get("cat"), event.get("args", {})
    start = int(event["ts"] * 1000)
    row = timed.at(start, start + int(event["dur"] * 1000), correlation_id=arguments.get("correlation"))
    place = {"device_id": arguments.get("device"), "stream_id": arguments.get("stream")}
    if kind == "kernel":
        found["kernels"].append(row | place | {"kernel_name": event["name"]})
    elif kind in ("gpu_memcpy", "gpu_memset"):
        found["copies"].append(row | place | {"bytes": int(arguments.get("bytes", 0))})
    elif kind in ("cuda_runtime", "cuda_driver", "user_annotation"):
        domain = "marker" if kind == "user_annotation" else kind
        found["calls"].append(row | {"name": event["name"], "domain": domain, "process_id": _number(event["pid"]),
                                     "thread_id": _number(event["tid"])})


def _number(text: Any) -> int:
    return int(text) if str(text).lstrip("-").isdigit() else 0
