"""Tables of a load with those of the trace that the server wrote meanwhile, on the clock of the requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.session import Session, sessions
from aaco.core.show import Show
from aaco.core.tables import ALL, ENGINE_STEPS, SERVING_STEPS
from aaco.tracelake import documents, layout, store
from aaco.tracelake.queries import Tables

TIMES = ("t_start_ns", "t_end_ns", "t_ns")


class TracedTables(Mapping[str, pa.Table]):
    """The tables of a session, then those of its trace that it does not have, moved by as many ns."""

    def __init__(self, own: Tables, traced: Tables, moved_ns: int) -> None:
        self._own, self._traced, self._moved_ns = own, traced, moved_ns

    def __getitem__(self, name: str) -> pa.Table:
        if name in self._own:
            return self._own[name]
        table = self._traced[name]
        for column in (column for column in TIMES if column in ALL[name].columns):
            table = table.set_column(table.schema.get_field_index(column), ALL[name].schema.field(column),
                                     pc.add(table[column], self._moved_ns))
        return table

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._traced

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._traced if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def rows(self, name: str) -> int:
        """Return the rows of a table, without reading it."""
        return self._own.rows(name) or self._traced.rows(name)


def of_session(session: Session, show: Show) -> tuple[Tables | TracedTables, Session]:
    """Return the tables of a session, with those of its server's trace if it has one; and whose devices they name.

    A trace that is not there any more is left out, and the user is told. Raise BadBundle.
    """
    own, device_session = Tables(session), str(documents.read(session, layout.LOAD).get("device_session") or "")
    if not device_session or ENGINE_STEPS.name not in own:
        return own, session
    traced = next((other for other in sessions(session.folder.parents[1]) if other.id == device_session), None)
    if traced is None or not store.holds(traced, SERVING_STEPS):
        show.step(f"without the kernels of the server's trace: session {device_session} is not beside this one")
        return own, session
    moved_ns = _moved_ns(own[ENGINE_STEPS.name], store.read(traced, SERVING_STEPS))
    return TracedTables(own, Tables(traced), moved_ns), traced


def _moved_ns(steps: pa.Table, theirs: pa.Table) -> int:
    """Return how far the steps of a trace were moved to the clock of the requests, ns."""
    first = steps.slice(0, 1)
    same = theirs.filter(pc.equal(theirs["step"], first["step"][0]))
    return int(first["t_start_ns"][0].as_py() - same["t_start_ns"][0].as_py())
