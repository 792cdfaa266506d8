"""Tables of a load with those of the trace of its server, or of its decoder, on the clock of the requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.clocks import ClockOffsets
from aaco.core.session import Session, sessions
from aaco.core.show import Show
from aaco.core.tables import ALL, ENGINE_STEPS, SERVING_STEPS
from aaco.tracelake import documents, layout, store
from aaco.tracelake.queries import Tables

TIMES = ("t_start_ns", "t_end_ns", "t_ns")


class TracedTables(Mapping[str, pa.Table]):
    """The tables of a session, then those of its trace that it does not have, moved by as many ns."""

    def __init__(self, load: Tables, traced: Tables, moved_ns: int) -> None:
        self._load, self._traced, self._moved_ns = load, traced, moved_ns

    def __getitem__(self, name: str) -> pa.Table:
        if name in self._load:
            return self._load[name]
        table = self._traced[name]
        for column in (column for column in TIMES if column in ALL[name].columns):
            table = table.set_column(table.schema.get_field_index(column), ALL[name].schema.field(column),
                                     pc.add(table[column], self._moved_ns))
        return table

    def __contains__(self, name: object) -> bool:
        return name in self._load or name in self._traced

    def __iter__(self) -> Iterator[str]:
        yield from self._load
        yield from (name for name in self._traced if name not in self._load)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def rows(self, name: str) -> int:
        """Return the rows of a table, without reading it."""
        return self._load.rows(name) or self._traced.rows(name)


def of_session(session: Session, show: Show) -> tuple[Tables | TracedTables, Session]:
    """Return the tables of a session, with those of its trace if it has one; and the session of their devices.

    A trace that is gone, or on no clock of this host, is left out with a message. Raise BadBundle.
    """
    tables, load = Tables(session), documents.read(session, layout.LOAD)
    device_session = str(load.get("device_session") or "")
    if not device_session or ENGINE_STEPS.name not in tables:
        return tables, session
    neighbours = sessions(session.folder.parents[1])
    traced = next((neighbour for neighbour in neighbours if neighbour.id == device_session), None)
    moved_ns = None if traced is None else _since_monotonic(traced) if load.get("process") else \
        _moved_ns(tables[ENGINE_STEPS.name], traced)
    if traced is None or moved_ns is None:
        show.step(f"without the kernels of the trace: session {device_session} is not beside this one, or its times "
                  "cannot be placed")
        return tables, session
    return TracedTables(tables, Tables(traced), moved_ns), traced


def _moved_ns(steps: pa.Table, traced: Session) -> int | None:
    """Return how far the steps of a server's trace were moved to the clock of the requests, ns; None without steps."""
    if not store.holds(traced, SERVING_STEPS):
        return None
    first, theirs = steps.slice(0, 1), store.read(traced, SERVING_STEPS)
    same = theirs.filter(pc.equal(theirs["step"], first["step"][0]))
    return int(first["t_start_ns"][0].as_py() - same["t_start_ns"][0].as_py())


def _since_monotonic(traced: Session) -> int | None:
    """Return how far the times of a program that was traced here are to be moved to CLOCK_MONOTONIC, ns.

    None where the trace is on no clock of this host, or its captures are on several.
    """
    names = {capture.get("clock") for capture in documents.read(traced, layout.CAPTURES).get("captures", [])}
    clocks = traced.record.clocks
    ahead_ns = ClockOffsets(**clocks).ahead_ns(names.pop()) if clocks and len(names) == 1 else None
    return None if ahead_ns is None else -ahead_ns
