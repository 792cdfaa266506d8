"""Two imported traces side by side: what the session's tables say of each, the difference, and where it is kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from aaco.analytics.streaming.launch_rows import launch_rows
from aaco.core import distinct
from aaco.core.arrays import Ints
from aaco.core.config import Settings
from aaco.core.documents import encode
from aaco.core.errors import UsageError
from aaco.core.session import Session, find
from aaco.core.tables import API_CALLS, KERNELS, OP_TO_KERNEL_MAP, OPERATORS, TableSpec
from aaco.core.tables.spec import names_of, whole
from aaco.governance import tracediff
from aaco.governance.tracediff import Trace, TraceChange
from aaco.steps.findings.truth import trusted
from aaco.tracelake import documents, layout, manifest, queries
from aaco.tracelake.document_schemas.regressions import BaselineReference, ComparedSession

UNNAMED = "unnamed"
STEP = re.compile(r"ProfilerStep#\d+")
KERNEL_COLUMNS = ("kernel_id", "kernel_name", "family", "capture", "device_id", "queue_id", "stream_id", "launch_id",
                  "t_start_ns", "t_end_ns")
CALL_COLUMNS = ("call_id", "name", "domain", "capture", "parent_id")
CORRELATION = "correlation_id"  # which links calls and kernels where those have no launch_id


class Contrast(NamedTuple):
    """What changed between two imported traces, and the session of the earlier one."""

    baseline: Session
    change: TraceChange


def contrast(baseline: str, session: Session, settings: Settings) -> Contrast:
    """What changed from one imported trace to another, kept in the later session. Raises AacoError."""
    earlier = find(baseline, settings.config.storage.sessions_dir)
    if not earlier.record.is_import:
        raise UsageError(f"session {earlier.id} was recorded here, {session.id} was imported: a run and a trace of "
                         "something else do not compare", "name two imported sessions, or two runs")
    if earlier.id == session.id:
        raise UsageError(f"both sides are session {session.id}: nothing can differ",
                         "aaco diff BASELINE SESSION, two imports of aaco ls")
    manifest.refuse_damage(session, rewritten=manifest.REWRITTEN)
    change = difference(earlier, session)
    manifest.renew(session, keep(session, earlier, change))
    return Contrast(earlier, change)


def difference(before: Session, after: Session) -> TraceChange:
    """What changed from one imported session to the other. Raises UsageError where one has no kernels, BadBundle."""
    sides = [trace(session) for session in (before, after)]
    if not all(side.steps for side in sides):  # steps that only one side marks say nothing about the other
        sides = [replace(side, steps=1) for side in sides]
    return replace(tracediff.compare(*sides), warnings=(*_devices(before, after), *_trust(before, after)))


def _devices(before: Session, after: Session) -> Iterator[str]:
    """Whether the two ran on different devices, or that it is not known."""
    first, second = _names_of_devices(before), _names_of_devices(after)
    kinds = [kind for kind in ("name", "arch") if first[kind] and second[kind]]
    if not kinds:
        side = " and ".join(name for name, known in (("before", first), ("after", second)) if not any(known.values()))
        yield (f"The capture of {side} names no device: whether both ran on the same kind is not known." if side else
               "The captures name their devices in different ways: whether both ran on the same kind is not known.")
    elif first[kinds[0]] != second[kinds[0]]:
        named = [", ".join(sorted(side[kinds[0]])) for side in (first, second)]
        yield (f"DIFFERENT DEVICES: {named[0]} before, {named[1]} after. Every time may differ for that alone: this is "
               "no account of a change to the program.")


def _names_of_devices(session: Session) -> dict[str, set[str]]:
    """The names and the architectures of the devices in a session's captures."""
    captures = documents.read(session, layout.CAPTURES).get("captures", ())
    return {kind: {device[kind] for capture in captures for device in capture["devices"] if device.get(kind)}
            for kind in ("name", "arch")}


def _trust(before: Session, after: Session) -> Iterator[str]:
    """What the trace check says against either side."""
    for side, session in (("before", before), ("after", after)):
        trust = trusted(session)
        if not trust.trusted:
            yield f"The trace {side}, {session.id}, is {trust.line}"
        elif trust.misleading:
            yield f"The trace {side}, {session.id}: {trust.misleading}"


def keep(session: Session, baseline: Session, change: TraceChange) -> list[str]:
    """Write regress/{baseline_ref,diff}.json into the later session; returns their names. Raises StorageError."""
    compared = ComparedSession(session_id=baseline.record.session_id)
    reference = BaselineReference(name=baseline.id, imported=True, sessions=[compared])
    session.write_json(layout.BASELINE_REF, encode(reference))
    session.write_json(layout.DIFF, {"baseline": compared.session_id, **change.document()})
    return [layout.BASELINE_REF, layout.DIFF]


def trace(session: Session) -> Trace:
    """An imported session as one side of a comparison. Kernels without times, or that end before they start, are left
    out. Raises UsageError where no kernel is left."""
    link = () if queries.has_values(session, KERNELS, "launch_id") else (CORRELATION,)
    kernels, calls = (_table(session, spec, (*columns, *link))
                      for spec, columns in ((KERNELS, KERNEL_COLUMNS), (API_CALLS, CALL_COLUMNS)))
    timed = pc.and_(pc.is_valid(kernels["t_start_ns"]),
                    pc.less_equal(kernels["t_start_ns"], pc.fill_null(kernels["t_end_ns"], -(2**63))))
    kernels = kernels.filter(timed)
    if not kernels.num_rows:
        raise UsageError(f"session {session.id} has no kernels with times: there is nothing to compare",
                         "aaco check SESSION  # what the capture holds")
    names, codes = names_of(kernels["kernel_name"], UNNAMED)
    call_names, call_codes = names_of(calls["name"], UNNAMED)
    return Trace(names, codes, whole(kernels, "t_start_ns"), whole(kernels, "t_end_ns"),
                 _place(kernels, "capture", "device_id"), _place(kernels, "queue_id", "stream_id"),
                 launch_rows(kernels, calls), call_names, call_codes, _rows_of(calls, "parent_id"),
                 _steps(call_names, call_codes), *_purposes(kernels, _operators(session)),
                 _waits(session))


def _waits(session: Session) -> dict[str, int] | None:
    """What the devices did while no kernel ran, from the examination of the trace; None where there is none."""
    timeline, idle = (documents.read(session, layout.TRACE[name]) for name in ("timeline", "idle"))
    if not timeline or not idle:
        return None
    waits_by_kind = Counter({tracediff.OUTSIDE: 0})
    for lane in idle["devices"]:
        waits_by_kind.update({cause: part["ns"] for cause, part in lane["causes"].items()})
    for device in timeline["devices"]:
        waits_by_kind["copies"] += device["exposed_copy_ns"]
        waits_by_kind["fills"] += device["exposed_fill_ns"]
        waits_by_kind[tracediff.OUTSIDE] -= device["t_end_ns"] - device["t_start_ns"]
    return dict(waits_by_kind)


def _operators(session: Session) -> tuple[Ints, Ints, list[str]]:
    """The kernels that an operator launched, by id; of each the place of its outermost operator in the names."""
    mapped = _table(session, OP_TO_KERNEL_MAP, ("kernel_id", "operator_id"))
    rows = _table(session, OPERATORS, ("operator_id", "outermost"))
    rows = rows.filter(pc.is_valid(rows["outermost"]))
    names, codes = names_of(rows["outermost"], UNNAMED)
    ids, operator_ids = whole(rows, "operator_id"), whole(mapped, "operator_id")
    order = np.argsort(ids)
    if not len(order):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), names
    at = order[np.minimum(np.searchsorted(ids[order], operator_ids), len(order) - 1)]
    is_known = ids[at] == operator_ids
    kernel, first = np.unique(whole(mapped, "kernel_id")[is_known], return_index=True)
    return kernel, codes[at][is_known][first], names


def _purposes(kernels: pa.Table, operators: tuple[Ints, Ints, list[str]]) -> tuple[list[tuple[str, str]], Ints]:
    """The distinct (outermost operator, family) of the kernels, and which of them each is."""
    ids, operator, operator_names = operators
    family_names, family = names_of(kernels["family"], UNNAMED)
    families = ["unknown" if name == UNNAMED else name for name in family_names]
    kernel_ids = whole(kernels, "kernel_id")
    operator_of_kernel = np.full(len(kernel_ids), len(operator_names))  # of no operator
    if len(ids):
        at = np.minimum(np.searchsorted(ids, kernel_ids), len(ids) - 1)
        operator_of_kernel = np.where(ids[at] == kernel_ids, operator[at], operator_of_kernel)
    codes, rows = distinct.ascending(operator_of_kernel, family)
    named, place = [*operator_names, ""], dict[tuple[str, str], int]()
    places = [place.setdefault((named[which], families[kind]), len(place))
              for which, kind in zip(operator_of_kernel[rows].tolist(), family[rows].tolist(), strict=True)]
    return list(place), np.array(places, np.int64)[codes]


def _steps(names: Sequence[str], codes: Ints) -> int:
    """Return how many steps the trace marks; a mark on both host and device counts once. 0 without marks."""
    used = np.unique(codes).tolist()
    return sum(bool(STEP.fullmatch(names[code])) for code in used)


def _rows_of(calls: pa.Table, column: str) -> Ints:
    """The row of the call that each row names by its id; -1 for none."""
    ids, call_ids = whole(calls, "call_id"), whole(calls, column)
    order = np.argsort(ids)
    if not len(ids):
        return call_ids
    at = order[np.minimum(np.searchsorted(ids[order], call_ids), len(ids) - 1)]
    return np.where((call_ids >= 0) & (ids[at] == call_ids), at, -1)


def _table(session: Session, spec: TableSpec, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([(name, spec.columns[name][0]) for name in columns])
    return pa.Table.from_batches([batch.cast(schema) for batch in queries.batches(session, spec, columns)], schema)


def _place(table: pa.Table, *columns: str) -> Ints:
    """One number for each combination of the columns."""
    return distinct.ascending(*(whole(table, name) for name in columns))[0]
