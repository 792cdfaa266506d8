"""`aaco llm --server-traces`: slow tokens explained by the steps of the engine, on one clock with the requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aaco.core.config import Settings, resolve
from aaco.core.errors import AacoError, Missing, UsageError
from aaco.core.session import sessions
from aaco.core.show import Show
from aaco.core.tables import ENGINE_STEPS, KERNELS, REQUESTS
from aaco.llm import server_profile
from aaco.pipeline import Run, analyze
from aaco.report.sections.finding_views import sections
from aaco.report.sections.findings import endpoint
from aaco.tracelake import documents, layout, store
from aaco.workflows import export_trace, llm_run
from aaco.workflows.llm_run import LoadRequest
from tests.fakes import profiled_server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve(overrides={"storage": {"sessions_dir": tmp_path / "sessions"}})


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "older.pt.trace.json").write_text("{}")  # of another load
    return folder


def test_a_slow_token_has_the_cause_that_was_planted(traces: Path, settings: Settings):
    """Each answer has a token after another's prompt, after a long kernel, after a slow host, and after no step at all.

    Mutations: the trace's times stay on the wall clock; a prompt counts as decoding; the longest part is the cause.
    """
    with profiled_server.serving(traces) as url:
        run = llm_run.ask_endpoint(LoadRequest(url, "ref", requests=6, server_traces=traces), settings)
    found = run.explanation.examined["slow_tokens"]
    planted = {(request, token): cause for request in range(6) for token, cause in profiled_server.SLOW.items()}
    named = {(token["request"], token["event"]): token["cause"] for token in found["tokens"]}
    assert len(named) == 20  # the longest are listed; a busy machine may add a few of its own
    assert sum(planted.get(token) == cause for token, cause in named.items()) >= 16
    assert found["slow"] == sum(found["by_cause"].values()) >= 24 and found["unseen"] == 0
    assert all(count >= 6 for count in found["by_cause"].values())
    steps = store.read(run.session, ENGINE_STEPS).to_pylist()
    assert found["steps"] == len(steps) == 6 * (profiled_server.TOKENS + 1)
    requests = store.read(run.session, REQUESTS).to_pylist()
    for number, request in enumerate(requests):
        own = steps[number * 25:][:25]
        assert request["t_send_ns"] < own[0]["t_start_ns"] and own[-1]["device_end_ns"] < request["t_last_ns"]
    traced = next(session for session in sessions(settings.config.storage.sessions_dir)
                  if session.id == found["device_session"])
    assert store.read(traced, KERNELS).num_rows == len(steps)
    assert_the_bound_has_its_evidence(run)
    assert_kernels_are_drawn_in_their_steps(run, steps, traces / "requests.json")
    again = analyze(run.session, settings)
    assert again.examined["slow_tokens"] == found
    assert len([row for _, rows in sections({"slow_tokens": found}) for row in rows if " by " in row.text]) == 5
    assert_kernels_are_left_out_where_their_session_is_gone(run, traces / "requests.json")


def assert_the_bound_has_its_evidence(run: Run) -> None:
    """Of 265 ms of an answer the device decodes for 132, then come host, prefill and queue, 40 to 52 ms each."""
    bound = run.explanation.examined["endpoint"]["bound"]
    parts = bound["parts_pct"]
    assert max(parts, key=parts.get) == "device" and parts["device"] == bound["share_pct"] > 40
    assert sum(parts.values()) == pytest.approx(100)
    assert all(10 < parts[part] < 30 for part in ("host", "prefill", "queue"))
    phases = documents.require(run.session, layout.LOAD)["device_classes"]
    assert {traced["phase"] for traced in phases} == {"prefill", "decode", "all"}
    shown = [row.text for _, rows in endpoint.sections(run.explanation.examined["endpoint"]) for row in rows]
    assert sum("the device computes prompts for" in text and "decodes for" in text for text in shown) == 1
    assert bound["label"] is None and "what limits it is not known" in bound["why"]  # no counters, no shapes


def assert_kernels_are_drawn_in_their_steps(run: Run, steps: list[dict[str, Any]], path: Path) -> None:
    """Kernels of the server's session, which are on the wall clock there, begin and end with their steps here."""
    export_trace.export(run.session, path, "chrome")
    drawn = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    kernels = sorted(event["ts"] * 1000 for event in drawn if event["name"] == "gemm")
    assert kernels == pytest.approx([step["device_start_ns"] for step in steps], abs=2000)
    requests = [event for event in drawn if event["name"] == "request"]
    assert len(requests) == 6 and sum(begin["ts"] * 1000 <= kernel <= (begin["ts"] + begin["dur"]) * 1000
                                      for begin in requests for kernel in kernels) == len(kernels)


def assert_kernels_are_left_out_where_their_session_is_gone(run: Run, path: Path) -> None:
    """What a load names need not be a session. Mutation: the export fails."""
    load, shown = documents.require(run.session, layout.LOAD), list[str]()
    whole, _ = export_trace.export(run.session, path, "chrome")
    run.session.write_json(layout.LOAD, load | {"device_session": "../../etc"})
    count, _ = export_trace.export(run.session, path, "chrome", Show(step=shown.append))
    assert count < whole and "without the kernels" in " ".join(shown)


def test_a_server_without_the_routes_is_refused_before_there_is_a_session(traces: Path, settings: Settings):
    with profiled_server.serving(traces, False) as url, pytest.raises(Missing, match="/start_profile") as refused:
        llm_run.ask_endpoint(LoadRequest(url, "ref", requests=1, server_traces=traces), settings)
    assert "torch_profiler_dir" in refused.value.fix and not settings.config.storage.sessions_dir.exists()


def test_a_load_is_whole_without_its_trace(traces: Path, settings: Settings, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch):
    """The server writes elsewhere. Mutation: the load fails with it."""
    monkeypatch.setattr(server_profile.written_since, "__defaults__", (0.6, server_profile.time.sleep))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with profiled_server.serving(elsewhere) as url:
        run = llm_run.ask_endpoint(LoadRequest(url, "ref", requests=2, server_traces=traces), settings)
    assert "has written no trace" in documents.require(run.session, layout.LOAD)["why_no_steps"]
    assert "has written no trace" in run.explanation.examined["slow_tokens"]["why_absent"]
    assert run.explanation.examined["endpoint"]["ok"] == 2


def test_what_the_server_writes_is_taken_once_it_does_not_grow(traces: Path):
    """Mutation: the first file that appears is taken while it grows."""
    before, sizes = server_profile.files_in(traces), iter((1, 2))

    def grow(seconds: float) -> None:
        if size := next(sizes, 0):
            (traces / "new.json").write_text("x" * size)

    assert server_profile.written_since(traces, before, 5.0, grow) == [traces / "new.json"]
    assert (traces / "new.json").stat().st_size == 2
    with pytest.raises(AacoError, match="no trace"):
        server_profile.written_since(traces, server_profile.files_in(traces), 0.01, lambda seconds: None)
    with pytest.raises(UsageError, match="no folder"):
        server_profile.files_in(traces / "nowhere")
