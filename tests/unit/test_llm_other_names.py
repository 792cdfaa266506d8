"""Names of other tools stand only on figures that mean the same, and the guide has the table."""

from __future__ import annotations

from pathlib import Path

from aaco.analytics.llm import other_names
from aaco.analytics.llm.summary import summarise
from aaco.profiler.formats.serving import bench_serving
from tests.fakes import serving

GUIDE = Path(__file__).parents[2] / "docs/guides/llm.md"


def test_only_equal_figures_have_the_names_of_others(tmp_path):
    """Fails when a figure that only looks alike, such as vLLM's itl, gets the other's name. Mutation: times of vLLM,
    which may be those of a chunk without text, have the names of AIPerf."""
    requests, *events, _ = bench_serving.parse(serving.write(tmp_path / "r.json", serving.result(100)))
    vllm = {"completed": 100, "failed": 0, "total_input_tokens": 700, "total_output_tokens": 400}
    aiperf = {"request_count": 100, "error_request_count": 0}
    assert summarise(requests, events, None).other_names == {other_names.VLLM: vllm, other_names.AIPERF: aiperf}
    named = other_names.equal({"ttft_dispatched": {0.5: 10.0, 0.99: None}, "latency_dispatched": {0.5: 60.0},
                               "tpot": {0.5: 5.0}, "icl": {0.5: 5.0}}, {"ok": 1})
    assert named == {other_names.VLLM: {"completed": 1}, other_names.AIPERF: {
        "time_to_first_output_token": {"unit": "ms", "p50": 10.0}, "request_latency": {"unit": "ms", "p50": 60.0},
        "request_count": 1}}


def test_every_figure_here_exists(tmp_path):
    requests, *events, _ = bench_serving.parse(serving.write(tmp_path / "r.json", serving.result(100)))
    endpoint = summarise(requests, events, None)
    ours = {entry.name for entry in (*endpoint.latencies, *endpoint.rates)} | {"ok", "failed", "prompt_tokens"}
    assert {figure.ours for figure in other_names.FIGURES} <= ours


def test_the_guide_has_the_table():
    rows = (f"| {figure.tool} | `{figure.name}` | `{figure.ours}` | {figure.differs or 'equal'} |"
            for figure in other_names.FIGURES)
    assert "\n".join(["| tool | its name | here | meaning |", "|---|---|---|---|", *rows]) in GUIDE.read_text()
