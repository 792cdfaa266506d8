"""The mission's names from Python: where each lives, what it costs to import, what it takes and refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aaco
from aaco import AacoError, Comparison, Config, Observatory, Session, UsageError
from aaco.core import session as folders
from aaco.workflows.compare_runs import DiffRequest
from tests import kineto_files
from tests.verdicts import verdict_with

LAYERS = [("aten::linear", [("gemm", 100.0)]), ("aten::gelu", [("gelu<float, 4>(int)", 20.0)])]
FUSED = [("aten::linear", [("gemm", 104.0)])]


@pytest.fixture
def obs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observatory:
    """One that keeps everything in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    return Observatory(Config.default())


def imported(obs: Observatory, name: str, layers: list, tag: str = "") -> Session:
    return obs.import_captures(kineto_files.write(Path(f"{name}.json"), layers, 2), tag=tag)


def test_every_public_name_is_found_where_it_lives():
    """Mutation: a name in __all__ without its home."""
    assert all(getattr(aaco, name) for name in aaco.__all__)
    assert {name for names in aaco._HOMES.values() for name in names} | {"__version__"} == set(aaco.__all__)
    assert dir(aaco) == sorted(aaco.__all__)
    with pytest.raises(AttributeError, match="no attribute 'observatori'"):
        aaco.observatori  # noqa: B018


def test_every_error_is_public():
    """Mutation: an AacoError of core/errors.py that `aaco` does not offer."""
    from aaco.core import errors

    kinds = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, AacoError)}
    assert kinds <= set(aaco.__all__)


def test_an_exception_costs_no_heavy_import():
    """Mutation: AacoError taken from aaco.api."""
    code = "import aaco, sys; aaco.AacoError, aaco.Missing; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"numpy", "pyarrow", "pydantic", "duckdb"}.isdisjoint(done.stdout.split())


def test_reading_a_trace_brings_no_runtime(tmp_path):
    """Mutation: aaco.steps.run imported at the top of observatory.py."""
    capture = kineto_files.write(tmp_path / "trace.json", LAYERS, 2)
    code = (f"import sys; from aaco import Config, Observatory; obs = Observatory(Config.default())\n"
            f"obs.analyze(obs.import_captures({str(capture)!r})).summary(); print(*sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {"onnx", "onnxruntime", "scipy"}.isdisjoint(done.stdout.split())


def test_sections_lie_over_the_environment_and_a_config_asks_neither(tmp_path, monkeypatch):
    """Mutation: a Config merged with the environment; sections below it."""
    monkeypatch.setenv("AACO_SESSION_DIR", "of-the-environment")
    monkeypatch.setenv("AACO_BASELINE_DIR", "kept")
    file = tmp_path / "aaco.yaml"
    file.write_text("storage: {sessions_dir: of-the-file}\nanalysis: {tolerance_pct: 3}\n")

    def kept(config) -> str:
        return str(Observatory(config).config.storage.sessions_dir)

    assert (kept(None), kept({"storage": {"sessions_dir": "given"}})) == ("of-the-environment", "given")
    assert str(Observatory({"storage": {"sessions_dir": "given"}}).config.storage.baselines_dir) == "kept"
    assert (kept(file), Observatory(str(file)).config.analysis.tolerance_pct) == ("of-the-environment", 3)
    assert (kept(Config.default()), kept(Config.from_file(file))) == ("sessions", "of-the-file")
    taken = Observatory(Config.from_dict({"analysis": {"tolerance_pct": 2}})).settings
    assert taken.config.analysis.tolerance_pct == 2 and taken.config.storage == Config.default().storage
    assert (taken.origins["analysis.tolerance_pct"], taken.origins["storage.models_file"]) == ("Config", "default")


@pytest.mark.parametrize(("make", "said"), [
    (lambda: Observatory({"storage": {"session_dir": "x"}}), "Observatory: storage.session_dir"),
    (lambda: Config.from_dict({"analysis": {"tolerance_pct": -1}}), "given sections: analysis.tolerance_pct"),
    (lambda: Config.from_file("nowhere.yaml"), "nowhere.yaml: No such file"),
    (lambda: Observatory(Path("nowhere.yaml")), "nowhere.yaml: No such file"),
])
def test_a_wrong_setting_is_named(make, said):
    """Mutation: errors of given sections that blame the command line."""
    with pytest.raises(UsageError, match=said):
        make()


def test_a_session_is_found_by_whatever_names_it(obs):
    """Mutation: open() that returns a plain core Session, which has no tables; a folder relative to where one stood."""
    session = imported(obs, "trace", LAYERS, tag="mine")
    assert session.folder.is_absolute()
    named = (session.folder, str(session.folder), session.id, session.id[:-3], "mine", "latest")
    for reference in (session, folders.Session(session.folder), *named):
        found = obs.open(reference)
        assert found == session and found.kernels().num_rows == 4
    with pytest.raises(UsageError, match="no session 'yours'"):
        obs.open("yours")


def test_nothing_was_timed_in_a_trace(obs):
    """Mutation: statistics that raise where there are none."""
    analysis = obs.analyze(imported(obs, "trace", LAYERS))
    assert analysis.session.latency.size == 0 and analysis.statistics == {}
    assert analysis.heu.value is None and analysis.heu.why_absent
    assert analysis.bottleneck is analysis.classify_bottleneck() is analysis.explanation.diagnosis
    assert analysis.trace.devices[0].kernels == 4 and analysis.truth["captures"]
    assert repr(analysis) == f"Analysis(session={analysis.session!r})"


def test_a_notebook_shows_a_session_its_analysis_and_a_comparison(obs):
    """Mutations: text that is not escaped; a session that is made by being shown."""
    session = imported(obs, "trace", LAYERS, tag="<b>")
    shown, analysis = session._repr_html_(), obs.analyze(session)
    assert shown.startswith("<table>") and session.id in shown and "&lt;b&gt;" in shown and "<b>" not in shown
    page = analysis._repr_html_()
    assert analysis.trust.line in page and "gpu_active_ratio" in page and "latency_p50_ms" not in page
    assert "TRACE DIFFERENCE" in obs.compare(imported(obs, "after", FUSED), session)._repr_html_()
    unwritten = aaco.core.session.SessionManager.create_session(Path("later"))
    assert "UnwrittenSession" in unwritten._repr_html_() and not Path("later").exists()


def test_reports_lie_where_they_are_asked_for(obs):
    """Mutation: every report under the suffix of HTML; a report written into the sealed bundle."""
    session = imported(obs, "trace", LAYERS)
    sealed = sorted(session.folder.rglob("*"))
    for form, suffix, begin in (("html", "html", "<!"), ("json", "json", "{"), ("markdown", "md", "#"),
                                ("terminal", "txt", "trace.json")):
        path = obs.report(session, format=form)
        assert path == Path(f"{session.id}.{suffix}") and path.read_text().lstrip().startswith(begin)
    assert obs.report(output="deep/down.html") == Path("deep/down.html") and Path("deep/down.html").is_file()
    assert sorted(session.folder.rglob("*")) == sealed
    with pytest.raises(UsageError, match="no report in the format 'docx'"):
        obs.report(session, format="docx")


def test_two_traces_have_a_change_and_no_verdict(obs):
    """Mutation: has_regression that is False for two traces."""
    before = imported(obs, "before", LAYERS, tag="before")
    after = imported(obs, "after", FUSED)
    for baseline in (before, "before", before.folder, before.id):
        found = obs.compare(baseline, after)
        assert (found.baseline, found.session, found.status) == (before.id, after, "not judged")
        assert found.has_regression is None and found.verdict is None
        assert found.change.kernels_before == 4 and found.change.kernels_after == 2
    assert found.document()["delta_ns"] == found.change.delta_ns
    assert found.summary().startswith(f"TRACE DIFFERENCE  {before.id} -> {after.id}")


@pytest.mark.parametrize("tolerance", [0, -5, 1000, float("nan")])
def test_a_tolerance_is_a_percentage(tolerance):
    """Mutation: a NaN that passes as a tolerance."""
    with pytest.raises(UsageError, match="not a percentage above 0"):
        DiffRequest(tolerance)


@pytest.mark.parametrize(("status", "regressed"), [("no_baseline", None), ("error", None)])
def test_what_cannot_be_told_is_none(obs, status, regressed):
    """Mutation: `status == "regressed"` for has_regression."""
    session = imported(obs, "trace", LAYERS)
    for given, expected in ((status, regressed), ("regressed", True), ("improved", False), ("equivalent", False),
                            ("inconclusive", None)):
        found = Comparison("b", session, verdict_with(status=given))
        assert (found.status, found.has_regression) == (given, expected)


def test_what_names_nothing_is_refused(obs):
    """Mutation: further arguments dropped; an import of nothing that leaves a session."""
    with pytest.raises(AacoError, match="no capture"):
        obs.import_captures()
    assert not Path("sessions").exists()
    with pytest.raises(UsageError, match="itterations"):
        obs.profile("gpt2-tiny", itterations=3)
