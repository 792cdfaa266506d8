"""JSON documents: one reading, and whatever is wrong is one BadBundle that names file and place."""

from __future__ import annotations

import json

import pytest

from aaco import pipeline
from aaco.core import documents, tables
from aaco.core.config import Analysis
from aaco.core.documents import Document, Real, Whole
from aaco.core.errors import BadBundle
from aaco.core.session import Session, SessionManager
from aaco.report.docs import schemas
from aaco.report.renderers import html, json_report, markdown, terminal
from aaco.report.sections import finding_views
from aaco.steps import analyze, analyzed, explain
from aaco.tracelake import documents as forms
from aaco.tracelake import layout, manifest, store


class Form(Document):
    name: str
    size: Whole | None = None
    share: Real | None = None


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(("content", "says"), [
    ("null", "the whole"), ("[]", "the whole"), ("{}", "name"), ('"x"', "the whole"), ("", "not valid JSON"),
    ('{"name": 1}', "name"), ('{"name": null}', "name"), ('{"name": "a", "size": "1"}', "size"),
    ('{"name": "a", "size": true}', "size"), ('{"name": "a", "size": 1.5}', "size"),
    ('{"name": "a", "size": 9999999999999999999999}', "size"), ('{"name": "a", "share": NaN}', "NaN"),
    ('{"name": "a", "share": 1e999}', "1e999"), ('{"name": "\\ud800"}', "surrogates"),
    ('{"name": "a", "x": [{"\\udcff": 1}]}', "surrogates"),
    ('{"name": "a", "b": ' + "[" * 150 + "]" * 150 + "}", "nested"), ("[" * 100_000, "not valid JSON"),
    ('{"schema_version": 2, "name": "a"}', "upgrade"), ('{"schema_version": "1", "name": "a"}', "schema_version")])
def test_what_is_not_of_its_form_is_a_bad_bundle_that_says_where(tmp_path, content, says):
    """Mutations: lax types, so that text passes for a number; no bound on the nesting."""
    path = written(tmp_path / "form.json", content)
    for read in (documents.load, documents.check):
        with pytest.raises(BadBundle, match=says) as error:
            read(path, Form, "form")
        assert str(path) in error.value.what and error.value.fix


def test_what_a_later_version_adds_stays_in_the_document(tmp_path):
    content = {"schema_version": 1, "name": "a", "later": {"x": [1, None]}, "share": 1}
    path = written(tmp_path / "form.json", content)
    assert documents.check(path, Form, "form") == content
    assert documents.load(path, Form, "form").name == "a"


@pytest.fixture
def session(tmp_path):
    return Session.create(tmp_path / "sessions", {"model": "m"}, "", "0")


@pytest.mark.parametrize("name", sorted(set(schemas.declared()) - {"session.json"}))
@pytest.mark.parametrize("content", ["null", "[]", "1", '"text"', "{", ""])
def test_every_document_of_a_bundle_is_read_by_its_form(session, name, content):
    (session.folder / name).parent.mkdir(exist_ok=True)
    written(session.folder / name, content)
    with pytest.raises(BadBundle, match=name.rpartition("/")[2]):
        forms.read(session, name)


@pytest.mark.parametrize("name", [*layout.TRACE.values(), *map(layout.finding, finding_views.slots())])
def test_an_empty_examination_is_damage_and_not_one_that_found_nothing(session, name):
    """Mutation: a form whose version may be left out reads `{}` as if nothing had been examined."""
    path = session.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    with pytest.raises(BadBundle, match=path.name):
        forms.read(session, name)


@pytest.mark.parametrize("damage", [
    {"evidence": {}}, {"evidence": [-5]}, {"evidence": [{"holds": True}]}, {"class": 1}])
def test_a_kernel_class_is_read_by_its_form(session, damage):
    """Mutation: the form of any examination lets the report meet what it cannot show, with a traceback."""
    name = layout.finding("kernel_classes")
    kernel = {"kernel_name": "k", "family": None, "calls": 1, "total_ns": 1, "median_ns": 1.0, "short_ns": 10.0,
              "class": "tiny", "by": "name", "evidence": []}
    session.write_json(name, {"schema_version": 1, "kernels": [kernel]})
    assert forms.read(session, name)["kernels"] == [kernel]
    session.write_json(name, {"schema_version": 1, "kernels": [kernel | damage]})
    with pytest.raises(BadBundle, match="kernel_classes"):
        forms.read(session, name)


def test_a_document_that_is_not_there_is_empty_and_a_folder_in_its_place_is_an_error(session):
    assert forms.read(session, "env.json") == {}
    with pytest.raises(BadBundle, match="missing"):
        forms.require(session, "env.json")
    (session.folder / "env.json").mkdir()
    with pytest.raises(Exception, match=r"env\.json: Is a directory"):
        forms.read(session, "env.json")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "a\0b"])
def test_a_manifest_cannot_name_files_outside_its_bundle(session, name):
    """Mutation: joining whatever it names to the folder, and hashing that."""
    entry = {"sha256": "0", "bytes": 0, "rows": None}
    written(session.folder / "manifest.json", {"files": {name: entry}, "absent": {}})
    with pytest.raises(BadBundle, match="out of the bundle"):
        manifest.check(session)


@pytest.mark.parametrize("changes", [
    {"plan": None}, {"plan": {"model": 5}}, {"plan": {"model": "m", "batch": 0}}, {"plan": {"batch": "x"}},
    {"plan": {"model": "m", "command": {}}}, {"clocks": {"monotonic_ns": 1}}, {"clocks": None}, {"created_utc": "x"},
    {"created_utc": "2026-01-01T00:00:00"}, {"owner": {}}, {"status": "odd"}, {"tag": None}])
def test_a_record_is_read_by_its_form(session, changes):
    """Mutation: a plan of anything, or a time without its zone, which `aaco gc` cannot compare."""
    path = session.folder / "session.json"
    written(path, json.loads(path.read_text()) | changes)
    with pytest.raises(BadBundle, match=next(iter(changes))):
        Session.open(session.folder)


def test_an_empty_session_is_reported_as_one(tmp_path):
    """What `SessionManager.create_session` gives. Mutation: reading the plan as if there always were one."""
    session = SessionManager.create_session(tmp_path / "sessions")
    for explained in (pipeline.explain(session), explain.explain(session, Analysis(), analyze.recompute(session))):
        assert explained.absent["metrics/inference_iters.parquet"] == analyzed.NOTHING
        assert "without --telemetry" not in str(explained.absent) and "None" not in str(explained.absent)
        for text in (terminal.render(explained), markdown.render(explained), html.render(explained)):
            assert analyzed.NOTHING in " ".join(text.replace("║", " ").split())
        assert json_report.render(explained)["status"] == "running"
    session.finish("complete")
    assert "nothing was ever recorded" in terminal.render(pipeline.explain(session))


ITERATIONS = tables.INFERENCE_ITERS
ROW = {"iteration": [0], "phase": ["warmup"], "t_start_ns": [1], "t_end_ns": [2], "latency_ms": [1e-6], "process": [0]}


@pytest.mark.parametrize("name", ITERATIONS.never_null)
def test_a_table_without_what_its_rows_need_is_a_bad_bundle(session, name):
    """Mutation: passing nulls on to whoever counts on there being none."""
    store.write(session, ITERATIONS, ITERATIONS.build(**ROW))
    assert store.read(session, ITERATIONS).num_rows == 1
    store.write(session, ITERATIONS, ITERATIONS.build(**ROW | {name: [None]}))
    with pytest.raises(BadBundle, match=f"column {name} has nulls"):
        store.read(session, ITERATIONS)
    import pyarrow.parquet as pq
    pq.write_table(ITERATIONS.build(**ROW).drop_columns([name]), session.folder / ITERATIONS.file)
    with pytest.raises(BadBundle, match=f"column {name} is missing"):
        store.read(session, ITERATIONS)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_of_a_table_is_finite(session, value):
    store.write(session, ITERATIONS, ITERATIONS.build(**ROW | {"latency_ms": [value]}))
    with pytest.raises(BadBundle, match="latency_ms"):
        store.read(session, ITERATIONS)
