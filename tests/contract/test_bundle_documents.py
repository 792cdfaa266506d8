"""Every JSON document of a bundle: it is declared once, fits its published schema, and comes back as it was written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from aaco import pipeline
from aaco.core import documents
from aaco.core.config import resolve
from aaco.core.documents import Declaration, FindingDocument
from aaco.core.session import Session, find
from aaco.optimize import outcomes
from aaco.report.docs import schemas
from aaco.report.sections import finding_views
from aaco.steps import make_findings
from aaco.steps.serving_inputs import ServingInputs
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.declared import form_of
from aaco.tracelake.history.history import History, Key, Sample
from aaco.workflows import compare_traces
from tests import captured, csvs, models
from tests.fakes import llm_server, profiled_server, rocprofv3
from tests.system.conftest import Aaco
from tests.unit.test_rocprofv3_csv import KERNEL, kernel

SCHEMAS = Path(__file__).parents[2] / "docs/reference/schemas"
OURS = Path(__file__).parents[1] / "captures"
QWEN = "kineto/{}_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
COMMAND = (sys.executable, "-c", "pass")
DECLARED = schemas.declared()


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory, captures: Path) -> list[Session]:
    """Real sessions: runs, one with a search, comparisons, a traced command, a recorded device run, imports."""
    folder = tmp_path_factory.mktemp("documents")
    aaco = Aaco(folder, folder / "cache")
    run = ("run", "--model", models.chain(folder / "chain.onnx"), "--warmup", 1, "--iterations", 30, "--quiet")
    aaco.inside(*run, "--tag", "first", "--telemetry")
    aaco.inside(*run, "--tag", "second")
    aaco.inside("diff", "--baseline", "first", "--session", "second", expect=(0, 1, 2, 3))
    aaco.inside("try", "graph_basic", "second", "--budget", "20s", "--seed", 1, "--quiet")
    aaco.inside("profile", "--warmup", 0, "--runs", 2, "--lab", "none", "--", *COMMAND)
    aaco.inside("compare", "--command", "true", "--command", "true", "--processes", 2, "--pairs", 2, "--quiet",
                expect=(0, 3))
    trace = csvs.write(folder / "trace.csv", [KERNEL, kernel(1, 100, 150), kernel(2, 200, 260)])
    rocprofv3.install(folder, {"trace": [{"kernel_trace.csv": trace}]})
    aaco.inside("trace", "--", "true", PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    with llm_server.serving(llm_server.compiled(folder)) as server:
        aaco.inside("llm", server.url, "--model", "ref", "--requests", 2, "--turns", 2, "--quiet")
        aaco.inside("llm", server.url, "--model", "ref", "--requests", 3, "--concurrency", "1:2", "--quiet")
    with profiled_server.serving(folder) as url:
        aaco.inside("llm", url, "--model", "ref", "--requests", 1, "--server-traces", folder, "--quiet")
    recorded = captured.session("ort_cuda_h200/bert-tiny", folder / "sessions")
    pipeline.seal(recorded, resolve(environment={}))
    _gained(find("first", folder / "sessions"), folder / "gains")
    return [*_imported(folder / "imported", captures), *map(Session, folder.glob("sessions/[0-9]*/*"))]


def _gained(session: Session, store: Path) -> None:
    """Analyse the session where an advice was tried on three models of its machine."""
    settings = resolve(overrides={"storage": {"baselines_dir": store}}, environment={})
    store.mkdir()
    with History.open(store) as history:
        keys = [Key(model, f"{outcomes.OF_ADVICE}graph_level", session.record.machine_id or "", "c") for model in "abc"]
        history.append([Sample(key, key.benchmark, 0, 0.9, "ratio", "lower_is_better", 1, 1, source="try")
                        for key in keys])
    pipeline.analyze(session, settings)


def _imported(folder: Path, captures: Path) -> Iterator[Session]:
    settings = resolve(overrides={"storage": {"sessions_dir": folder}}, environment={})

    def imported(*paths: Path, **given: Any) -> Session:
        return pipeline.import_captures(paths, settings, **given).session

    before, after = (imported(captures / QWEN.format(device)) for device in ("mi300", "h100"))
    compare_traces.keep(after, before, compare_traces.difference(before, after))
    yield from (before, after)
    yield imported(OURS / "torch_shapes_h200/resnet50_fp32.json.gz", latency="12.5")
    yield imported(*(OURS / f"torch_ranks_h100/even_rank{rank}.json.gz" for rank in (0, 1)))
    engine = OURS / "torch_serving_h100"
    yield imported(engine / "decode_batch_8.trace.json.gz", serving=ServingInputs(
        (engine / "capture_traces",), model_config=engine / "config.json"))
    yield imported(captures / "rocprof-compute/vcopy_MI200")
    yield imported(captures / "att/gfx950_aiter_mxfp4_BM32-BN128_orig")
    yield imported(captures / "migraphx/perf_test_rocm702_gfx1100.txt")


def stored(sessions: list[Session], file: str) -> list[dict[str, Any]]:
    """Every document of this name that the sessions hold."""
    return [session.read_json(file) for session in sessions if (session.folder / file).is_file()]


def undeclared(value: object, place: str = "") -> Iterator[str]:
    """Where a model holds a key that its type does not declare."""
    if isinstance(value, BaseModel):
        others = value.__pydantic_extra__ or {}
        typed = "__pydantic_extra__" in type(value).__annotations__
        yield from (f"{place}.{name}" for name in others if not typed)
        inner = {name: getattr(value, name) for name in type(value).model_fields} | (others if typed else {})
    elif isinstance(value, Mapping):
        inner = dict(value)
    else:
        inner = dict(enumerate(value)) if isinstance(value, list | tuple) else {}
    for name, part in inner.items():
        yield from undeclared(part, f"{place}.{name}")


def decoded(document: dict[str, Any], declaration: Declaration) -> Any:
    if issubclass(declaration.type, BaseModel):
        return declaration.type.model_validate(document)
    return documents.decode(document, declaration.type)


def test_every_json_file_of_the_layout_is_declared_and_no_other() -> None:
    """Mutation: a file without a declaration is read without a form and published without a schema."""
    named = {file for file in vars(layout).values() if isinstance(file, str) and file.endswith(".json")}
    written = {layout.finding(name) for finding in make_findings.declared() for name in finding.documents}
    shown = {layout.finding(slot) for slot in finding_views.slots()}
    assert {*named, *written, *shown, "session.json"} == set(DECLARED)
    assert len({declaration.name for declaration in DECLARED.values()}) == len(DECLARED)
    for file in written | shown:  # of a dataclass its version is held against the form of any finding
        form = form_of(file)
        assert form is DECLARED[file].type or form is FindingDocument
        assert form.model_fields["schema_version"].default == DECLARED[file].version


def test_a_second_declaration_of_a_file_is_refused() -> None:
    with pytest.raises(TypeError, match=r"metrics/stacks\.json is declared twice"):
        documents.document(layout.finding("stacks"), version=1)(Session)


@pytest.mark.captures
@pytest.mark.parametrize("file", sorted(DECLARED))
def test_a_document_fits_its_published_schema_and_comes_back_as_it_was(sessions: list[Session], file: str) -> None:
    """Mutations: a field renamed where it is written, or only in the declaration."""
    declaration, contents = DECLARED[file], stored(sessions, file)
    assert contents, "no session holds it: make one that does"
    schema = json.loads((SCHEMAS / f"{declaration.name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for document in contents:
        jsonschema.Draft202012Validator(schema).validate(document)
        typed = decoded(document, declaration)
        assert list(undeclared(typed)) == []
        assert json.loads(json.dumps(documents.encode(typed))) == document
        assert document["schema_version"] == declaration.version


@pytest.mark.captures
@pytest.mark.parametrize("file", sorted(DECLARED))
def test_a_key_of_a_later_version_is_passed_over(sessions: list[Session], file: str) -> None:
    """Mutation: a model that forbids what it does not declare."""
    for document in stored(sessions, file)[:1]:
        later = document | ({"later": 1} if file != layout.DERIVED_METRICS else {})
        assert decoded(later, DECLARED[file])
        jsonschema.validate(later, documents.schema_of(DECLARED[file].type))
