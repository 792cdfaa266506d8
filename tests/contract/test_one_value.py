"""One quantity has one value on every screen: the parts of the time budget, the headline figures, the advice."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from aaco import pipeline
from aaco.analytics.bottleneck.budget import SHARES
from aaco.analytics.bottleneck.ranks import Windows, judged_rank
from aaco.analytics.diagnosis import ONLY_CAPTURED
from aaco.analytics.explanation import Explanation
from aaco.core.config import Settings, resolve
from aaco.core.documents import decode
from aaco.report import format
from aaco.report.renderers import markdown
from aaco.report.sections import budget, catalogue, content, tiles
from aaco.report.sections.first_screen import OTHER, first_screen
from benchmarks.diagnosis.agreement import disagreements, paths_of
from tests.third_party import captures

OWN = Path(__file__).parents[1] / "captures"
TRACES = (*(OWN / "torch_scenarios" / f"{name}.trace.json.gz" for name in (
    "launch_tiny_mlp", "memory_softmax", "sync_item_loop", "transfer_batch_upload", "compute_gemm_fp32_4096")),
    *sorted((OWN / "torch_shared").glob("*_1.trace.json.gz")),
    *sorted((OWN / "whole_programs").glob("start_up_*.trace.json.gz")), OWN / "torch_h200/resnet50_nchw.json.gz")
OTHERS = ("kineto/mi300*bert*.gz", "kineto/h100*bert*.gz", "kineto/*sglang*.gz",
          "pairs/rnn__cell_loop_to_graph/*.trace.json.gz", "serving/serving_window*.json.gz",
          "serving/decode_bs*_graph.trace.json.gz")
LISTED = {"Longest gap", "Straggler", "Clock shifted", "No repetition", ""}  # labels of lists, one line each
FIGURES = re.compile(r"(?:<?[\d.,]+) %")


@dataclass(frozen=True)
class Imported:
    """A session of a capture, and what the diagnosis says of it."""

    explanation: Explanation
    folder: Path


def _settings(folder: Path) -> Settings:
    return resolve(overrides={"storage": {"sessions_dir": str(folder)}}, environment={})


def _imported(path: Path | list[Path], folder: Path, **given: object) -> Imported:
    run = pipeline.import_captures(path if isinstance(path, list) else [path], _settings(folder), **given)
    return Imported(run.explanation, run.session.folder)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_of_our_recordings(path, tmp_path):
    """Mutation: `"launch_tax_pct": ("launch",)` -> `("launch", "relaunch")`."""
    hold(_imported(path, tmp_path))


@pytest.mark.parametrize("pattern", OTHERS)
def test_of_others_and_of_serving(pattern, tmp_path):
    paths = sorted(captures().glob(pattern))[:2]
    assert paths
    for path in paths:
        hold(_imported(path, tmp_path))


def test_of_ranks(tmp_path):
    """The headline is of the slowest rank. Mutation: `windows.ranks[windows.slowest]` -> `windows.ranks[0]`."""
    for name in ("late", "even"):
        hold(_imported(sorted((OWN / "torch_ranks_h100").glob(f"{name}_rank*.json.gz")), tmp_path / name))


def test_of_a_step_that_was_timed_without_a_profiler(tmp_path):
    """The shares are of that step on every screen."""
    explanation = _imported(OWN / "torch_shared/alone_item_mlp_1.trace.json.gz", tmp_path, latency="0.47", steps=6
                            ).explanation
    assert explanation.readings["launch_tax_pct"].method.startswith("unprofiled")
    _is_whole(explanation)
    _screens_agree(explanation)


def hold(imported: Imported) -> None:
    """Assert that each quantity has one value, on every screen of a session."""
    explanation = imported.explanation
    _is_whole(explanation)
    _is_of_the_judged_window(imported)
    _screens_agree(explanation)
    _budget_and_path_agree(explanation)


def _is_whole(explanation: Explanation) -> None:
    """The readings of the budget sum to 100 %, and the sums of several are those of their parts."""
    assert set(SHARES) == set(budget.OF_DEVICES)
    shares = {name: explanation.readings[name].value for name in SHARES}
    if explanation.readings["host_limited_pct"].value is not None:
        assert sum(shares.values()) == pytest.approx(100)
        host = shares["launch_tax_pct"] + shares["host_pause_pct"] + shares["sync_limited_pct"]
        assert explanation.readings["host_limited_pct"].value == pytest.approx(host)
    methods = {explanation.readings[name].method.partition("; ")[0] for name in SHARES
               if explanation.readings[name].value is not None}
    assert len(methods) == 1


def _is_of_the_judged_window(imported: Imported) -> None:
    """The headline figures are of the rank and window of the budget, in whole ns."""
    readings = imported.explanation.readings
    windows = decode(json.loads((imported.folder / "metrics/windows.json").read_text()), Windows)
    rank, parts = judged_rank(windows), windows.budgets_ns[windows.slowest]
    assert rank is not None
    assert readings["gpu_active_ratio"].value == rank.time.kernel_union_ns / rank.time.span_ns
    assert sum(parts.values()) == rank.time.span_ns
    for name, of_parts in SHARES.items():
        if readings[name].value is not None:
            share = sum(parts[part] for part in of_parts) / rank.time.span_ns
            assert readings[name].value == pytest.approx(100 * share)


def _screens_agree(explanation: Explanation) -> None:
    """A label with one metric has one text, in every section; what several screens show is that text."""
    texts: dict[tuple[str, str], set[str]] = {}
    for section in catalogue.SECTIONS:
        for _, rows in section.titled_rows(explanation):
            for row in rows:
                if row.metric and row.label not in LISTED:
                    texts.setdefault((row.label, row.metric), set()).add(row.text)
    assert not {key: found for key, found in texts.items() if len(found) > 1}
    labels: dict[str, set[str]] = {}
    for label, metric in texts:
        labels.setdefault(label, set()).add(metric)
    assert not {label: found for label, found in labels.items() if len(found) > 1}

    if explanation.diagnosis.abstained_because == ONLY_CAPTURED:  # there is no time of the work
        assert not list(budget.rows(explanation)) and not first_screen(explanation).parts
        return
    (wall,) = budget.rows(explanation)
    _first_screen_agrees(explanation)
    assert wall.text in " ".join(markdown.render(explanation).replace("\\", "").split())
    for metric, words in budget.OF_DEVICES.items():
        shown = re.search(rf"(?:^|, ){re.escape(words)} ({FIGURES.pattern})", wall.text)
        value = explanation.readings[metric].value
        if shown:
            assert shown[1] == format.percent(value / 100)
        else:
            assert value is None or value < 100 * budget.LEAST
    (tax,) = {row.text for row in content.bottleneck(explanation) if row.label == "Launch tax"}
    (tile,) = [tile for tile in tiles.tiles(explanation) if tile.metric == "launch_tax_pct"]
    assert (tile.value in tax) if tile.value else (tile.why_absent in tax)


def _first_screen_agrees(explanation: Explanation) -> None:
    """The bar has the values of the budget, and its parts, as printed, sum to 100 %."""
    screen = first_screen(explanation)
    (wall,) = budget.budgets(explanation)
    shares = {words: share for _, words, share in wall.shares}
    assert all(part.share == shares[part.name] for part in screen.parts if part.name != OTHER)
    assert sum(float(format.percent(part.share).strip("<% ")) for part in screen.parts) == pytest.approx(100, abs=0.31)
    assert wall.whole == screen.whole


def _budget_and_path_agree(explanation: Explanation) -> None:
    paths = paths_of(explanation)
    if paths is not None and len(paths.paths) == len(explanation.trace.devices):
        assert not list(disagreements(explanation.trace, paths))
