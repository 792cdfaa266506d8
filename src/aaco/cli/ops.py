"""`aaco ops`: which operators of a framework took the device's time, and what work they did in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aaco.cli import distrust, manual, options, say
from aaco.core.records import as_dict

if TYPE_CHECKING:
    import pyarrow as pa

    from aaco.core.session import Session

LABEL, WIDTH = 24, 80
NONE = {"fusion": "no kernels that could be one were found",
        "products": "no matrix products whose kernels' names say their tiles"}
BY = ("call", "operator", "module", "family", "annotation", "partition", "phase")


@manual.command()
@options.session_reference
@click.option("--top", type=options.COUNT, default=10, show_default=True, help="How many.")
@click.option("--by", type=click.Choice(BY), default="call", show_default=True,
              help="What is summed; a call is an operator with its shapes and types.")
@click.option("--nested", is_flag=True, help="A tree of modules instead: each with the time of those inside it, and "
              "modules that differ in their number only as one.")
@click.option("--fusion", "shown", flag_value="fusion", help="Instead: what could be one kernel, and is not.")
@click.option("--tiles", "shown", flag_value="products", help="Instead: matrix products and their tiles.")
@options.with_session
@options.as_json
def ops(session: Session, top: int, by: str, nested: bool, shown: str | None, as_json: bool) -> None:
    """Which operators of SESSION took the device's time, with the arithmetic and traffic that they achieve.

    Their work is modelled from the shapes that the profiler recorded (record_shapes=True); an operator whose work is
    not known says why.
    """
    from aaco.analytics.costs.operator_work import document, summed
    from aaco.core.errors import UsageError
    from aaco.core.tables import KERNELS, OPERATORS
    from aaco.report.sections.operators import lines
    from aaco.tracelake import store

    distrust.warn(session)
    if shown:
        _examined(session, shown, top, as_json)
        return
    if not store.holds(session, OPERATORS):
        raise UsageError(f"session {session.id} holds no operators of a framework",
                         f"aaco kernels {session.id}  # what ran; only traces of PyTorch's profiler hold operators"
                         if store.holds(session, KERNELS) else f"aaco info {session.id}  # says what it holds")
    operators = store.read(session, OPERATORS)
    if nested:
        _tree(session.id, operators, top, as_json)
        return
    groups = summed(operators, by)
    if as_json:
        say.document({"session_id": session.id} | document(groups, by, top))
        return
    say.lines(line.rstrip() for line in lines(groups, by, top))
    if len(groups) > top:
        say.aside(f"{len(groups) - top:,} more; --top shows more of them")


def _tree(session_id: str, operators: pa.Table, top: int, as_json: bool) -> None:
    from aaco.analytics.attribution.rollup import rollup
    from aaco.report.sections.findings.attribution import listing, loose

    rolled = rollup(operators, "module")
    parts = rolled.parts[:top]
    if as_json:
        say.document({"session_id": session_id, "schema_version": 1, "kernels": rolled.kernels,
                      "total_ns": rolled.total_ns, "modules": [as_dict(part) for part in parts],
                      "unattributed": [as_dict(one) for one in rolled.loose], "others": len(rolled.parts) - len(parts)})
        return
    say.lines((*listing(parts, rolled.total_ns), *(f"of none: {loose(one)}" for one in rolled.loose)))
    if len(rolled.parts) > len(parts):
        say.aside(f"{len(rolled.parts) - len(parts):,} more; --top shows more of them")


def _examined(session: Session, shown: str, top: int, as_json: bool) -> None:
    """What an examination found, whole: more than the report shows of it."""
    from aaco.core.errors import UsageError
    from aaco.report.format import cut, hung, pad
    from aaco.report.sections.findings import fusion, products
    from aaco.tracelake import documents, layout

    document = documents.read(session, layout.finding(shown))
    if not document:
        raise UsageError(f"session {session.id} has none: {NONE[shown]}", f"aaco info {session.id}")
    if as_json:
        say.document({"session_id": session.id} | document)
        return
    view = {"fusion": fusion, "products": products}[shown]
    if rows := list(view.rows(document, top)):
        say.line(view.TITLE)
        for row in rows:
            label = f"  {pad(cut(row.label, LABEL - 3), LABEL - 2)}"
            say.lines(line.rstrip() for line in hung(label, row.text, WIDTH))
