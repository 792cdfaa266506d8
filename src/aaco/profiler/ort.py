"""ONNX Runtime's own profile (Chrome trace JSON): node executions -> kernels, runs and control flow -> api_calls.

The file counts in whole microseconds from the start of profiling; every duration is therefore known to 1 us only.
Events of other categories (`Kernel`, from builds of ONNX Runtime that trace the GPU themselves) are no nodes and are
left out; the node that launched them is in the tables already.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, KERNELS

SOURCE = "ort"
CATEGORIES = ("Session", "Node")
SUFFIX = "_kernel_time"
RUN = "model_run"
# These nodes span the nodes of their bodies: counted as kernels they would count that time twice.
CONTAINERS = {"If", "Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}
# These run a node on the host, or wait for it there. Any other provider may return when the node is only queued: CUDA's
# spans are launches, at times a sixth, at times six times of what the GPU then takes.
WAITING = {"CPUExecutionProvider", "OpenVINOExecutionProvider", "DnnlExecutionProvider", "XnnpackExecutionProvider"}
FIX = "record it again: aaco run --profile, or SessionOptions.enable_profiling in your own program"


def recognises(path: Path) -> bool:
    """Whether the file begins as ONNX Runtime writes its profile."""
    try:
        head = _open(path).read(400)
    except (OSError, EOFError):
        return False
    return head.lstrip().startswith(b"[") and b'"cat"' in head and b'"model_loading' in head


def parse(path: Path, origin_ns: int = 0, warmup: int = 0) -> dict[str, pa.Table]:
    """The tables `kernels` and `api_calls`.

    origin_ns: CLOCK_MONOTONIC at the start of profiling; 0 leaves times relative to it. The first `warmup` runs are
    read too, but their kernels belong to no iteration. Raises BadCapture.
    """
    events = _events(path)
    try:
        return _tables(events, origin_ns, warmup)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise BadCapture(f"{path}: an event is not as ONNX Runtime writes it: {type(error).__name__} {error}",
                         FIX) from error


def _tables(events: list[dict[str, Any]], origin_ns: int, warmup: int) -> dict[str, pa.Table]:
    nodes = [event for event in events if event["cat"] == "Node" and event["name"].endswith(SUFFIX)]
    kernels = [event for event in nodes if event["args"]["op_name"] not in CONTAINERS]
    calls = [event for event in events if event["cat"] == "Session"]
    calls += [event for event in nodes if event["args"]["op_name"] in CONTAINERS]
    kernels.sort(key=lambda event: event["ts"])
    calls.sort(key=lambda event: event["ts"])
    runs = [(event["ts"], event["ts"] + event["dur"]) for event in calls if event["name"] == RUN]
    return {"kernels": _kernels(kernels, runs, origin_ns, warmup), "api_calls": _calls(calls, origin_ns)}


def _kernels(events: list[dict[str, Any]], runs: Sequence[tuple[int, int]], origin_ns: int, warmup: int) -> pa.Table:
    return KERNELS.build(
        kernel_id=np.arange(len(events)),
        kernel_name=[event["args"]["op_name"] for event in events],
        executed_node=[event["name"].removesuffix(SUFFIX) for event in events],
        provider=[event["args"].get("provider") or None for event in events],
        timed=["execution" if event["args"].get("provider") in WAITING else "dispatch" for event in events],
        iteration=_iterations([event["ts"] for event in events], runs, warmup),
        source=[SOURCE] * len(events), **_where_and_when(events, origin_ns))


def _calls(events: list[dict[str, Any]], origin_ns: int) -> pa.Table:
    return API_CALLS.build(
        call_id=np.arange(len(events)), name=[event["name"] for event in events],
        domain=["ort" if event["cat"] == "Session" else "cpu_op" for event in events],
        **_where_and_when(events, origin_ns))


def _where_and_when(events: list[dict[str, Any]], origin_ns: int) -> dict[str, Any]:
    start = origin_ns + 1000 * np.array([event["ts"] for event in events], np.int64)
    duration = 1000 * np.array([event["dur"] for event in events], np.int64)
    if (duration < 0).any():
        raise ValueError(f"negative duration in event {int((duration < 0).argmax())}")
    return {"process_id": [event["pid"] for event in events], "thread_id": [event["tid"] for event in events],
            "t_start_ns": start, "t_end_ns": start + duration, "dur_ns": duration}


def _iterations(starts: Sequence[int], runs: Sequence[tuple[int, int]], warmup: int) -> pa.Array:
    """Index of the run that each start lies in, less the warm-up; null outside every measured run."""
    begins = np.array([begin for begin, _ in runs], np.int64)
    ends = np.array([end for _, end in runs], np.int64)
    at = np.array(starts, np.int64)
    run = np.searchsorted(begins, at, side="right") - 1
    inside = (run >= warmup) & (at <= ends[np.maximum(run, 0)]) if len(runs) else np.zeros(len(at), bool)
    return pa.array(run - warmup, pa.int64(), mask=~inside)


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        document = json.loads(_open(path).read())
    except FileNotFoundError as error:
        raise BadCapture(f"{path}: no such file", FIX) from error
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the file and its permissions") from error
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise BadCapture(f"{path}: not JSON, or cut short: {error}", FIX) from error
    if not isinstance(document, list) or not all(isinstance(event, dict) for event in document):
        raise BadCapture(f"{path}: not an ONNX Runtime profile (a JSON list of events)", FIX)
    return document


def _open(path: Path) -> Any:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")
