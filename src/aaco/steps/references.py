"""Reference traces: captures of the graphs that a session replays, and the same step without a graph.

Their kernels are no part of the workload. Each is read in a session of its own, which is then removed; what stays is
what each launch was: operator, module, shapes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from aaco.analytics.attribution.framework import Attribution
from aaco.analytics.serving.annotations import DECODE, read_capture
from aaco.analytics.serving.steps import StepKernels
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.core.errors import UsageError
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import EAGER_STEP, GRAPH_CAPTURE, REFERENCE_LAUNCHES, replaced
from aaco.report.format import clean
from aaco.steps import import_captures as importing
from aaco.steps.find_captures import CaptureFiles, CaptureSelection, discover
from aaco.steps.findings import attribution, serving_steps
from aaco.steps.read_captures import CaptureReading
from aaco.steps.serving_inputs import NO_INPUTS, ServingInputs
from aaco.tracelake import queries, store

TOLD = ("kernel_name", "operator", "outermost", "module", "annotation", "frame", "shapes", "dtypes", "inputs")
MOST_STEPS = 64  # different eager steps of a file that are kept


def add(session: Session, reading: CaptureReading, inputs: ServingInputs = NO_INPUTS,
        show: Show = SILENT) -> None:
    """Write the launches of reference traces into a session, and add a note on each to what is read.

    They are those given, and the captures of graphs next to the workload's. Raise UsageError, BadCapture.
    """
    beside = reading.selection.graphs
    parts, names, first = list[pa.Table](), dict[str, list[str]](), 0
    for kind, capture in (*((GRAPH_CAPTURE, capture) for capture in beside), *_asked(inputs)):
        show.step(f"reading {clean(capture.path.name)} ({kind})")
        part = _launches(capture, kind)
        parts.append(replaced(part, "graph", pa.array(integers(part["graph"]) + first)))
        names.setdefault(kind, []).append(capture.path.name)
        first += pc.count_distinct(part["graph"]).as_py()
    if parts:
        table = pa.concat_tables(parts, promote_options="permissive")
        store.write(session, REFERENCE_LAUNCHES, table)
        notes = [_note(kind, files, table) for kind, files in names.items()]
        reading.selection = replace(reading.selection, notes=(*reading.selection.notes, *notes))


def _asked(inputs: ServingInputs) -> Iterator[tuple[str, CaptureFiles]]:
    for kind, paths in ((GRAPH_CAPTURE, inputs.captures), (EAGER_STEP, inputs.eager)):
        selection = discover(paths) if paths else CaptureSelection((), ())
        yield from ((kind, capture) for capture in (*selection.captures, *selection.graphs))


def _note(kind: str, files: list[str], launches: pa.Table) -> str:
    """Return what the reference traces of a kind describe."""
    launches = launches.filter(pc.equal(launches["kind"], kind))
    graphs = pc.count_distinct(launches["graph"]).as_py()
    batches = sorted(set(launches["batch"].drop_null().to_pylist()))
    of = f" of batch {', '.join(map(str, batches[:8]))}{' …' * (len(batches) > 8)}" if batches else ""
    named = f"{files[0]} tells" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more tell"
    return (f"{named} of {graphs} {kind}{'s' * (graphs > 1)}{of}, {launches.num_rows:,} launches; kernels of reference "
            "traces are in no figure.")


def _launches(capture: CaptureFiles, kind: str) -> pa.Table:
    """Return the rows of one file. Raise UsageError if it holds nothing of the kind."""
    with tempfile.TemporaryDirectory(prefix="aaco-reference-") as folder:
        selection = CaptureSelection((capture,), ())
        reading = CaptureReading(selection)
        reading.begin()
        session = importing.begin(selection, Path(folder), None, "")
        importing.fill(session, reading)
        rows = _captured(session) if kind == GRAPH_CAPTURE else _eager(session)
    if not rows.num_rows:
        raise UsageError(f"{capture.path}: it holds no {kind}",
                         "record the engine's start, with its capture of graphs" if kind == GRAPH_CAPTURE else
                         "record a step with graphs switched off")
    named = read_capture(capture.path.name)
    if kind == GRAPH_CAPTURE and named and not rows["batch"].null_count < rows.num_rows:
        rows = replaced(rows, "batch", pa.array(np.full(rows.num_rows, named.batch)))
    for column, text in (("kind", kind), ("source", f"{kind} {capture.path.name}")):
        rows = replaced(rows, column, pa.array([text] * rows.num_rows).dictionary_encode())
    return rows


def _captured(session: Session) -> pa.Table:
    """Return the graphs that a trace captures."""
    launched = Attribution(with_launches=queries.has_launches(session))
    for _ in attribution.map_kernels(session, launched):
        pass
    return launched.captured()


def _eager(session: Session) -> pa.Table:
    """Return the launches of each different step of a trace, in the order of their kernels."""
    launched = Attribution(with_launches=queries.has_launches(session))
    mapped = pa.concat_tables(attribution.map_kernels(session, launched))
    if launched.captured().num_rows:  # its launches ran nothing
        return REFERENCE_LAUNCHES.build()
    operators = launched.operators()
    kernels = queries.QueryableSession(session.folder).kernels().select(["kernel_id", "kernel_name", "t_start_ns"])
    steps = serving_steps.find(session)
    rows = kernels.join(mapped.select(["kernel_id", "operator_id"]), "kernel_id").join(
        operators.select(["operator_id", *(name for name in TOLD if name != "kernel_name")]), "operator_id").sort_by(
            "t_start_ns")
    parts = list(_different(rows, steps.of_kernels, steps.table()) if steps else
                 [_rows(rows, 0, None)])
    return pa.concat_tables(parts) if parts else REFERENCE_LAUNCHES.build()


def _different(rows: pa.Table, kernels: StepKernels, steps: pa.Table) -> Iterator[pa.Table]:
    """Yield the steps that differ in their batch or kernels, the first of each kind."""
    order = np.argsort(kernels.kernel_id)
    sorted_ids, step = kernels.kernel_id[order], kernels.step[order]
    ids = integers(rows["kernel_id"])
    place = np.minimum(np.searchsorted(sorted_ids, ids), max(len(order) - 1, 0))
    of_row = np.full(len(ids), NONE)
    if len(order):
        of_row = np.where(sorted_ids[place] == ids, step[place], NONE)
    seen = set[tuple[object, ...]]()
    decoded = zip(*(steps[name].to_pylist() for name in ("step", "phase", "batch")), strict=True)
    for number, phase, decoding in decoded:
        batch = decoding if phase == DECODE else None  # prompts have other shapes whatever their number
        mine = rows.filter(pa.array(of_row == number))
        kind = batch, tuple(mine["kernel_name"].to_pylist())
        if mine.num_rows and kind not in seen and len(seen) < MOST_STEPS:
            seen.add(kind)
            yield _rows(mine, len(seen) - 1, batch)


def _rows(kernels: pa.Table, graph: int, batch: int | None) -> pa.Table:
    """Return kernels with their operators as rows of the reference table. Each kernel is a call of its own: how many
    an operator launches at once does not follow from sums."""
    count = kernels.num_rows
    columns = {name: kernels[name].combine_chunks() for name in TOLD}
    return REFERENCE_LAUNCHES.build(graph=[graph] * count, batch=[batch] * count, **columns,
                                    call=[place if known else None for place, known in
                                          enumerate(pc.is_valid(kernels["operator"]).to_pylist())])

