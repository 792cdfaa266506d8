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

from benchmarks.claims import Claim
from benchmarks.intervals import exact_share
from benchmarks.try_advice import _disturbances, _models, _searches
from benchmarks.try_advice._disturbances import Crashes
from benchmarks.try_advice._searches import Ended, Planted, Subject

OWN, ZOO = ("mlp", "conv"), ("bert-tiny", "gpt2-tiny", "llama-tiny")
SEEDS = range(3)
LEAST = 300
MOST_SHARE = 0.01
NO_CHANGES = 5  # options that do nothing, in a search beside a disturbance
QUICK = {"OWN": ("conv",), "ZOO": (), "SEEDS": range(1), "LEAST": 0, "NO_CHANGES": 1}


def claims(captures: Path) -> Iterator[Claim]:
    """Yield how many of all were kept, and the gates that refused each kind."""
    ended: list[Ended] = []
    with tempfile.TemporaryDirectory(prefix="aaco-planted-") as folder:
        for name in (*OWN, *ZOO):
            subject, before = _subject(Path(folder) / name, name), len(ended)
            for seed in SEEDS:
                ended += _all_searches(subject, name, seed)
            kept = [one for one in ended[before:] if one.gate == "KEPT"]
            yield Claim(f"{name}: false candidates that were kept", "0", f"{len(kept)} of {len(ended) - before}"
                        + "".join(f"; {one.kind}: {one.why}" for one in kept), not kept)
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
    """Search over all that is false of a model; and, on ours, over changes of nothing beside each disturbance."""
    crashes, rng = Crashes(), np.random.default_rng(seed)
    model = Path(subject.session.record.planned.model)
    false = [*_false(subject, seed, rng), *(_false_of_ours(subject, name, seed, rng) if name in OWN else ())]
    with crashes.around(), _disturbances.cold(model) if model.exists() else nullcontext():
        yield from _searches.ended(_searches.search(subject, false, seed, step=crashes.step), false)
    if name not in OWN:
        return
    beside: dict[str, AbstractContextManager[None]] = {
        "other work in bursts": _disturbances.bursts(seed), "a machine that drifts": _disturbances.drift(seed)}
    for kind, disturbance in beside.items():
        planted = [Planted(f"nothing, beside {kind}", one.change) for one in _searches.no_changes(NO_CHANGES)]
        with disturbance:
            yield from _searches.ended(_searches.search(subject, planted, seed), planted)


def _false(subject: Subject, seed: int, rng: np.random.Generator) -> list[Planted]:
    """Return what can be planted into any model."""
    model, inputs, outputs = subject.model, subject.inputs, subject.outputs
    others = [("wrong for other inputs than the session's", f"others{number}",
               _models.remembers(model, inputs, outputs, otherwise=1 + float(rng.uniform(0.01, 0.5)) * (-1)**number))
              for number in range(2)]
    files: list[tuple[str, str, onnx.ModelProto]] = [
        ("the same file, warm where the session's is cold", "copy", model),
        ("answers with the session's outputs", "constant", _models.constant(model, outputs)),
        ("remembers the session's inputs", "memory", _models.remembers(model, inputs, outputs)), *others,
        ("less exact, and does not say so", "rounded", _models.coarser(model)),
        ("does not load", "unknown", _models.unknown(model)), ("crashes at once", "crash", model),
        ("crashes when it is timed", "crash_late", model)]
    if seed == 0:  # it takes as long as a process may
        files.append(("hangs", "hangs", _models.endless(model)))
    said = _searches.rewritten("less exact, and says so", f"said_{seed}", _models.coarser(model),
                               precisions=("bfloat16",))
    return [*_named(files, seed), said, *_searches.no_changes(3)]


def _false_of_ours(subject: Subject, kind: str, seed: int, rng: np.random.Generator) -> list[Planted]:
    """Return what is faster for sure, because it goes without ballast, and false."""
    x, y = subject.inputs["x"], subject.outputs["y"]
    largest = float(np.abs(y).max())
    light = _models.slowed(kind, 0)
    off = [largest * float(rng.uniform(0.01, 0.5)), -largest * float(rng.uniform(0.01, 0.5)), np.nan, np.inf]
    elements = [("one element is wrong" if np.isfinite(value) else "one element is no number", f"element{number}",
                 _models.one_element(kind, value, float(rng.random()))) for number, value in enumerate(off)]
    files = [*elements,
             *(("layers are missing", f"shallow{count}", _models.shallow(kind, count)) for count in (1, 2)),
             ("less exact, and does not say so", "coarse", _models.coarser(light)),
             ("needs much more memory", "large", _models.large(kind)),
             ("slow for rare inputs", "detour", _models.detour(kind, x))]
    return _named(files, seed)


def _named(files: Sequence[tuple[str, str, onnx.ModelProto]], seed: int) -> list[Planted]:
    return [_searches.rewritten(what, f"{name}_{seed}", model) for what, name, model in files]
