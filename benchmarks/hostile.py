"""The whole pipeline on captures that were damaged by someone who knows their structure.

Each mutant is a capture with a few fields, cells, rows, tables or bytes changed, most of them times and kinds. It is
imported, explained, rendered in four forms and checked. It must succeed or be refused in the documented form; a failure
leaves no session; and kernels and ns are those that a plain reader of the same file counts, or what was left out is
named. `python -m benchmarks.hostile [--mutants 5000] [--seed 1] [--only FORMAT] [--json FILE]` prints a line for each
format, and fails where a mutant does. Formats without a small capture of our own take one of AACO_CAPTURES.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aaco import pipeline
from aaco.core.config import Settings, resolve
from aaco.core.errors import AacoError
from aaco.core.session import sessions
from aaco.profiler.formats import registry
from aaco.report.renderers import output_formats
from aaco.report.sections import truth
from aaco.steps.findings.truth import check
from aaco.tracelake import documents, layout
from benchmarks import hostile_mutations, hostile_seeds
from benchmarks.hostile_readers import READERS
from tests.contract.hostile import LARGEST, copy

CAPTURES = Path(os.environ.get("AACO_CAPTURES", "../shared/data"))
LONGEST_S = 120
FORMS: tuple[output_formats.Text, ...] = ("terminal", "json", "markdown", "html")


class Read(Struct, frozen=True):
    """What became of a capture: kernels and ns of the tables, and what is said of it."""

    kernels: int
    ns: int
    said: frozenset[str]


class Tally(Struct):
    """How the mutants of a format fared, and each failure: seed, what was done, what is wrong."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def seeds(folder: Path) -> dict[str, Path]:
    """A small capture of each format."""
    made = hostile_seeds.write(folder / "made")
    for form, patterns in hostile_seeds.RECORDED.items():
        files = [path for pattern in patterns for path in CAPTURES.glob(pattern) if path.stat().st_size <= LARGEST]
        if files:
            made[form] = min(files, key=lambda path: path.stat().st_size)
    return made


def whole(path: Path, settings: Settings) -> Read:
    """Import, explain, render and check the capture. Raises AacoError."""
    session = pipeline.import_captures([path], settings).session
    explanation = pipeline.explain(session, settings)
    for form in FORMS:
        output_formats.render(explanation, form)
    document = check(session)
    truth.render(document)
    captures = documents.read(session, layout.CAPTURES)["captures"]
    kernels = [capture["tables"].get("kernels", {}) for capture in captures]
    said = {text for capture in captures for text in (*capture["problems"], *capture["left_out"])}
    said |= {found["text"] for capture in document["captures"] for found in capture["findings"] if found["alarms"]}
    dropped = [capture["account"]["dropped"] for capture in document["captures"]]
    if any(part and (part["count"] or part["ns"]) for part in dropped):
        raise AssertionError(f"the account does not close: {dropped}")
    return Read(sum(tally.get("rows", 0) for tally in kernels), sum(tally.get("ns", 0) for tally in kernels),
                frozenset(said))


def outcome(form: str, path: Path, healthy: Read, settings: Settings) -> tuple[str, str]:
    """How the pipeline took a mutant: `read`, `refused` or `failed`, and what is wrong."""
    root = settings.config.storage.sessions_dir
    try:
        with _limited():
            result = whole(path, settings)
    except AacoError as error:
        left = [file for file in root.rglob("*") if file.is_file()]
        return ("failed", f"a refusal leaves {left[0]}") if left or not error.what else ("refused", "")
    except Exception:  # noqa: BLE001  whatever comes out is what is looked for
        return "failed", traceback.format_exc()
    finally:
        left_over = list(sessions(root))
        shutil.rmtree(root, ignore_errors=True)
    plain = READERS[form](path) if form in READERS else None
    if len(left_over) != 1 or left_over[0].folder.name.startswith("."):
        return "failed", f"{len(left_over)} sessions"
    if plain is not None and plain != (result.kernels, result.ns) and not result.said - healthy.said:
        return "failed", f"{plain} kernels and ns in the file, {result.kernels, result.ns} in the tables, and no word"
    return "read", ""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(count: int, seed: int, only: str | None = None) -> dict[str, Tally]:
    """Tallies by format of so many mutants, spread evenly over the formats; of one format those that the whole has."""
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = seeds(folder)
        chosen = {form: path for form, path in made.items() if only in (None, form)}
        settings = resolve(overrides={"storage": {"sessions_dir": str(folder / "sessions")}}, environment={})
        healthy = {form: _healthy(form, path, settings) for form, path in chosen.items()}
        for number in range(count):
            form = list(made)[number % len(made)]
            if form not in chosen:
                continue
            mutant = f"{seed}-{number}"
            shutil.rmtree(folder / "mutant", ignore_errors=True)
            path = copy(registry.parsers()[form], chosen[form], folder / "mutant")
            done = hostile_mutations.mutate(path, random.Random(mutant))
            how, why = outcome(form, path, healthy[form], settings)
            tally = tallies.setdefault(form, Tally())
            tally.outcomes[how] += 1
            if why:
                tally.failures.append(f"{form} {mutant}: {done}: {why}")
                print(tally.failures[-1], file=sys.stderr, flush=True)
    return tallies


def _healthy(form: str, path: Path, settings: Settings) -> Read:
    """What becomes of the capture as it is. Raises AssertionError where the plain reader counts otherwise."""
    result = whole(path, settings)
    shutil.rmtree(settings.config.storage.sessions_dir)
    if form in READERS and READERS[form](path) != (result.kernels, result.ns):
        raise AssertionError(f"{form}: {READERS[form](path)} in the file, {result} in the tables")
    return result


def main() -> int:
    """Print how each format fared; 1 where a mutant failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="a format: its mutants among those of all formats")
    parser.add_argument("--json", type=Path, help="write the result here too")
    asked = parser.parse_args()
    tallies = run(asked.mutants, asked.seed, asked.only)
    print(f"{'format':<16} {'read':>6} {'refused':>8} {'failed':>7}")
    for form, tally in tallies.items():
        print(f"{form:<16} {tally.outcomes['read']:>6} {tally.outcomes['refused']:>8} {tally.outcomes['failed']:>7}")
    failed = sum(tally.outcomes["failed"] for tally in tallies.values())
    count = sum(tally.outcomes.total() for tally in tallies.values())
    print(f"{failed} of {count} mutants failed (bar: 0)")
    if asked.json:
        content: dict[str, Any] = {"mutants": count, "seed": asked.seed, "failed": failed, "formats": {
            form: {**tally.outcomes, "failures": tally.failures} for form, tally in tallies.items()}}
        asked.json.write_text(json.dumps(content, indent=1) + "\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
