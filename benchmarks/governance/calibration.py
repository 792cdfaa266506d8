"""Is the probability of a regression what it says: of comparisons that get p, does a share p hide a regression?

Half of all trials have no change; the changes of the others are drawn from 1 to 50 % with a density that falls as
1 / size, three of four of them slowdowns. A regression is a true slowdown of more than the tolerance (5 %). Fitted on
other draws (`--fit` prints the two numbers for governance/calibrate.py); models of the recording are held out in turn.
Most of these changes are lost in the recording, whose processes scatter by 35-50 %: there a probability can be right on
average, but says little, and the Brier score is near that of the base rate.

    python -m benchmarks.governance.calibration --fit
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aaco.governance import calibrate
from aaco.governance.spread import estimate
from benchmarks.claims import Claim
from benchmarks.governance import _sides
from benchmarks.governance._sides import Draw, Reals, Rng
from benchmarks.intervals import wilson

TRIALS, SEED, TOLERANCE_PCT = 3000, 44, 5.0
BINS = 10
MARGIN = math.log1p(TOLERANCE_PCT / 100)


def claims(captures: Path) -> Iterator[Claim]:
    """Reliability on data that the fit did not see: other draws, other models; and made data of every kind."""
    held_out = []
    for number, (name, draws) in enumerate(_sets(captures).items()):
        said, truth = _trials(draws, np.random.default_rng([SEED, 1, number]))
        fitted = np.array([calibrate.FITTED(p) for p in said])
        held_out.append((fitted, truth))
        yield from _scored(name, fitted, truth)
    yield from _scored("all together", np.concatenate([p for p, _ in held_out]),
                       np.concatenate([truth for _, truth in held_out]))
    for kept_out, score in _leave_one_out(captures):
        yield from _scored(f"fitted without {kept_out}, scored on it", *score)
    p, truth = (np.concatenate(parts) for parts in zip(*held_out, strict=True))
    for low in np.arange(BINS) / BINS:
        inside = (p >= low) & (p < low + 1 / BINS)
        bounds = wilson(int(truth[inside].sum()), int(inside.sum()))
        share = truth[inside].mean() if inside.any() else math.nan
        yield Claim(f"reliability: said {low:.1f}-{low + 1 / BINS:.1f}", "none: the table",
                    f"{share:.2f} ({bounds[0]:.2f}-{bounds[1]:.2f}) of {inside.sum()}", None)


def _sets(captures: Path) -> dict[str, list[Draw]]:
    """Draws by kind of data: made ones of calm and of drifting machines, recorded ones with and without history."""
    found = {"iid": [_sides.made(_sides.iid, 1, 1, 0), _sides.made(_sides.iid, 1, 1, 8)],
             "sessions that differ": [_sides.made(_sides.drifting, 8, 1, 0), _sides.made(_sides.drifting, 1, 1, 20)],
             "AR(1) iterations": [_sides.made(_sides.autoregressive, 1, 1, 8)],
             "bimodal per session": [_sides.made(_sides.bimodal, 1, 1, 8)]}
    recorded = {model: {model: values} for model, values in _sides.medians(captures).items()}
    return found | {f"recorded {model}": _of_recording(one) for model, one in recorded.items()}


def _of_recording(one: dict[str, Reals]) -> list[Draw]:
    return [_sides.of_processes(one, 0), _sides.of_processes(one, 8), _sides.of_sessions(one, 5, 5, 6),
            _sides.of_sessions(one, 8, 1, 7)]


def _change(rng: Rng) -> float:
    """The true change of a trial, on the log scale."""
    if rng.random() < 0.5:
        return 0.0
    size = math.log1p(math.exp(rng.uniform(math.log(0.01), math.log(0.5))))
    return size if rng.random() < 0.75 else -size


def _trials(draws: list[Draw], rng: Rng, count: int = TRIALS) -> tuple[Reals, Reals]:
    """What the posterior said in each trial, and whether there was a regression."""
    said, truth = np.empty(count), np.empty(count)
    for trial in range(count):
        (before, after, history), change = draws[trial % len(draws)](rng), _change(rng)
        found = estimate(before, [session + change for session in after], history)
        said[trial] = calibrate.posterior(found.effect, found.standard_error, found.degrees, MARGIN)[0]
        truth[trial] = change > MARGIN
    return said, truth


def _scored(name: str, p: Reals, truth: Reals) -> Iterator[Claim]:
    """Expected calibration error over ten bins of equal width, and the Brier score beside that of the base rate."""
    number = np.minimum((p * BINS).astype(int), BINS - 1)
    error = sum(abs(p[number == one].mean() - truth[number == one].mean()) * (number == one).mean()
                for one in np.unique(number))
    brier, base = float(((p - truth) ** 2).mean()), float(truth.mean() * (1 - truth.mean()))
    yield Claim(f"P(regression), expected calibration error: {name}", "<= 0.05", f"{error:.3f} of {len(p)}",
                bool(error <= 0.05))
    lost = "recorded" in name
    yield Claim(f"P(regression), Brier score: {name}", "none: noise of 35-50 %" if lost else "<= 0.13",
                f"{brier:.3f}, of the base rate alone {base:.3f}", None if lost else brier <= 0.13)


def _fit(p: Reals, truth: Reals) -> calibrate.Fit:
    """The logistic fit of least log loss, by Newton's method."""
    inside = np.clip(p, 1e-9, 1 - 1e-9)
    design = np.column_stack((np.ones(len(p)), np.log(inside / (1 - inside))))
    beta = np.array([0.0, 1.0])
    for _ in range(50):
        found = 1 / (1 + np.exp(-design @ beta))
        weight = found * (1 - found) + 1e-12
        beta = beta + np.linalg.solve(design.T @ (design * weight[:, None]), design.T @ (truth - found))
    return calibrate.Fit(float(beta[0]), float(beta[1]))


def _training(captures: Path, without: str = "") -> calibrate.Fit:
    parts = [_trials(draws, np.random.default_rng([SEED, 0, number]))
             for number, (name, draws) in enumerate(_sets(captures).items()) if name != without]
    return _fit(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _leave_one_out(captures: Path) -> Iterator[tuple[str, tuple[Reals, Reals]]]:
    sets = _sets(captures)
    for number, name in enumerate(sets):
        if name.startswith("recorded"):
            fit = _training(captures, name)
            said, truth = _trials(sets[name], np.random.default_rng([SEED, 1, number]))
            yield name, (np.array([fit(p) for p in said]), truth)


if __name__ == "__main__":
    if sys.argv[1:] != ["--fit"]:
        sys.exit("python -m benchmarks.governance.calibration --fit")
    print(_training(Path(os.environ.get("AACO_CAPTURES", "../shared/data"))))
