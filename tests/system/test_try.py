"""`aaco try`: what it asks of each comparison, what becomes of changes that do not run, and real searches."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from aaco import pipeline
from aaco.cli import try_
from aaco.core import documents as forms
from aaco.core.candidate import Candidate
from aaco.core.errors import AacoError, ModelError, UsageError
from aaco.core.readings import Reading
from aaco.core.session import Session
from aaco.core.show import Show
from aaco.core.tables import PAIRS
from aaco.governance.verdict_document import MetricVerdict, RegressionVerdict
from aaco.optimize import input_sets, ledger, outcomes
from aaco.optimize.search import Search
from aaco.report.renderers import output_formats
from aaco.report.sections.findings import trials as view
from aaco.runner import ort, registry
from aaco.runner.ort import Workload
from aaco.runner.registry import BackendEntry
from aaco.steps import explain
from aaco.steps.findings.trials import of_ledger
from aaco.tracelake import documents, layout, store
from aaco.tracelake.document_schemas.evidence import DuetCost
from aaco.tracelake.document_schemas.ledger import FirstLook, OutputsChecked, SearchDecided, TurnsMeasured
from aaco.tracelake.history.history import History, Key, Sample
from aaco.tracelake.outputs import Output, digest
from aaco.workflows import keep_choice, try_advice
from aaco.workflows.duet import compare
from aaco.workflows.duet.compare import Compared
from benchmarks.try_advice import _models, _searches, killed, live
from tests import models

CPU = BackendEntry(name="cpu", provider="CPUExecutionProvider")
FASTER = Candidate("faster", "Faster", {"session.nobody_reads_this": "1"})
REWRITTEN = Candidate("written", "Written anew", rewrite="written")
WAITS = {"contended_pct": 40.0, "quota_pct": 0.0}  # of the time of a run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One real session of a small model, on which each test searches anew, and its situation."""
    folder = tmp_path_factory.mktemp("recorded")
    subject = _searches.record(folder, models.chain(folder / "chain.onnx", 2, 16), iterations=20)
    return subject, try_advice._situation(subject.session, subject.settings, try_advice.TryRequest())


@pytest.fixture
def fake(recorded, monkeypatch):
    """A search in which no process is started: what is computed and how long it takes is set here."""
    subject, situation = recorded
    (subject.session.folder / layout.LEDGER).unlink(missing_ok=True)
    monkeypatch.setattr(try_advice, "_situation", lambda *asked: situation)
    monkeypatch.setattr(try_advice.pipeline, "analyze", lambda *asked: None)  # the real searches below do
    return Fake(subject, monkeypatch)


class Fake:
    """Runs of models and comparisons that only note what they were asked for.

    computes: outputs by whether the model is the changed one and its inputs; saves: per cent of time; worse: how many
    times as much memory.
    """

    def __init__(self, subject, monkeypatch) -> None:
        self.subject, self.requests, self.inputs, self.limits = subject, [], [], []
        self.current = None  # side of the last comparison
        self.computes = lambda changed, x: x
        self.device, self.energy = 0.5, 1.0  # ms of a latency of 1; times the baseline's
        self.saves, self.fails, self.memory, self.slow = (20.0, 20.0), set(), 1.0, 0.0
        monkeypatch.setattr(ort, "run_once", self.run_once)
        monkeypatch.setattr(compare, "compare", self.compare)

    def run_once(self, workload, limit_s=None):
        changed = "session.nobody_reads_this" in workload.backend.session_options or "tried" in str(workload.model)
        self.limits.append(limit_s)
        self.inputs.append((changed, workload.inputs["x"].tobytes()))
        if changed and "check" in self.fails:
            raise ModelError("it cannot be loaded", "another")
        y = np.asarray(self.computes(changed, workload.inputs["x"]), np.float32)
        output = Output("y", "float32", y.shape, y.size, digest(y), 0, y.reshape(-1))
        return [output], int((1 << 30) * (self.memory if changed else 1.0))

    def compare(self, baseline, current, request, settings, given, show):
        self.requests.append(request)
        self.current = current
        step = "screened" if not request.controls else "confirmed" if len(self.requests) == 2 else "again"
        if step in self.fails:
            raise AacoError("the measured process was killed by SIGSEGV", "again")
        saved = self.saves[step == "again"]
        session = Session.create(settings.config.storage.sessions_dir, {}, "compare", "1")
        store.write(session, PAIRS, pairs(request, 1 - saved / 100, self.slow))
        metrics = [MetricVerdict.model_construct(
            metric=name, baseline_value=value, current_value=value, effect_pct=-saved, ci=(-saved - 1, -saved + 1),
            status="improved") for name, value in (("latency_ms", 1.0), ("device_time_ms", self.device))]
        return Compared(session, RegressionVerdict.model_construct(
            effect_pct=-saved, ci=(-saved - 1, -saved + 1), metrics=metrics, why=""), self.costs(request))

    def costs(self, request):
        """Return a second a process; the changed side takes so many times the energy."""
        kinds = ["change"] * request.processes + ["baseline control", "current control"] * request.controls * 2
        return tuple(DuetCost(process=at, kind=kind, took_s=1.0,
                              energy_j=10.0 * (self.energy if kind == "current control" else 1))
                     for at, kind in enumerate(kinds))

    def search(self, change=FASTER):
        """Return the lines of a search over one change."""
        planted = _searches.Planted("", change, onnx.load(self.subject.session.record.planned.model)
                                    if change.rewrite else None)
        return _searches.search(self.subject, [planted], 1)


def pairs(request, ratio, slow):
    """Pairs of every process as asked for; a share of the inputs takes ten times as long after the change."""
    rng, count, whole = np.random.default_rng(1), request.pairs, request.pairs * request.processes
    before = rng.normal(1, 0.001, whole)
    after = before * np.where(np.arange(whole) % 100 < 100 * slow, 10.0, ratio * rng.normal(1, 0.001, whole))
    return PAIRS.build(
        process=np.repeat(range(request.processes), count), kind=["change"] * whole, pair=np.arange(whole),
        created_first=["baseline"] * whole, ran_first=["baseline"] * whole, baseline_ms=before, current_ms=after,
        spin_ns=np.ones(whole, int), disturbed=[False] * whole,
        **{f"{side}_{end}_ns": np.arange(whole) for side in ("baseline", "current") for end in ("start", "end")})


def of(lines, kind):
    return [line for line in lines if isinstance(line, kind)]


def test_a_gain_is_kept_after_two_comparisons(fake):
    lines = fake.search()
    assert lines[-1].kept == "faster" and lines[-1].settings == dict(FASTER.settings)
    assert [line.step for line in lines] == [
        "begun", "checked", "screened", "planned", "confirmed", "again", "decided"]


def test_what_is_asked_of_each_comparison(fake):
    """Every pair has inputs of its own, the interval is at the level that all share, and no process may hang."""
    terms = Search(fake.search()).terms
    confirmations = fake.requests[1:]
    assert len(confirmations) == 2 and all(request.vary for request in fake.requests)
    assert all(request.level == pytest.approx(1 - 0.05 / (terms.finalists + 2)) for request in confirmations)
    assert all(request.controls and request.processes >= 5 for request in confirmations)
    assert {request.limit_s for request in fake.requests} | set(fake.limits) == {terms.limit_s}
    assert len({request.seed for request in fake.requests}) == 3
    assert all(request.energy for request in confirmations)


@pytest.mark.parametrize(("device", "traced"), [(0.95, True), (0.5, False)])
def test_no_tracer_slows_launches_where_the_latency_is_judged(fake, device, traced):
    """The first look finds out which; its tracer records the device always."""
    fake.device = device
    look, *confirmations = (Search(fake.search()), fake.requests)[1]
    assert look.device_time and [request.device_time for request in confirmations] == [traced, traced]


def test_outputs_are_compared_for_several_inputs(fake):
    """Of the session's own inputs the change computes the same."""
    own = fake.subject.inputs["x"]
    fake.computes = lambda changed, x: x if not changed or (x == own).all() else x + 1
    lines = fake.search()
    (checked,) = of(lines, OutputsChecked)
    assert not checked.passed and "inputs 2" in checked.why and lines[-1].kept is None
    assert len({inputs for changed, inputs in fake.inputs if changed}) == input_sets.COUNT
    assert not fake.requests


def test_inputs_that_the_untouched_model_refuses_are_left_out(fake):
    own = fake.subject.inputs["x"].tobytes()

    def computes(changed, x):
        if x.tobytes() != own:
            raise ModelError("out of range", "others")
        return x

    fake.computes = computes
    assert fake.search()[-1].kept == "faster"
    (fake.subject.session.folder / layout.LEDGER).unlink()
    fake.requests.clear()
    lines = fake.search(REWRITTEN)  # nothing shows what it computes of others
    assert lines[-1].kept is None and lines[1].why == input_sets.NOT_VARIED


def test_a_rewritten_model_needs_inputs_that_vary(fake, monkeypatch):
    assert fake.search(REWRITTEN)[-1].kept == "written"
    (fake.subject.session.folder / layout.LEDGER).unlink()
    monkeypatch.setattr(input_sets, "varied", lambda inputs: False)
    assert fake.search(REWRITTEN)[1].why == input_sets.NOT_VARIED


def test_an_untouched_model_that_does_not_run_is_an_error(fake):
    def fail(changed, x):
        raise ModelError("the file is gone", "put it back")

    fake.computes = fail
    with pytest.raises(ModelError, match="the file is gone"):
        fake.search()
    assert len(ledger.read(fake.subject.session.folder / layout.LEDGER).lines) == 1


@pytest.mark.parametrize(("step", "left"), [
    ("check", OutputsChecked), ("screened", FirstLook), ("confirmed", TurnsMeasured), ("again", TurnsMeasured)])
def test_a_change_that_does_not_run_is_refused_and_the_search_goes_on(fake, step, left):
    fake.fails = {step}
    lines = fake.search()
    refused = of(lines, left)[-1]
    assert isinstance(lines[-1], SearchDecided) and lines[-1].kept is None and refused.why.startswith("does not run: ")
    assert not getattr(refused, "passed", False) and not getattr(refused, "log_ratios", ())


@pytest.mark.parametrize(("field", "value", "says"), [
    ("saves", (20.0, 0.5), "the last comparison did not confirm it"), ("saves", (1.5, 20.0), "was confirmed"),
    ("memory", 1.5, "no candidate computes the same"), ("slow", 0.2, "was confirmed"),
    ("energy", 1.2, "was confirmed")])
def test_each_gate_refuses(fake, field, value, says):
    setattr(fake, field, value)
    lines = fake.search()
    assert lines[-1].kept is None and says in lines[-1].why


def test_a_finished_search_is_not_made_again_and_a_cut_one_goes_on(fake):
    whole, path = fake.search(), fake.subject.session.folder / layout.LEDGER
    asked = len(fake.requests)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    fake.requests = fake.requests[:1]
    ended = fake.search()
    assert [line.model_copy(update={"took_s": 0, "session": ""}) if hasattr(line, "session") else
            line.model_copy(update={"took_s": 0}) for line in ended] == [
            line.model_copy(update={"took_s": 0, "session": ""}) if hasattr(line, "session") else
            line.model_copy(update={"took_s": 0}) for line in whole]
    assert len(fake.requests) == asked


@pytest.fixture
def kept(fake, tmp_path):
    """A search that kept a change, and settings with a file of backends that has one already."""
    fake.search(Candidate("faster", "Faster", {"session.nobody_reads_this": "1", "batch": "1"}))
    (tmp_path / "mine.yaml").write_text("# mine\nbackends:\n  own: {provider: CPUExecutionProvider}\n")
    config = fake.subject.settings.config
    storage = config.storage.model_copy(update={"backends_file": tmp_path / "mine.yaml"})
    return fake, replace(fake.subject.settings, config=config.model_copy(update={"storage": storage}))


def test_a_kept_change_is_written_as_a_backend_after_what_is_there(kept):
    """Mutations: the file is written anew; what no backend holds is forgotten."""
    fake, settings = kept
    written = keep_choice.write(fake.subject.session, "fast", settings)
    text = settings.config.storage.backends_file.read_text()
    assert text.startswith("# mine\nbackends:\n  own: {provider: CPUExecutionProvider}\n  fast:\n")
    backends = registry.backends([settings.config.storage.backends_file])
    assert backends["fast"].session == {"session.nobody_reads_this": "1"} and "own" in backends
    assert written.options == {"batch": "1"} and str(written.paths[0]).endswith("mine.yaml")
    with pytest.raises(UsageError, match="is there already"):
        keep_choice.write(fake.subject.session, "fast", settings)


@pytest.mark.parametrize("text", ["backends:\n", "# none yet\nbackends:", ""])
def test_an_empty_list_of_backends_takes_an_entry(kept, text):
    """Mutation: what is not there yet is no list."""
    fake, settings = kept
    settings.config.storage.backends_file.write_text(text)
    keep_choice.write(fake.subject.session, "fast", settings)
    assert settings.config.storage.backends_file.read_text().startswith(text)
    assert "fast" in registry.backends([settings.config.storage.backends_file])


@pytest.mark.parametrize("text", ["backends: {own: {provider: CPUExecutionProvider}}\n", "backends:\n    deep:\n"
                                  "      provider: CPUExecutionProvider\n"])
def test_a_file_that_an_entry_cannot_follow_stays_as_it_is(kept, text):
    """Mutation: what was merged is not read again."""
    fake, settings = kept
    settings.config.storage.backends_file.write_text(text)
    with pytest.raises(UsageError, match="cannot be added at its end"):
        keep_choice.write(fake.subject.session, "fast", settings)
    assert settings.config.storage.backends_file.read_text() == text


@pytest.mark.parametrize(("saved", "passed"), [(20.0, True), (1.0, False)])
def test_a_written_backend_is_judged_again_by_the_rule_of_the_search(kept, saved, passed):
    """In the same way as the search confirmed it: processes, pairs, level, inputs, tracer. Mutation: with the backend's
    options only, which lack the batch and where data lies.
    """
    fake, settings = kept
    fake.saves = (saved, saved)
    confirmed = fake.requests[-1]
    judged = keep_choice.again(fake.subject.session, "fast", settings)
    assert dict(fake.current.options) == {"backend": "fast", "batch": "1"}
    assert judged.outcome.passed is passed and judged.judged_by == "latency"
    assert replace(fake.requests[-1], seed=None) == replace(confirmed, seed=None, limit_s=None, budget_s=None)


def test_a_session_expects_of_its_advice_what_that_gained_on_this_machine(recorded, tmp_path, monkeypatch):
    """From the third model on; a history that cannot be read costs the session nothing, and is said."""
    session, config = recorded[0].session, recorded[0].settings.config
    storage = config.storage.model_copy(update={"baselines_dir": tmp_path})
    settings = replace(recorded[0].settings, config=config.model_copy(update={"storage": storage}))
    name, compute = "quiet_cpus", explain.readings.compute
    # What the run waited for is the machine's affair: with nothing to gain, the advice is that of its class's rule.
    monkeypatch.setattr(explain.readings, "compute", lambda *given: {
        **compute(*given), **{metric: Reading(metric, "%", value) for metric, value in WAITS.items()}})

    def expected():
        told = []
        explained = pipeline.analyze(session, settings, Show(step=told.append))
        entry = next(advice for advice in documents.read(session, layout.BOTTLENECK)["optimization_priority"]
                     if advice["action"] == name)
        return (entry.get("expected") or {}).get("here"), output_formats.render(explained, "markdown", "plain"), told

    for model in "abc":
        assert not expected()[0]
        key = Key(model, outcomes.OF_ADVICE + name, session.record.machine_id, "c")
        with History.open(tmp_path) as history:
            history.append([Sample(key, model, 0, 0.5, "ratio", "lower_is_better", 1, 1, source="try")])
    here, report, told = expected()
    assert here is True, (name, session.record.machine_id, told)
    assert "2.00 x faster expected (2.00 to 2.00 in 9 of 10, by 3 models tried on this machine)" in (
        " ".join(report.split()))
    (tmp_path / "history.db").write_text("no database")
    here, _, told = expected()
    assert not here and any("is not known" in line for line in told)


def test_a_session_that_kept_nothing_has_nothing_to_write(fake):
    with pytest.raises(UsageError, match="no kept change"):
        keep_choice.write(fake.subject.session, "fast", fake.subject.settings)


def test_a_process_that_does_not_end_is_ended(tmp_path):
    """Many seconds of turns on any machine; without a limit it comes to its end, and the test fails."""
    model = _models.save(_models.endless(_models.slowed("conv"), trips=40_000_000), tmp_path / "long.onnx")
    workload = Workload(model, CPU, {"x": np.zeros((1, 8, 32, 32), np.float32)}, False)
    with pytest.raises(AacoError, match=r"had not ended after 1.5 s"):
        ort.run_once(workload, 1.5)


def test_outputs_larger_than_a_session_keeps_are_compared_whole(tmp_path):
    """Fails when the limit of files that others may have written applies to our own."""
    model = models.save(tmp_path / "large.onnx", [onnx.helper.make_node("Relu", ["x"], ["y"])], [("x", [1, 1 << 25])],
                        [("y", [1, 1 << 25])], [])
    (output,), peak = ort.run_once(Workload(model, CPU, {"x": np.ones((1, 1 << 25), np.float32)}, False))
    assert output.whole and output.elements == 1 << 25 and peak > 1 << 27


@pytest.mark.timeout(2400)  # beside much other work
def test_a_true_gain_is_kept_though_the_search_is_killed(tmp_path, monkeypatch):
    """By SIGKILL, once: no line is lost, and it goes on with the same candidates."""
    monkeypatch.setattr(killed, "BESIDE", 0)
    found = killed.Found()
    killed.killed(tmp_path, random.Random(3), found, 1)
    assert (found.kills, found.lost, found.others, found.damaged, found.left_over, found.changed_files) == (
        1, 0, 0, 0, 0, 0)
    assert found.decided == found.sessions == found.kept == 1


def test_a_change_of_nothing_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "CANDIDATES", 1)
    lines = live.no_change(tmp_path, "conv", 1)
    assert lines[-1].kept is None and of(lines, OutputsChecked)[0].passed and of(lines, FirstLook)


def test_the_guide_shows_what_a_recorded_search_prints(capsys):
    """Mutation: a row of the outcome that the guide does not have."""
    root = Path(__file__).parents[2]
    trials = of_ledger(ledger.read(root / "tests/captures/try_cpu/trials.jsonl"))
    try_._print(list(view.rows(forms.encode(trials))))
    assert capsys.readouterr().out in (root / "docs/guides/try.md").read_text()
