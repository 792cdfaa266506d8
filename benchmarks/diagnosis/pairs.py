"""One model on two vendors' devices: is the whole difference of the two traces explained, and by parts both sides have?

The spans are taken from the files themselves, by Python's own integers, not from the tables.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.session import Session
from aaco.governance.tracediff import TraceChange
from aaco.workflows import compare_traces
from benchmarks.claims import Claim

SIDES = ("mi300", "h100")
MOST_UNNAMED_PCT = 1.0


def claims(captures: Path) -> list[Claim]:
    """Every claim about pairs of vendors."""
    with TemporaryDirectory(prefix="aaco-pairs-") as folder:
        return [claim for model, files in _pairs(captures / "kineto").items()
                for claim in _claims(model, files, Path(folder))]


def _pairs(folder: Path) -> dict[str, list[Path]]:
    """Model -> its trace on each of SIDES."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in sorted(folder.glob("*__*.json.gz")):
        side, _, model = path.name.partition("_")
        found[model.partition("__")[0]][side] = path
    return {model: [files[side] for side in SIDES] for model, files in found.items() if all(map(files.get, SIDES))}


def _claims(model: str, files: list[Path], folder: Path) -> Iterator[Claim]:
    sessions = [_imported(path, folder) for path in files]
    truth = _span(files[1]) - _span(files[0])
    for name, pair, wanted in ((f"{SIDES[0]} -> {SIDES[1]}", sessions, truth),
                               (f"{SIDES[1]} -> {SIDES[0]}", sessions[::-1], -truth)):
        change = compare_traces.difference(*pair)
        explained = sum(part.delta_ns for part in change.purposes) + change.delta_gaps_ns - change.delta_overlap_ns
        yield Claim(f"{model}, {name}: span left unexplained", "0 ns",
                    f"{wanted - explained:,} of {wanted:+,} ns", explained == wanted)
    change = compare_traces.difference(*sessions)
    caused = sum(wait.delta_ns for wait in change.waits)
    yield Claim(f"{model}: difference of the gaps without a cause", "0 ns",
                f"{change.delta_gaps_ns - caused:,} of {change.delta_gaps_ns:+,} ns", caused == change.delta_gaps_ns)
    unnamed, apart, whole = _shares(change)
    yield Claim(f"{model}: kernel time of no known family", f"<= {MOST_UNNAMED_PCT:g} %", f"{unnamed:.2f} %",
                unnamed <= MOST_UNNAMED_PCT)
    yield Claim(f"{model}: kernel time in parts of one side only", "", f"{apart:.2f} %, of "
                f"{whole} families in operators", None)


def _imported(path: Path, folder: Path) -> Session:
    settings = resolve(overrides={"storage": {"sessions_dir": folder}})
    return pipeline.import_captures([path], settings).session


def _span(path: Path) -> int:
    """From the first start to the last end of the kernels of each device, in ns, summed."""
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    first: dict[int, Decimal] = {}
    last: dict[int, Decimal] = {}
    for event in events:
        if event.get("cat") == "kernel":
            device, start = event["args"]["device"], Decimal(event["ts"])
            first[device] = min(first.get(device, start), start)
            last[device] = max(last.get(device, start), start + Decimal(event["dur"]))
    return int(sum(1000 * (last[device] - first[device]) for device in first))


def _shares(change: TraceChange) -> tuple[float, float, int]:
    """Of both sides' kernel time: percent of no known family, percent in parts of one side only; and the parts."""
    parts = [(part, part.ns_before + part.ns_after) for part in change.purposes]
    whole = sum(ns for _, ns in parts)
    unnamed = sum(ns for part, ns in parts if part.family == "unknown")
    apart = sum(ns for part, ns in parts if not (part.count_before and part.count_after))
    return 100 * unnamed / whole, 100 * apart / whole, len(parts)
