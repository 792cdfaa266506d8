"""Programs that share their device with another process are told so; traces of one process alone never are.

A trace can only be wrong in the second way if kernels of it take a millisecond or more, so others are not imported.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aaco import pipeline
from aaco.analytics.explanation import Explanation
from aaco.analytics.timeline.preempted import FEWEST, LONGER_NS
from aaco.core.config import resolve
from aaco.core.errors import AacoError
from benchmarks.claims import Claim
from benchmarks.diagnosis.agreement import traces

OWN = Path(__file__).parents[2] / "tests" / "captures"
LABEL = "shared_device_bound"
SLOWED = ("shared_products", "shared_passes")
SHARED = {"whole_programs": ("shared_products", "shared_passes", "shared_small_kernels"), "torch_shared": ("shared_",)}


def claims(captures: Path) -> Iterator[Claim]:
    """Yield what is said of the programs that share their device, and which others are said to."""
    with tempfile.TemporaryDirectory(prefix="aaco-co-tenants-") as folder:
        for name in SLOWED:
            explanation = _explained(OWN / "whole_programs" / f"{name}.trace.json.gz", Path(folder))
            label = explanation.diagnosis.label if explanation else "not read"
            yield Claim(f"{name}: class", LABEL, label, label == LABEL)
        wrong, looked_at = [], 0
        for path in traces(captures):
            if _is_shared(path) or not _has_long_kernels(path):
                continue
            explanation = _explained(path, Path(folder))
            if explanation is not None:
                looked_at += 1
                wrong += [path.name] if _preempted(explanation) else []
        yield Claim("kernels stopped by another process, in traces of one process alone with long kernels", "none",
                    f"in {len(wrong)} of {looked_at} {' '.join(wrong)}".rstrip(), looked_at > 0 and not wrong)


def _is_shared(path: Path) -> bool:
    return path.name.startswith(SHARED.get(path.parent.name, ("-",)))


def _has_long_kernels(path: Path) -> bool:
    content: Any = json.loads(gzip.decompress(path.read_bytes()))
    events = content["traceEvents"] if isinstance(content, dict) else content
    long = [event for event in events if isinstance(event, dict) and event.get("cat") == "kernel"
            and 1000 * float(event.get("dur", 0)) >= LONGER_NS]
    return len(long) >= FEWEST


def _explained(path: Path, folder: Path) -> Explanation | None:
    settings = resolve(overrides={"storage": {"sessions_dir": str(folder)}}, environment={})
    try:
        return pipeline.explain(pipeline.import_captures([path], settings).session, settings)
    except AacoError:
        return None


def _preempted(explanation: Explanation) -> int:
    document = explanation.examined.get("windows") or {"ranks": []}
    return sum(rank["preempted_kernels"] for rank in document["ranks"])
