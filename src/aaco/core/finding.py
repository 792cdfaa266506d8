"""Declared findings: questions to a session's tables, what each answer reads and writes, and in which order.

A finding is one function. From its declaration follow the file names of its documents, the order in which findings are
made, whether it applies to a session at all, and the name of the slot in which a report shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

import pyarrow as pa
from msgspec import Struct

from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import TableSpec

# A table, or a document by its name: "stacks" is metrics/stacks.json. What is read may be any file of the bundle.
Target = TableSpec | str
# A whole table, pieces of one, or the content of a document.
Content: TypeAlias = "pa.Table | Iterable[pa.Table] | Mapping[str, Any]"
Results = Iterator[tuple[Target, Content]]
Find = Callable[[Session, Analysis], Results]


class Finding(Struct, frozen=True):
    """A question to the tables of a session; its meaning is the docstring of the function that answers it.

    reads: the tables, and files of the bundle, without which there is no answer. after: findings with results that it
    reads where they exist. whole: about every row, including a run's set-up and warm-up. on_host: made of a run with
    all kernels on the host, too. report: the slot that shows it.
    """

    name: str
    meaning: str
    reads: tuple[Target, ...]
    after: tuple[str, ...]
    writes: tuple[Target, ...]
    report: str
    whole: bool
    on_host: bool
    find: Find

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the names of the documents that it may write."""
        return tuple(target for target in self.writes if isinstance(target, str))

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables that it may write."""
        return tuple(target for target in self.writes if isinstance(target, TableSpec))


FINDINGS: dict[str, Finding] = {}


def finding(*, reads: tuple[Target, ...] = (), after: tuple[str, ...] = (), writes: tuple[Target, ...] | None = None,
            report: str = "", whole: bool = False, on_host: bool = False) -> Callable[[Find], Find]:
    """Register a function as the finding named after it; by default it writes the document of that name.

    The function yields each target with its content, and may read what it has yielded. Raise TypeError on a second
    declaration of a name, and on a function without a docstring.
    """

    def register(find: Find) -> Find:
        name = find.__name__
        if name in FINDINGS:
            raise TypeError(f"the finding {name!r} is declared twice; second time in {find.__module__}")
        if not find.__doc__:
            raise TypeError(f"{find.__qualname__}: say in a docstring what it finds")
        FINDINGS[name] = Finding(name, " ".join(find.__doc__.split()), reads, after,
                                 (name,) if writes is None else writes, report, whole, on_host, find)
        return find

    return register


def in_order() -> list[Finding]:
    """Return every declared finding, each after those that it names and after those that write a table it reads.

    Raise TypeError where they go in a circle or name a finding that is not declared.
    """
    writers: dict[str, list[str]] = {}
    declarations = sorted(FINDINGS.items())  # whatever was imported first
    for name, declared in declarations:
        for spec in declared.tables:
            writers.setdefault(spec.name, []).append(name)
    earlier = {name: sorted({*declared.after, *_writers_of(declared, writers)} - {name})
               for name, declared in declarations}
    try:
        return [FINDINGS[name] for name in TopologicalSorter(earlier).static_order()]
    except CycleError as error:
        raise TypeError(f"findings read each other in a circle: {' -> '.join(error.args[1])}") from error
    except KeyError as error:
        raise TypeError(f"no finding is named {error}") from error


def _writers_of(declared: Finding, writers: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the findings that write a table which this one reads; two that write the same table name their order."""
    for target in declared.reads:
        if isinstance(target, TableSpec) and target not in declared.writes:
            yield from writers.get(target.name, ())
