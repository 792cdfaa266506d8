"""Changes that must not be kept, through the product's own road: each is a gain at first sight, and false.

300 of them over five small models. What computes something else, forgets, crashes or hangs is faster than the session;
what changes nothing is timed on a machine that others disturb. The last claims say by which gate each kind was refused.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import onnx

from aaco.core.statistics import exact_share
from benchmarks.claims import Claim
from benchmarks.try_advice import _disturbances, _models, _searches
from benchmarks.try_advice._disturbances import Crashes
from benchmarks.try_advice._searches import Ended, Planted, Subject

OWN, ZOO = ("mlp", "conv"), ("bert-tiny", "gpt2-tiny", "llama-tiny")
SEEDS = range(4)
LEAST = 300
MOST_SHARE = 0.01
NO_CHANGES = 3  # options that do nothing, in a search beside a disturbance
QUICK = {"OWN": ("conv",), "ZOO": (), "SEEDS": range(1), "LEAST": 0}


def claims(captures: Path) -> Iterator[Claim]:
    """Yield how many of all were kept, and the gates that refused each kind."""
    ended: list[Ended] = []
    with tempfile.TemporaryDirectory(prefix="aaco-planted-") as folder:
        for name in (*OWN, *ZOO):
            subject = _subject(Path(folder) / name, name)
            for seed in SEEDS:
                ended += _all_searches(subject, name, seed)
    kept = [one for one in ended if one.gate == "KEPT"]
    _, high = exact_share(len(kept), len(ended), 0.9)  # its upper end: 95 % one-sided
    enough = len(ended) >= LEAST
    yield Claim("false candidates that were kept", f"0 of >= {LEAST}, upper <= {100 * MOST_SHARE:g} %",
                f"{len(kept)} of {len(ended)}, upper limit {100 * high:.2f} %",
                not kept and high <= MOST_SHARE if enough and LEAST else not kept)
    for kind in dict.fromkeys(one.kind for one in ended):
        gates = Counter(one.gate for one in ended if one.kind == kind)
        yield Claim(f"refused: {kind}", "0 kept", ", ".join(f"{gate} {count}" for gate, count in gates.most_common()),
                    "KEPT" not in gates)


def _subject(folder: Path, name: str) -> Subject:
    if name in ZOO:
        return _searches.record(folder, name)
    return _searches.record(folder, _models.save(_models.slowed(name), folder / f"{name}.onnx"))


def _all_searches(subject: Subject, name: str, seed: int) -> Iterator[Ended]:
    """Search over all that is false of a model, then over changes of nothing beside each disturbance."""
    crashes = Crashes()
    model = Path(subject.session.record.planned.model)
    file = model if model.exists() else None
    false = [*_false(subject, seed), *(_false_of_ours(subject, name, seed) if name in OWN else ())]
    with crashes.around(), _disturbances.cold(file) if file else nullcontext():
        yield from _searches.ended(_searches.search(subject, false, seed, step=crashes.step), false)
    beside: dict[str, AbstractContextManager[None]] = {
        "other work in bursts": _disturbances.bursts(seed), "a machine that drifts": _disturbances.drift(seed)}
    for kind, disturbance in beside.items():
        planted = [Planted(f"nothing, beside {kind}", one.change) for one in _searches.no_changes(NO_CHANGES)]
        with disturbance:
            yield from _searches.ended(_searches.search(subject, planted, seed), planted)


def _false(subject: Subject, seed: int) -> list[Planted]:
    """Return what can be planted into any model."""
    model, inputs, outputs = subject.model, subject.inputs, subject.outputs
    made = [
        _searches.rewritten("the same file, warm where the session's is cold", f"copy_{seed}", model),
        _searches.rewritten("answers with the session's outputs", f"constant_{seed}", _models.constant(model, outputs)),
        _searches.rewritten("remembers the session's inputs", f"memory_{seed}",
                            _models.remembers(model, inputs, outputs)),
        _searches.rewritten("wrong for other inputs than the session's", f"others_{seed}",
                            _models.remembers(model, inputs, outputs, otherwise=1.01)),
        _searches.rewritten("does not load", f"unknown_{seed}", _models.unknown(model)),
        _searches.rewritten("crashes at once", f"crash_{seed}", model),
        _searches.rewritten("crashes when it is timed", f"crash_late_{seed}", model)]
    if seed == 0:  # each takes as long as a process may
        made.append(_searches.rewritten("hangs", f"hangs_{seed}", _models.endless(model)))
    return made + _searches.no_changes(1)


def _false_of_ours(subject: Subject, kind: str, seed: int) -> list[Planted]:
    """Return what is faster for sure, because it goes without ballast, and false."""
    x, y = subject.inputs["x"], subject.outputs["y"]
    rng = np.random.default_rng(seed)
    off = float(np.abs(y).max() * rng.uniform(0.01, 0.5))
    light = _models.slowed(kind, 0)
    files: Sequence[tuple[str, str, onnx.ModelProto]] = (
        ("a layer is missing", "shallow", _models.shallow(kind)),
        ("one element is wrong", "element", _models.one_element(kind, off)),
        ("one element is no number", "nan", _models.one_element(kind, np.nan)),
        ("less exact, and does not say so", "coarse", _models.coarser(light)),
        ("needs much more memory", "large", _models.large(kind)),
        ("slow for rare inputs", "detour", _models.detour(kind, x)))
    return [_searches.rewritten(what, f"{name}_{seed}", model) for what, name, model in files] + [
        _searches.rewritten("less exact, and says so", f"said_{seed}", _models.coarser(light),
                            precisions=("bfloat16",))]
