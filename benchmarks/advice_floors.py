"""Do the floors of advice hold? Every recorded pair of a program before and after one change, against T / F.

    python -m benchmarks.advice_floors [--json FILE] [--targets]

Each pair's trace before the change is imported with its step time without a profiler; the floor F is that of the pair's
mechanisms, made of the trace before alone. A floor holds if the step after the change, the fastest of its
repetitions, takes at least .98 F. What the host takes in F is that of the fastest tenth of the steps before. D, the
device-only chain, is held against the same side's own step, of both sides. A table and the claims are printed; the exit
code is 1 where a bar is missed.

The pairs are those of $AACO_CAPTURES/pairs (default ../shared/data) and of tests/captures/torch_changes, where a before
has several alternatives; a pair is named BEFORE__ALTERNATIVE there. The latter were recorded after the floors were
defined, and their claims are printed again apart. No floor was fitted to them, nor to h200/torch_scenarios, other
programs on an H200, nor to the programs whose device others shared and whose ranks waited (h100x2).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aaco import pipeline
from aaco.analytics.advice.floor import MechanismFloor, StepTime, ceiling, device_chain_ns, floor, kept_ns
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.mechanisms.host_work import HOST_WORK
from aaco.analytics.advice.mechanisms.joined_batches import JOINED_BATCHES, joined_batches, micro_batches
from aaco.analytics.advice.mechanisms.larger_batch import LARGER_BATCH, larger_batch
from aaco.analytics.advice.mechanisms.results_on_device import RESULTS_ON_DEVICE, computes_on_results
from aaco.analytics.advice.work import StepWork
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.core.config import Settings, resolve
from aaco.core.records import as_dict
from aaco.steps.findings import step_work
from benchmarks.claims import Claim

HOLDS = 0.98  # of F: kernels without gaps between them may be a little faster than the traced ones
NO_CHANGE = 1.02  # times as fast: a change that gained nothing
MOST_PROMISED = 1.05
READS = ("gather",)  # workloads whose changes without a gain are controls: reads that launching blocks bounds
CHANGES = Path(__file__).parents[1] / "tests/captures/torch_changes"
WHOLE_PROGRAMS = CHANGES.with_name("whole_programs")
# Programs recorded while another process used the device, with the same program alone; three warm-up steps are traced.
SHARED = (("shared_products", "start_up_products"), ("shared_passes", "start_up_passes"))
WARM_UP_STEPS = 3
# Recordings of two ranks, one of them late; steps without a profiler, the longer of both ranks, ms (PROVENANCE.md).
LATE, EVEN_MS = (("sleep1", 25.0), ("busy1", 7.63)), 3.54
# Before, after and mechanism among the recordings of an H200, each with its latencies without a profiler.
OTHERS = (("ab_bert_b16_s512_bf16_manual", "ab_bert_b16_s512_bf16_sdpa", "attention_fusion"),
          ("ab_resnet50_b32_eager_fp32", "ab_resnet50_b32_bf16_nchw", "narrower_types"),
          ("transfer_h2d_pageable_100MB", "transfer_h2d_pinned_100MB", "pinned_copies"))


class PairFloor(Struct, frozen=True):
    """A recorded pair with the floor of its change. Times in ms; floor_ms and ceiling are None for why_absent.

    after_least_ms: the step after the change in its fastest repetition, and floor_ms that of the fastest before. clean:
    timed in a process without a profiler. chains: of both sides D over the fastest repetition of the step that it is
    of. gains: whether every repetition was faster, by 2 % in the median; None where nobody judged.
    """

    pair: str
    mechanisms: tuple[str, ...]
    pure: bool
    clean: bool
    step_ms: float
    floor_ms: float | None
    ceiling: float | None
    measured: float
    after_least_ms: float
    why_absent: str
    targets: tuple[dict[str, Any], ...] = ()
    chains: tuple[float, ...] = ()
    gains: bool | None = None

    @property
    def is_control(self) -> bool:
        """Whether the change gained nothing, or lost."""
        return self.measured <= NO_CHANGE if self.gains is None else not self.gains

    @property
    def holds(self) -> bool | None:
        """Whether the step after the change is not shorter than its floor; None without one."""
        return None if self.floor_ms is None else self.after_least_ms >= HOLDS * self.floor_ms

    @property
    def ratio(self) -> float | None:
        """The ceiling over what was measured."""
        return self.ceiling / self.measured if self.ceiling else None


def pair_floor(pair: dict[str, Any], folder: Path, settings: Settings) -> PairFloor:
    """Return the floor of a pair's change by its trace before, and D of both sides. Raise Absent if no steps show."""
    (work, step), (later, _) = (_work(folder / pair["pair"] / f"{side}.trace.json.gz", pair[side]["step_ms"], settings)
                                for side in ("before", "after"))
    per_sample = pair["before"]["samples_per_step"] / pair["after"]["samples_per_step"]
    found = floor_of(work, pair["mechanisms"], 1 / per_sample)
    chains = tuple(device_chain_ns(of_side) / 1e6 / fastest_ms(pair[side])
                   for side, of_side in (("before", work), ("after", later)))
    return PairFloor(pair["pair"], tuple(pair["mechanisms"]), pair["pure"], pair["timed_without_profiler"],
                     pair["before"]["step_ms"], _kept_ms(_fastest(pair["before"]), found),
                     ceiling(step, found), pair["speedup"], fastest_ms(pair["after"]) * per_sample, found.why_absent,
                     tuple(as_dict(target) for target in found.targets), chains)


def change_pairs(before: dict[str, Any], folder: Path, settings: Settings) -> Iterator[PairFloor]:
    """Yield the floors of a before's alternatives that were timed; its trace is imported once."""
    side = before["before"]
    work, step = _work(folder / side["trace"]["file"], side["step_ms"], settings)
    chains = (device_chain_ns(work) / 1e6 / fastest_ms(side),)
    for after in before["alternatives"]:
        if "step_ms" not in after:
            continue
        if "trace" in after:
            later, _ = _work(folder / after["trace"]["file"], after["step_ms"], settings)
            chains += (device_chain_ns(later) / 1e6 / fastest_ms(after),)
        yield _change(before["name"], side, after, work, step, chains)
        chains = ()


def _change(name: str, before: dict[str, Any], after: dict[str, Any], work: StepWork, step: StepTime,
            chains: tuple[float, ...]) -> PairFloor:
    per_sample = before["samples_per_step"] / after["samples_per_step"]
    found = floor_of(work, after["mechanisms"], samples_at_once(before, after), after["truth"].get("micro_batches", 1))
    return PairFloor(f"{name}__{after['name']}", tuple(after["mechanisms"]), after["pure"], True, before["step_ms"],
                     _kept_ms(_fastest(before), found), ceiling(step, found), after["speedup"],
                     fastest_ms(after) * per_sample, found.why_absent,
                     tuple(as_dict(target) for target in found.targets), chains, after["measured"] == "gain")


def circumstances(captures: Path, settings: Settings) -> Iterator[PairFloor]:
    """Yield the floors of programs that shared their device, against them alone, and of late ranks, against even ones.
    """
    listed = json.loads((WHOLE_PROGRAMS / "manifest.json").read_text())["programs"]
    programs = {program["name"]: program for program in listed}
    for shared, alone in SHARED:
        was, became = programs[shared], programs[alone]
        steps = was["steps"] + WARM_UP_STEPS
        work, step = _work(WHOLE_PROGRAMS / f"{shared}.trace.json.gz", was["step_ms"], settings, steps)
        yield _other(shared, "co_tenant", work, step, became["step_ms"], min(became["step_ms_blocks"]))
    for name, step_ms in LATE:
        traces = sorted((captures / "h100x2" / name).glob("*.json.gz"))
        work, step = _work(traces, step_ms, settings)
        yield _other(f"H100 x 2 {name}", "straggler", work, step, EVEN_MS, EVEN_MS)


def _other(name: str, mechanism: str, work: StepWork, step: StepTime, after_ms: float, least_ms: float) -> PairFloor:
    found, step_ms = floor_of(work, [mechanism]), step.ns / 1e6
    return PairFloor(name, (mechanism,), True, True, step_ms,
                     _kept_ms(step, found), ceiling(step, found), step_ms / after_ms,
                     least_ms, found.why_absent, tuple(as_dict(target) for target in found.targets))


def other_pair(before: str, after: str, mechanism: str, folder: Path, settings: Settings) -> PairFloor:
    """Return the floor of a change among the recordings of an H200. Raise Absent if no steps show."""
    was, became = (_latencies_ms(folder / f"{name}.lat.csv") for name in (before, after))
    step_ms, after_ms = statistics.median(was), statistics.median(became)
    work, step = _work(folder / f"{before}.trace.json.gz", step_ms, settings)
    pair = _other(f"H200 {after}", mechanism, work, step, after_ms, min(became))
    return replace(pair, chains=(device_chain_ns(work) / 1e6 / step_ms,))


def _latencies_ms(path: Path) -> list[float]:
    with path.open(newline="") as file:
        return [float(row["latency_us"]) / 1e3 for row in csv.DictReader(file)]


def fastest_ms(side: dict[str, Any]) -> float:
    """Return the step of a side in its fastest repetition."""
    return min(repetition["event_ms"] for repetition in side["repetitions"])


def _fastest(side: dict[str, Any]) -> StepTime:
    """Return the step of a side in its fastest repetition, with the fastest tenth of its steps."""
    tenth_ms = min(repetition.get("event_p10_ms", repetition["event_ms"]) for repetition in side["repetitions"])
    return StepTime(1e6 * fastest_ms(side), True, 1e6 * tenth_ms)


def _work(traces: Path | Sequence[Path], step_ms: float, settings: Settings, steps: int | None = None
          ) -> tuple[StepWork, StepTime]:
    """Return the work of a trace, or of one trace a rank. steps: in the trace, where it has no marks of them."""
    listed = [traces] if isinstance(traces, Path) else list(traces)
    session = pipeline.import_captures(listed, settings, latency=str(step_ms)).session
    return step_work.find(session, Unprofiled(1, step_ms, "pairs.json", steps))


def _kept_ms(step: StepTime, found: MechanismFloor) -> float | None:
    kept = kept_ns(step, found)
    return None if kept is None else kept / 1e6


def floor_of(work: StepWork, mechanisms: Sequence[str], samples: float = 1.0, left: int = 1) -> MechanismFloor:
    """Return the floor of these kinds of changes. samples: times as many at once as before, of a larger batch; 1
    where a step's samples are put into fewer calls: into so many as are left.
    """
    if unknown := [mechanism for mechanism in mechanisms if mechanism not in MECHANISMS]:
        return MechanismFloor(" + ".join(mechanisms), None, (), f"no floor is declared for {', '.join(unknown)}")
    return floor(work, meant(work, kinds(work, mechanisms, samples), samples, left))


def samples_at_once(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Return how many times as many samples a side takes at once as the side before: in a step, or in each of the parts
    that a step learns one after another.
    """
    parts = before["truth"].get("parts", 1) / after["truth"].get("parts", 1)
    return float(parts * after["samples_per_step"] / before["samples_per_step"])


def meant(work: StepWork, mechanisms: Sequence[str], samples: float, left: int = 1) -> list[Mechanism]:
    """Return these kinds of changes, a larger batch of so many samples, and joined batches of which so many are left.
    """
    batch = {LARGER_BATCH.name: larger_batch(samples)} if samples > 1 else {}
    if left > 1:
        batch[JOINED_BATCHES.name] = joined_batches(micro_batches(work) / left)
    return [batch.get(mechanism, MECHANISMS[mechanism]) for mechanism in mechanisms]


def kinds(work: StepWork, mechanisms: Sequence[str], samples: float) -> tuple[str, ...]:
    """Return the kinds of a change by this work: a batch that is larger with as many samples in a step as before joins
    its micro batches, where it has some; and work of the host that leaves the step is that on results, where it has it.
    """
    named = {LARGER_BATCH.name: JOINED_BATCHES.name} if samples == 1 and micro_batches(work) > 1 else {}
    if computes_on_results(work):
        named[HOST_WORK.name] = RESULTS_ON_DEVICE.name
    return tuple(named.get(name, name) for name in mechanisms)


def claims(pairs: Sequence[PairFloor], others: Sequence[PairFloor] = ()) -> Iterator[Claim]:
    """Yield what the floors must hold, of these pairs and of other programs' that no floor was fitted to."""
    known = [pair for pair in pairs if pair.holds is not None]
    broken = [pair.pair for pair in known if not pair.holds]
    yield Claim(f"floors that hold: after >= {HOLDS} F", "all", f"{len(known) - len(broken)} of {len(known)}"
                + "".join(f" {name}" for name in broken), bool(known) and not broken)
    chains = [chain for pair in pairs for chain in pair.chains]
    # a profiler makes some kernels longer, and D with them; a floor is never longer than the step
    yield Claim("D / step of the same side, both sides of all pairs", "",
                f"at most {max(chains, default=0.0):.4f} of {len(chains)}", None)
    pure = [pair for pair in pairs if pair.pure]
    bounded = [pair for pair in pure if pair.ceiling]
    yield Claim("pure pairs with a ceiling", ">= 80 %", f"{len(bounded)} of {len(pure)}",
                len(bounded) >= 0.8 * len(pure))
    for title, bar, meant in (("ceiling / measured, pure pairs", 2.0, bounded),
                              ("ceiling / measured, graphs", 1.15, _of(bounded, "graph")),
                              ("ceiling / measured, narrower types", 4.0, _of(bounded, "narrower_types"))):
        yield _median(title, bar, meant)
    unchanged = [pair for pair in pure if pair.is_control]
    if reads := [pair for pair in unchanged if pair.pair.startswith(READS)]:
        yield _controls("no-change controls, reads by index", reads, True)
    # most of these could have gained: a ceiling is what is possible, and what is promised `advice_expected` says
    yield _controls("ceilings of every change that gained nothing", unchanged, False)
    if others:
        held = [pair for pair in others if pair.holds and max(pair.chains, default=0.0) <= 1 / HOLDS]
        yield Claim("floors of other programs and circumstances that hold", "all", f"{len(held)} of {len(others)}",
                    len(held) == len(others))


def _of(pairs: Sequence[PairFloor], mechanism: str) -> list[PairFloor]:
    return [pair for pair in pairs if pair.mechanisms == (mechanism,)]


def _median(title: str, bar: float, pairs: Sequence[PairFloor]) -> Claim:
    ratios = sorted(pair.ratio for pair in pairs if pair.ratio is not None)
    if not ratios:
        return Claim(title, f"median <= {bar:g}", "no pair", False)
    middle = statistics.median(ratios)
    return Claim(title, f"median <= {bar:g}", f"median {middle:.2f}, {ratios[0]:.2f} .. {ratios[-1]:.2f} of "
                 f"{len(ratios)}", middle <= bar)


def _controls(title: str, pairs: Sequence[PairFloor], barred: bool) -> Claim:
    promised = [pair for pair in pairs if (pair.ceiling or 1.0) > MOST_PROMISED]
    told = "".join(f"; {pair.pair} {pair.ceiling or 1.0:.2f} x" for pair in promised) * barred
    is_met = bool(pairs) and not promised
    return Claim(title, f"<= {MOST_PROMISED:g} x or nothing" * barred,
                 f"{len(pairs) - len(promised)} of {len(pairs)}{told}", is_met if barred else None)


def line(pair: PairFloor, with_targets: bool = False) -> str:
    """Return a pair's line of the table; with its targets below it, where they are asked for."""
    marks = " " if pair.clean else "~"
    head = f"{pair.pair:<60}{' + '.join(pair.mechanisms):<42.41}{pair.step_ms:>8.3f}{marks}"
    if pair.floor_ms is None or pair.ceiling is None:
        text = f"{head}{'n/a':>8}{'n/a':>9}{pair.measured:>10.2f}{'':>8}  {pair.why_absent}"
    else:
        text = (f"{head}{pair.floor_ms:>8.3f}{pair.ceiling:>9.2f}{pair.measured:>10.2f}{pair.ratio:>8.2f}  "
                f"{'holds' if pair.holds else f'BROKEN: {pair.after_least_ms:.3f} ms after'}")
    targets = [f"    {target['own_ns'] / 1e3:>9.1f} us -> {target['least_ns'] / 1e3:>8.1f}  {target['name'][:90]}"
               for target in pair.targets] if with_targets else []
    return "\n".join([text, *targets])


class Table(Struct, frozen=True):
    """Pairs of one source, which are computed as they are asked for."""

    title: str
    pairs: Iterator[PairFloor]

    def printed(self, with_targets: bool) -> list[PairFloor]:
        """Return the pairs, each printed as it comes."""
        print(f"{self.title:<60}{'mechanism':<42}{'T ms':>8} {'F ms':>8}{'ceiling':>9}{'measured':>10}{'c / m':>8}  "
              "(~ timed in a process that had used a profiler)")
        pairs = list[PairFloor]()
        for pair in self.pairs:
            pairs.append(pair)
            print(line(pair, with_targets), flush=True)
        print()
        return pairs


def tables(captures: Path, settings: Settings) -> tuple[Table, Table, Table]:
    """Return the recorded pairs, those recorded after the floors were defined, and those of other programs."""
    listed = json.loads((captures / "pairs" / "pairs.json").read_text())["pairs"]
    changed = json.loads((CHANGES / "pairs.json").read_text())["befores"]
    scenarios = captures / "h200" / "torch_scenarios"
    return (Table("pair", (pair_floor(pair, captures / "pairs", settings) for pair in listed)),
            Table("torch_changes", (pair for before in changed for pair in change_pairs(before, CHANGES, settings))),
            Table("other programs", chain((other_pair(*other, scenarios, settings) for other in OTHERS),
                                          circumstances(captures, settings))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the claims; 1 where one misses its bar. arguments: of the command line by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the table and the claims here too")
    parser.add_argument("--targets", action="store_true", help="list the kernels that each change acts on")
    chosen = parser.parse_args(arguments)
    captures = Path(os.environ.get("AACO_CAPTURES", "../shared/data"))
    with tempfile.TemporaryDirectory(prefix="aaco-floors-") as sessions:
        settings = resolve(overrides={"storage": {"sessions_dir": sessions}}, environment={})
        pairs, changes, others = (table.printed(chosen.targets) for table in tables(captures, settings))
    of_all = _printed("All pairs", claims([*pairs, *changes], others))
    later = _printed("Recorded after the floors were defined: torch_changes", claims(changes))
    if chosen.json:
        rows = [as_dict(pair) | {"holds": pair.holds, "ratio": pair.ratio} for pair in (*pairs, *changes, *others)]
        document = {"pairs": rows, "claims": [as_dict(claim) for claim in of_all],
                    "claims_of_changes": [as_dict(claim) for claim in later]}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(claim.met is False for claim in (*of_all, *later)))


def _printed(title: str, of_pairs: Iterator[Claim]) -> list[Claim]:
    """Return the claims, each printed below the title."""
    found = list(of_pairs)
    print(title)
    for claim in found:
        print(f"{claim.claim:<54} {claim.bar:<20} {claim.measured:<52} {claim.verdict}")
    print()
    return found


if __name__ == "__main__":
    sys.exit(main())
