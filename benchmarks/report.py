"""What the report of a trace of a million kernels costs: its size, its making, and how soon a browser shows it.

    python -m benchmarks.report [--kernels 1000000] [--runs 5] [--folder DIR]

The trace is made by trace_generators.py and imported; --folder keeps both for the next time. Bars (those of the page):
below 1.5 MB, and 1.5 s from opening the file until it is loaded, its plots are drawn and it is painted, the median of
the runs, each in a fresh profile. Beside it what making each form costs in CPU seconds; making has no bar. A table and
JSON are printed; the exit code is 1 where a bar is missed. The browser is Debian's Chromium, driven by the tests' own
driver: it needs the environment of the tests (scripts/env; npm ci in tests/browser).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aaco import pipeline
from aaco.analytics.explanation import Explanation
from aaco.core.config import resolve
from aaco.core.session import find
from aaco.report.plots import plots
from aaco.report.renderers import output_formats, typesetting
from benchmarks import trace_generators

try:
    from tests.browser.chromium import Browser, missing
except ImportError as lacking:
    raise SystemExit(f"benchmarks.report needs the environment of the tests, which has {lacking.name}: scripts/env, "
                     "and npm ci in tests/browser") from lacking

MOST_BYTES, MOST_READY_MS = 1_500_000, 1_500.0


def session(folder: Path, kernels: int) -> Explanation:
    """The imported trace, explained; made where the folder does not hold it yet."""
    sessions = folder / f"sessions-{kernels}"
    settings = resolve(overrides={"storage": {"sessions_dir": str(sessions)}})
    if not (sessions / "latest").exists():
        trace = folder / f"kineto-{kernels}.json"
        if not trace.exists():
            trace_generators.write_kineto(trace, kernels, lean=True)
        pipeline.import_captures([trace], settings)
    return pipeline.explain(find("latest", sessions), settings)


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of this process that it takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def ready_ms(page: Path, runs: int, **how: Any) -> list[float]:
    """From opening the page until it is painted with its plots, each time in a profile of its own."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        browser = Browser(Path(scratch))
        for _ in range(runs + 1):
            opened = browser.open(page.as_uri(), **how)
            found.append(opened.ready_ms)
            opened.close()
        browser.close()
    return found[1:]  # the first also starts the browser's own parts


def measured(explanation: Explanation, folder: Path, runs: int) -> dict[str, Any]:
    """The figures."""
    page = folder / "report.html"
    page.write_bytes(output_formats.encoded(explanation, "html"))
    made = {form: min(cpu_s(lambda form=form: output_formats.encoded(explanation, form)) for _ in range(3))  # type: ignore[misc]
            for form in output_formats.SUFFIXES}
    drawings = plots.drawings(explanation)
    return {"kernels": explanation.rows("kernels"), "html_bytes": page.stat().st_size, "cpu_s": made,
            "png_cpu_s": min(cpu_s(lambda: typesetting.pngs(drawings)) for _ in range(3)), "plots": len(drawings),
            "ready_ms": ready_ms(page, runs), "ready_phone_ms": ready_ms(page, runs, width=390, height=844)}


def main() -> int:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if lacks := missing():
        parser.error(f"it needs {lacks}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        found = measured(session(folder, given.kernels), folder, given.runs)
    ready = {name: statistics.median(found[name]) for name in ("ready_ms", "ready_phone_ms")}
    print(f"{found['kernels']:,} kernels")
    print(f"size of the page          {found['html_bytes'] / 1e6:8.2f} MB     bar {MOST_BYTES / 1e6:.1f} MB")
    for name, label in (("ready_ms", "ready in a browser"), ("ready_phone_ms", "ready, 390 px wide")):
        print(f"{label:<25} {ready[name]:8.0f} ms     bar {MOST_READY_MS:.0f} ms   "
              f"({min(found[name]):.0f} to {max(found[name]):.0f})")
    for form, seconds in found["cpu_s"].items():
        print(f"making {form:<18} {seconds:8.3f} s CPU")
    print(f"{found['plots']} plots as PNG{'':<12} {found['png_cpu_s']:8.3f} s CPU")
    print(json.dumps(found))
    return int(found["html_bytes"] >= MOST_BYTES or max(ready.values()) > MOST_READY_MS)


if __name__ == "__main__":
    raise SystemExit(main())
