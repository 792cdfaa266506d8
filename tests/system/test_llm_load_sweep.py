"""`aaco llm` with loads that rise, on a server that answers so many requests at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aaco import cli
from aaco.core.config import Settings, resolve
from aaco.core.documents import decode
from aaco.core.errors import UsageError
from aaco.core.session import Session, sessions
from aaco.tracelake import documents, layout, manifest
from aaco.workflows import load_sweep
from aaco.workflows.llm_run import LoadRequest
from aaco.workflows.load_sweep import RisingLoad
from tests.fakes import llm_server
from tests.fakes.llm_server import Running

SLOTS, SCHEDULE = 2, "ttft=10000 period=5000 chunks=3"  # 20 ms for each: 100 requests a second at most


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with llm_server.serving(llm_server.compiled(tmp_path_factory.mktemp("llm")), slots=SLOTS) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve(overrides={"storage": {"sessions_dir": tmp_path / "sessions"}})


def request(server: Running, **more: Any) -> LoadRequest:
    return LoadRequest(server.url, "ref", **{"prompt_tokens": "8", "body": {"ref": SCHEDULE}, "requests": 150, **more})


def test_contexts_and_open_requests_make_a_table_with_the_slope(server: Running, tmp_path: Path,
                                                               capfd: pytest.CaptureFixture[str]):
    """Planted: 1,000 tokens of context add 20 ms to a token; a busy machine adds to each load what it likes, so that
    the slope is held against the table.

    Mutations: the slope is per token of the prompt; all loads have the same prompts.
    """
    words = ["llm", server.url, "--model", "ref", "-n", "16", "--concurrency", "1,2", "--prompt-tokens", "20,400",
             "--body", '{"ref": "ttft=1000 period=2000 chunks=5 context=20000"}', "--sessions-dir", str(tmp_path)]
    assert cli.outcome(cli.app, "aaco", [*words, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [(point["prompt_tokens"], point["concurrency"]) for point in document["points"]] == [
        (length, number) for length in ("20", "400") for number in (1, 2)]
    of = {(point["prompt_tokens"], point["concurrency"]): point["tpot_p50_ms"]["value"] for point in document["points"]}
    slopes = document["decode_slopes_ms_per_1k_tokens"]
    assert len(slopes) == 2
    for number, slope in slopes.items():
        shorter, longer = of["20", int(number)], of["400", int(number)]
        assert shorter > 1 and longer > 8  # 2.4 and 10 by the plan, less what delays the first token alone
        assert slope["value"] == pytest.approx((longer - shorter) / 0.380, rel=0.01)
        assert slope["low"] < slope["value"] < slope["high"]
    assert all(point["ttft_p50_ms"]["value"] > 1 for point in document["points"])
    seeds = [documents.require(session, layout.LOAD)["seed"] for session in sessions(tmp_path)]
    assert sorted(seeds) == [1, 2, 3, 4]
    for more in (["--rate", "5"], ["--preset", "llm-server"], ["--prompt-tokens", "20,x"]):
        assert cli.outcome(cli.app, "aaco", [*words, *more]) == 2


def test_a_rising_rate_ends_where_the_server_does_not_keep_up(server: Running, settings: Settings):
    """No more than the planted 100 a second is kept up with, on a busy machine less; prompts differ from step to step.

    Mutation: each step has the prompts of the first.
    """
    rising = RisingLoad("rate", load_sweep.doublings(20, 5000), True)
    last, sweep = load_sweep.sweep(request(server), rising, settings)
    loads = [judged.step.load for judged in sweep.steps]
    assert set(loads) >= {20, 40, 80} and max(loads) <= 320
    assert sweep.sustained is not None and sweep.saturated_from is not None
    assert 20 <= sweep.sustained <= 105 and sweep.sustained < sweep.saturated_from <= 160
    assert sum(judged.step.between for judged in sweep.steps) == 2
    assert sweep.most_answered_per_s is not None and sweep.sustained * 0.9 <= sweep.most_answered_per_s <= 105
    ids = {judged.step.session_id for judged in sweep.steps}
    made = [Session.open(session.folder) for session in sessions(settings.config.storage.sessions_dir)]
    assert {session.id for session in made} == ids and last.session.id in ids
    assert len({documents.require(session, layout.LOAD)["seed"] for session in made}) == len(made)
    assert layout.finding("load_sweep") in manifest.read(last.session)["files"]
    assert decode(documents.require(last.session, layout.finding("load_sweep")), load_sweep.LoadSweep) == sweep


def test_more_at_once_than_the_server_answers_brings_nothing(server: Running, settings: Settings):
    """Two are answered at once; of four, two wait for 20 ms. On a busy machine all is later."""
    sweep = load_sweep.sweep(request(server), RisingLoad("concurrency", [1, 2, 4, 8, 16, 32], False), settings).sweep
    assert [judged.step.load for judged in sweep.steps][:3] == [1, 2, 4] and len(sweep.steps) <= 5
    assert sweep.saturated_from in (4, 8)
    for judged, least_ms in zip(sweep.steps, (10, 10, 25), strict=False):
        figures = {figure.name: figure.value for figure in judged.step.figures}
        assert figures["ttft_p50_ms"] is not None and figures["ttft_p50_ms"] >= least_ms


def test_the_terminal_has_a_table_and_the_json_is_the_document(server: Running, settings: Settings,
                                                               capsys: pytest.CaptureFixture[str]):
    words = ["llm", server.url, "--model", "ref", "--prompt-tokens", "8", "-n", "80", "--body",
             json.dumps({"ref": SCHEDULE}), "--sessions-dir", str(settings.config.storage.sessions_dir)]
    assert cli.outcome(cli.app, "aaco", [*words, "--rate", "30,60"]) == 0
    head, first, second, _, *conclusions = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["load", "answers/s"] and all(len(line) <= 80 for line in (head, first, second))
    assert first.split()[0] == "30" and second.split()[0] == "60"
    assert any("needs three" in line for line in conclusions)
    assert "Energy not shown  the load was sent without --telemetry" in conclusions
    assert cli.outcome(cli.app, "aaco", [*words, "-c", "1:2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["over"] == "concurrency" and [each["step"]["load"] for each in document["steps"]] == [1, 2]
    assert cli.outcome(cli.app, "aaco", ["report", document["session_id"], *words[-2:]]) == 0
    assert "Saturated from" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--rate", "4,2"], ["--rate", "1:2:4"], ["--rate", "0:4"], ["-c", "1,x"],
                                   ["--rate", "1:4", "-c", "1:4"], ["--rate", "1:4", "--preset", "llm-server"],
                                   ["-c", "1.5"]])
def test_loads_that_do_not_rise_are_refused(words: list[str]):
    assert cli.outcome(cli.app, "aaco", ["llm", "http://127.0.0.1:1", "--model", "ref", *words]) == 2


def test_a_decoder_takes_no_load_that_rises(capsys: pytest.CaptureFixture[str]):
    assert cli.outcome(cli.app, "aaco", ["llm", "llama-tiny", "--rate", "1:4"]) == 2
    assert "is for a server" in capsys.readouterr().err


def test_prompts_of_a_file_are_refused(server: Running, settings: Settings, tmp_path: Path):
    (tmp_path / "prompts").write_text("hello")
    with pytest.raises(UsageError, match="in the server's cache"):
        load_sweep.sweep(request(server, prompts=tmp_path / "prompts"), RisingLoad("rate", [1], False), settings)
