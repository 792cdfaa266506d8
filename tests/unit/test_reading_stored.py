"""What reads a stored session does without all that records, that parses records, and that makes findings."""

import subprocess
import sys

import pytest

from aaco.core.tables import KERNELS, REQUESTS
from aaco.steps import make_findings, session_tables
from aaco.steps.absent_files import AbsentFiles
from tests.unit.test_finding import session_with

NOT_READ_WITH = ("aaco.steps.findings.", "aaco.steps.recorded_tables", "aaco.steps.endpoint_tables", "aaco.llm.",
                 "aaco.collectors.host.ladder", "aaco.collectors.gpu.device_watch", "aaco.profiler.formats.",
                 "aaco.governance.compare", "aaco.report.sections.findings.",
                 "aaco.tracelake.document_schemas.evidence")


def test_to_explain_imports_nothing_that_records_or_finds():
    """Mutation: a constant of a recorder, taken from the module that records."""
    code = f"import sys, aaco.steps.explain; print([name for name in sys.modules if name.startswith({NOT_READ_WITH})])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_why_a_table_is_absent_is_said_without_the_findings(tmp_path, monkeypatch):
    monkeypatch.setattr(make_findings, "why_absent", lambda session: {KERNELS.file: "a finding says so", "a": "b"})
    reasons = AbsentFiles(session_with(tmp_path), {"kernels": "not traced"}, {})
    assert reasons[KERNELS.file] == "not traced" and reasons["a"] == "b" and len(reasons) == len(list(reasons))
    monkeypatch.setattr(make_findings, "why_absent", lambda session: pytest.fail("all findings are imported"))
    assert AbsentFiles(session_with(tmp_path), {"kernels": "not traced"}, {})[KERNELS.file] == "not traced"


def test_a_session_with_an_endpoint_is_read_without_its_manifest(tmp_path):
    """The reasons for tables that are not there are then those of the load."""
    session = session_with(tmp_path)
    (session.folder / "manifest.json").write_text("{}")
    found = session_tables._stored_of_endpoint(session)
    assert not len(found.tables) and found.missing[REQUESTS.name]
