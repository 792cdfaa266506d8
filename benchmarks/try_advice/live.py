"""Real searches: over changes of nothing, and over some of nothing and one that is a gain by construction.

A gain is planted by slowing the session's own model: with ballast that makes about so many per cent of its work, or
with a graph that ONNX Runtime may not optimise. The change takes that away.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from aaco.core.candidate import Candidate
from aaco.optimize.search import Search
from benchmarks.claims import Claim
from benchmarks.intervals import exact_share
from benchmarks.try_advice import _models, _searches
from benchmarks.try_advice._searches import Planted, Subject

MODELS = ("mlp", "conv", "bert-tiny", "gpt2-tiny")
SEARCHES, CANDIDATES = 20, 20
LAYERS = {5: (1, 19), 20: (2, 8)}  # by the gain in per cent: of ballast, and of the model
KEPT = {5: 0.95, 20: 1.0, "graph": 1.0}
KINDS, GAIN_SEARCHES, BESIDE = ("mlp", "conv"), 5, 3
OPTIMISED = ("bert-tiny", "gpt2-tiny")
GAIN = "gain"
BUDGET_S = 1800.0
QUICK = {"MODELS": ("conv",), "SEARCHES": 1, "CANDIDATES": 2, "LAYERS": {20: (2, 8)}, "KINDS": ("conv",),
         "GAIN_SEARCHES": 1, "BESIDE": 1, "OPTIMISED": ()}


def claims(captures: Path) -> Iterator[Claim]:
    """Yield the bars of false keeps and of true gains."""
    with tempfile.TemporaryDirectory(prefix="aaco-live-") as folder:
        yield _false_keeps(Path(folder))
        for percent, (ballast, layers) in LAYERS.items():
            found = [_gain(Path(folder) / f"{kind}-{percent}", kind, ballast, layers, seed)
                     for kind in KINDS for seed in range(GAIN_SEARCHES)]
            yield _power(f"a gain of about {percent} %", KEPT[percent], found)
        if OPTIMISED:
            found = [_graph(Path(folder) / f"{name}-graph", name, seed)
                     for name in OPTIMISED for seed in range(GAIN_SEARCHES)]
            yield _power("a graph that is optimised at last", KEPT["graph"], found)


def no_change(folder: Path, model: str, seed: int) -> list[Any]:
    """Return the lines of a search over changes of nothing."""
    subject = record(folder, model)
    return _searches.search(subject, _searches.no_changes(CANDIDATES), seed, BUDGET_S)


def record(folder: Path, model: str) -> Subject:
    """Record a session of one of our models, or of one of the zoo's."""
    if model not in ("mlp", "conv"):
        return _searches.record(folder, model)
    return _searches.record(folder, _models.save(_models.slowed(model), folder / f"{model}.onnx"))


def _false_keeps(folder: Path) -> Claim:
    kept, confirmed = [], 0
    for seed in range(SEARCHES):
        name = MODELS[seed % len(MODELS)]
        state = Search(no_change(folder / f"nothing-{seed}", name, seed))
        confirmed += len(state.confirmed)
        kept += [f"{name}: {state.decided.kept}"] if state.decided and state.decided.kept else []
    _, high = exact_share(len(kept), SEARCHES, 0.9)
    return Claim(f"live searches over {CANDIDATES} changes of nothing that kept one", f"0 of {SEARCHES}",
                 f"{len(kept)} of {SEARCHES}, upper limit {100 * high:.0f} %, {confirmed} confirmations"
                 + "".join(f"; {one}" for one in kept), not kept)


def gain(folder: Path, kind: str, ballast: int, layers: int) -> tuple[Subject, list[Planted]]:
    """Return a session of a slowed model, and changes of which one takes the ballast away."""
    model = _models.save(_models.slowed(kind, ballast, layers), folder / f"{kind}.onnx")
    light = _searches.rewritten("gain", GAIN, _models.slowed(kind, 0, layers))
    return _searches.record(folder, model), [light, *_searches.no_changes(BESIDE)]


def _gain(folder: Path, kind: str, ballast: int, layers: int, seed: int) -> Search:
    subject, planted = gain(folder / str(seed), kind, ballast, layers)
    return Search(_searches.search(subject, planted, seed, BUDGET_S))


def _graph(folder: Path, name: str, seed: int) -> Search:
    """Search on a session whose graph was not optimised."""
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"provider": "CPUExecutionProvider", "graph_optimization": "disable"}
    backends = folder / "backends.yaml"
    backends.write_text(yaml.safe_dump({"backends": {"plain": entry}}))
    subject = _searches.record(folder / str(seed), name, backends=backends, backend="plain")
    planted = [Planted("gain", Candidate(GAIN, "Optimise the graph", {"graph_optimization": "all"})),
               *_searches.no_changes(BESIDE)]
    return Search(_searches.search(subject, planted, seed, BUDGET_S))


def _power(what: str, bar: float, found: list[Search]) -> Claim:
    missed = [state.decided.why if state.decided else "no end" for state in found if not _keeps(state)]
    kept = len(found) - len(missed)
    low, high = exact_share(kept, len(found))
    lines = [line for state in found for line in state.confirmed.values() if line.change == GAIN]
    gains = [line.gain_pct for line in lines if line.gain_pct is not None]
    processes = [state.planned.processes for state in found if state.planned]
    measured = f"{kept} of {len(found)} [{100 * low:.0f}, {100 * high:.0f}] %"
    measured += f"; {median(gains):.1f} % by the median of them" if gains else ""
    measured += f", {min(processes)} to {max(processes)} processes" if processes else ""
    measured += "".join(f"; not kept: {why}" for why in missed)
    return Claim(f"{what} is kept", f">= {100 * bar:g} %", measured, kept >= bar * len(found))


def _keeps(state: Search) -> bool:
    return bool(state.decided) and GAIN in (state.decided.kept or "").split(" + ")
