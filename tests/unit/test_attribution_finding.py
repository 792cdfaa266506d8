"""The finding of operators and modules, where a capture has no kernels."""

from __future__ import annotations

from pathlib import Path

from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import OPERATORS
from aaco.steps import make_findings
from aaco.tracelake import layout, store


def test_operators_that_a_capture_has_itself_are_summed_without_any_kernel(tmp_path: Path) -> None:
    """As a MIGraphX performance log has them. Mutation: the finding reads kernels."""
    session = Session.create(tmp_path, {"imports": []}, "", "0")
    session.write_json(layout.CAPTURES, {"schema_version": 1, "captures": [], "kernels_ran_on": ""})
    operators = OPERATORS.build(operator_id=[0], operator=["dot"], calls=[1], kernels=[1], device_ns=[300])
    store.write(session, OPERATORS, operators)
    make_findings.make(session, Analysis(), {"operators"})
    assert session.read_json(layout.finding("attribution"))["total_ns"] == 300
