"""What advice expects of a change, held against what it gained: recorded changes, each family of workloads left out.

    python -m benchmarks.advice_expected [--write] [--untimed] [--json FILE]

Of every recorded change the trace before it is imported with its step time without a profiler. The track record is
learned of all other families of workloads, and the expected gain and its 90 % interval come from it. So does the advice
of the before's session. An alternative whose kinds of changes are all advised has the place of the first of them; what
is not advised has none. Nothing is promised of that, nor of a change whose line says "maybe nothing": its interval
begins below what is worth advice. A larger batch is looked at up to the one that was recorded. A
table and the claims are printed; the exit code is 1 where a bar is missed. With --untimed the advice, and so each
place, is that of sessions which know no step time; nothing is then expected of a change there, and gains and their
intervals stay those of the timed step. --write also learns the record of all
changes and writes the one that ships, src/aaco/analytics/advice/residuals.json.

A gain is the median over the turns of a recording of the median step before over that after: what slows a machine down
for a while slows both sides of a turn. Of inputs that other processes make the steps are mean ones: they come in
bursts, and the median step does not show the waits for them. The first advice is the best unless an alternative was
faster than it in every turn, and by 2 % in the median: so `measured` of pairs.json tells a gain from noise.

The changes are those of $AACO_CAPTURES/pairs (default ../shared/data) and of tests/captures/torch_changes, or of the
folder that AACO_CHANGES names. Times of a process that had used a profiler are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aaco import pipeline
from aaco.analytics.advice import expected as expectations
from aaco.analytics.advice import track_record
from aaco.analytics.advice.achieved import changed_step
from aaco.analytics.advice.expected import LEAST_GAIN, Expected
from aaco.analytics.advice.floor import MechanismFloor, StepTime, ceiling, floor
from aaco.analytics.advice.floors import floors_of
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.mechanisms.compile import COMPILE
from aaco.analytics.advice.mechanisms.pointwise_fusion import POINTWISE_FUSION
from aaco.analytics.advice.mechanisms.prefetching import PREFETCHING
from aaco.analytics.advice.recommend import bounded, gaining
from aaco.analytics.advice.track_record import LEVEL, RecordedChange, TrackRecord
from aaco.analytics.advice.work import StepWork
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.workload.facts import NAME as FACTS
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.core.advice import FactValues
from aaco.core.config import Settings, resolve
from aaco.core.readings import Absent, Reading
from aaco.core.records import as_dict
from aaco.steps import readings
from aaco.steps.findings import step_work
from aaco.tracelake import documents, layout
from benchmarks.advice_floors import HOLDS, kinds, meant, samples_at_once
from benchmarks.claims import Claim
from benchmarks.intervals import exact_share

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "src/aaco/analytics/advice/residuals.json"
RECORDED = ROOT / "tests/captures/torch_changes"
NO_GAIN = 1.02  # times as fast
NEAR_BEST = 0.9  # of the best gain
MOST_ERROR = 0.25  # of the log of a gain, in the median
FIRST = 3
# What is fused by hand follows the advice to fuse passes, of which a compiler is the first thing to try.
FOLLOWS = {POINTWISE_FUSION.name: COMPILE.name}
# Programs of one kind of model, by the first name here that a workload's begins with; others are their own family.
FAMILIES = {"gpt": "gpt", "dlrm": "recommender", "moe": "moe", "rnn": "recurrent", "lstm": "recurrent",
            "beam_search": "recurrent", "cnn": "cnn", "host_pictures": "cnn", "unet": "unet", "volume_unet": "unet",
            "diffusion": "unet", "gather": "gather", "graph_network": "gather", "encoder": "encoder",
            "long_attention": "attention", "checkpointed": "encoder"}


class ReadSession(Struct, frozen=True):
    """What advice needs of the session of a before."""

    work: StepWork
    step: StepTime
    readings: Mapping[str, Reading]
    facts: FactValues

    def advised(self, record: TrackRecord, most_samples: float) -> list[str]:
        """Return the kinds of changes that are advised by this record, best first.

        most_samples: in a step, times as many as before: what a still larger batch gains was not recorded.
        """
        floors = floors_of(self.work, self.step, record, "", self.facts, most_samples)
        advised, _ = bounded(gaining(self.readings, self.facts, floors), floors)
        return [advice.mechanism for advice in advised if advice.mechanism]


class TriedChange(Struct, frozen=True):
    """A change that was measured. recorded: None where the trace before it makes no prediction, for why_absent.

    turns: in each turn of the recording times as fast, per sample. useless: no gain was intended. alternatives: whether
    others were tried in turns.
    """

    family: str
    before: str
    change: str
    mechanisms: tuple[str, ...]
    step: StepTime
    floor: MechanismFloor
    turns: tuple[float, ...]
    useless: bool
    alternatives: bool
    recorded: RecordedChange | None
    why_absent: str = ""
    session: ReadSession | None = None
    samples: float = 1.0

    @property
    def gain(self) -> float:
        """Times as fast, per sample."""
        return statistics.median(self.turns)

    def beats(self, turns: Sequence[float]) -> bool:
        """Whether it is faster than what was so many times as fast in the same turns: in each, and notably."""
        ratios = [mine / other for mine, other in zip(self.turns, turns, strict=False)]
        return statistics.median(ratios) > NO_GAIN and min(ratios) > 1


class JudgedChange(Struct, frozen=True):
    """A change with what was expected of it by the record of other families; None for why_absent. place: among what is
    advised, from 0 on.
    """

    tried: TriedChange
    ceiling: float | None
    expected: Expected | None
    why_absent: str = ""
    place: int | None = None

    @property
    def error(self) -> float | None:
        """Log of measured over expected gain."""
        return math.log(self.tried.gain / self.expected.factor) if self.expected else None

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds what was measured. An end at the ceiling holds what the floor allows."""
        if not self.expected:
            return None
        end = self.expected.high / (HOLDS if self.expected.high == self.ceiling else 1.0)
        return self.expected.low <= self.tried.gain <= end


def family(workload: str) -> str:
    """Return the family of a workload, which is left out as a whole."""
    return next((name for prefix, name in FAMILIES.items() if workload.startswith(prefix)), workload)


def tried(workload: str, before: str, change: dict[str, Any], name: str, session: ReadSession, alternatives: bool,
          advising: ReadSession | None = None) -> TriedChange:
    """Return a change of a recording. change: its side in pairs.json, with its mechanisms, and its speedup or that of
    each turn. advising: whose advice gives it its place; by default the session's own.
    """
    work, step, samples = session.work, session.step, change["samples_per_step"]
    mechanisms = kinds(work, change["mechanisms"], samples)
    least, recorded, why = MechanismFloor(" + ".join(mechanisms), None), None, ""
    turns = change.get("turns", (change["speedup"],))
    try:
        least, recorded = _recorded(workload, before, name, mechanisms, work, step, samples, change)
    except Absent as reason:
        why = str(reason)
    return TriedChange(family(workload), before, name, mechanisms, step, least, turns,
                       change.get("expected") == "no gain", alternatives, recorded, why, advising or session, samples)


def _recorded(workload: str, before: str, name: str, mechanisms: tuple[str, ...], work: StepWork, step: StepTime,
              samples: float, change: dict[str, Any]) -> tuple[MechanismFloor, RecordedChange]:
    """Return the floor of a change and what the track record keeps of it. Raise Absent where there is none."""
    if unknown := [mechanism for mechanism in mechanisms if mechanism not in MECHANISMS]:
        raise Absent(f"no floor is declared for {', '.join(unknown)}")
    changes = meant(work, mechanisms, samples, change.get("truth", {}).get("micro_batches", 1))
    least = floor(work, changes)
    if least.floor_ns is None:
        raise Absent(least.why_absent)
    changed = changed_step(work, step, changes, samples)
    return least, RecordedChange(family(workload), before, name, mechanisms, step.ns, step.ns / change["speedup"],
                                 least.floor_ns, changed)


def all_tried(captures: Path, changes: Path, settings: Settings, untimed: bool = False) -> Iterator[TriedChange]:
    """Yield the changes of both recordings. Those without times, or with times of a profiled process, are left out.

    untimed: whether advice is that of sessions without a step time.
    """
    for pair in json.loads((captures / "pairs/pairs.json").read_text())["pairs"]:
        if pair["timed_without_profiler"]:
            folder = captures / "pairs" / pair["pair"]
            session = _read(folder, pair["before"]["step_ms"], settings)
            samples = pair["after"]["samples_per_step"] / pair["before"]["samples_per_step"]
            yield tried(pair["workload"], pair["pair"], pair | {"samples_per_step": samples}, pair["change"], session,
                        False, _read(folder, None, settings) if untimed else None)
    for before in json.loads((changes / "pairs.json").read_text())["befores"]:
        timed = [side for side in before["alternatives"] if side.get("speedup")]
        if timed:
            session = _read(changes / before["name"], before["before"]["step_ms"], settings)
            advising = _read(changes / before["name"], None, settings) if untimed else None
            yield from (tried(before["workload"], before["name"], side | _judged_by(before["before"], side),
                              side["name"], session, True, advising) for side in timed)


def _judged_by(before: dict[str, Any], side: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a side that depend on the side before."""
    turns = gains(before, side)
    return {"turns": turns, "speedup": statistics.median(turns), "samples_per_step": samples_at_once(before, side)}


def gains(before: dict[str, Any], side: dict[str, Any]) -> tuple[float, ...]:
    """Return how many times faster an alternative is per sample, by turns."""
    clock = "wall_ms" if PREFETCHING.name in side["mechanisms"] else "event_ms"
    samples = side["samples_per_step"] / before["samples_per_step"]
    return tuple(samples * was[clock] / became[clock]
                 for was, became in zip(before["repetitions"], side["repetitions"], strict=False))


def _read(folder: Path, step_ms: float | None, settings: Settings) -> ReadSession:
    """Return the session of a before; without a step time where that is None."""
    session = pipeline.import_captures([folder / "before.trace.json.gz"], settings,
                                       latency=None if step_ms is None else str(step_ms)).session
    facts = WorkloadFacts.of(documents.read(session, layout.finding(FACTS))).values
    unprofiled = None if step_ms is None else Unprofiled(1, step_ms, "pairs.json")
    return ReadSession(*step_work.find(session, unprofiled), readings.stored(session), facts)


def judged(changes: Sequence[TriedChange]) -> list[JudgedChange]:
    """Return every change with what the record of the other families expects of it."""
    others = {name: track_record.learn([change.recorded for change in changes
                                        if change.recorded and change.family != name])
              for name in {change.family for change in changes}}
    sessions = {change.before: (change.session, others[change.family]) for change in changes if change.session}
    samples = {name: max(change.samples for change in changes if change.before == name) for name in sessions}
    advised = {before: session.advised(record, samples[before] if samples[before] > 1 else math.inf)
               for before, (session, record) in sessions.items()}
    return [replace(_judged(change, others[change.family]), place=_place(change, advised.get(change.before, [])))
            for change in changes]


def _place(change: TriedChange, advised: Sequence[str]) -> int | None:
    """Return the place of the first advice that a change follows: of one of its kinds, where each of them is advised or
    goes with one that is, or of one that is all of its kinds together. None where there is neither.
    """
    tried = {FOLLOWS.get(kind, kind) for kind in change.mechanisms}
    places = {name: place for place, name in enumerate(advised) if name in tried}
    advised_kinds = {kind for name in places for kind in (name, *MECHANISMS[name].parts)}
    singly = [*places.values()] if tried <= advised_kinds else []
    whole = [place for place, name in enumerate(advised) if (parts := MECHANISMS[name].parts)
             and parts[0] in tried and len(tried) > 1 and tried <= set(parts)]
    return min([*singly, *whole], default=None)


def _judged(change: TriedChange, record: TrackRecord) -> JudgedChange:
    most = ceiling(change.step, change.floor) if change.floor.floor_ns else None
    if change.recorded is None:
        return JudgedChange(change, most, None, change.why_absent)
    return JudgedChange(change, most, expectations.expected(change.step, change.floor, change.recorded.changed,
                                                            change.mechanisms, record))


def claims(changes: Sequence[JudgedChange]) -> Iterator[Claim]:
    """Yield what expected gains must hold, of families that their record has not seen."""
    known = [change for change in changes if change.expected]
    yield from _intervals("all changes", known, True)
    for own, title in ((True, "mechanisms with a record of their own"), (False, "other mechanisms")):
        yield from _intervals(title, [change for change in known if change.expected and change.expected.own is own])
    errors = [abs(change.error) for change in known if change.error is not None]
    middle = statistics.median(errors)
    yield Claim("error of log gain", f"median <= {MOST_ERROR:g}",
                f"median {middle:.3f}, mean {statistics.mean(errors):.3f} of {len(errors)}", middle <= MOST_ERROR)
    unchanged = [change for change in changes if change.tried.gain <= NO_GAIN]
    yield _controls("of the shared pairs", [change for change in unchanged if not change.tried.alternatives])
    yield _controls("meant to gain nothing", [change for change in unchanged if change.tried.useless])
    yield from _kept_promises([change for change in changes if change.place is not None])
    yield from _rankings("all alternatives", changes, True)
    yield from _rankings("alternatives with an expected gain", known)
    yield from _rankings("alternatives with as many samples in a step",
                         [change for change in changes if "larger_batch" not in change.tried.mechanisms])


def _intervals(title: str, known: Sequence[JudgedChange], barred: bool = False) -> Iterator[Claim]:
    held = sum(bool(change.covered) for change in known)
    low, high = exact_share(held, len(known))
    widths = [math.log(change.expected.high / change.expected.low) for change in known if change.expected]
    yield Claim(f"gains in their 90 % interval, {title}", f"95 % interval holds {LEVEL:g}", f"{held} of {len(known)} = "
                f"{held / max(1, len(known)):.3f}, {low:.3f} .. {high:.3f}; median width x "
                f"{math.exp(statistics.median(widths or [0.0])):.2f}", low <= LEVEL <= high if barred else None)


def is_promised(change: JudgedChange) -> bool:
    """Return whether a change is advised, and no part of its interval says that it may gain nothing."""
    return change.place is not None and not (change.expected and change.expected.may_gain_nothing)


def _controls(title: str, unchanged: Sequence[JudgedChange]) -> Claim:
    """Return of how many changes that gained nothing the advice promises nothing."""
    promised = [_name(change) for change in unchanged if is_promised(change)]
    return Claim(f"no-change controls of which at most {LEAST_GAIN:g} x is promised, {title}", "all",
                 f"{len(unchanged) - len(promised)} of {len(unchanged)}" + "".join(map(" {}".format, promised)),
                 bool(unchanged) and not promised)


def _kept_promises(advised: Sequence[JudgedChange]) -> Iterator[Claim]:
    """Yield how many of the advised changes gained nothing, among those with a promise and among the others."""
    for title, promised in (("with a promise", True), ("that may gain nothing, as the advice says", False)):
        of_kind = [change for change in advised if is_promised(change) is promised]
        empty = [_name(change) for change in of_kind if change.tried.gain <= NO_GAIN]
        yield Claim(f"advised changes that gained nothing, {title}", "",
                    f"{len(empty)} of {len(of_kind)}" + "".join(map(" {}".format, empty)), None)


def _name(change: JudgedChange) -> str:
    return f"{change.tried.before.partition('__')[0]}/{change.tried.change}"


def by_before(changes: Iterable[JudgedChange]) -> dict[str, list[JudgedChange]]:
    """Return the alternatives of each before that has some."""
    befores: dict[str, list[JudgedChange]] = {}
    for change in changes:
        if change.tried.alternatives:
            befores.setdefault(change.tried.before, []).append(change)
    return befores


def order(changes: Sequence[JudgedChange]) -> list[JudgedChange]:
    """Return the alternatives that are advised, best first; of two in one place what is tried first, then the one that
    is expected to gain more.
    """
    places = [(change.place, any(kind in FOLLOWS for kind in change.tried.mechanisms),
               -change.expected.factor if change.expected else 0.0, index, change)
              for index, change in enumerate(changes) if change.place is not None]
    return [change for *_, change in sorted(places, key=lambda place: place[:-1])]


def share_of_best(changes: Sequence[JudgedChange]) -> float:
    """Return the gain of what is advised first over the best that was recorded; nothing advised gains nothing."""
    best = max(1.0, *(change.tried.gain for change in changes))
    advised = order(changes)
    return (advised[0].tried.gain if advised else 1.0) / best


def better_than_first(changes: Sequence[JudgedChange]) -> list[JudgedChange]:
    """Return the alternatives that were faster than what is advised first, or than the before where nothing is."""
    advised = order(changes)
    first = advised[0].tried.turns if advised else (1.0,) * max(len(change.tried.turns) for change in changes)
    return [change for change in changes if change.tried.beats(first)]


def _rankings(title: str, changes: Sequence[JudgedChange], barred: bool = False) -> Iterator[Claim]:
    befores = by_before(changes)
    shares = [share_of_best(alternatives) for alternatives in befores.values()]
    first = sum(not better_than_first(alternatives) for alternatives in befores.values())
    yield Claim(f"first advice is the best, {title}", ">= 80 %", _share(first, len(shares)),
                first >= 0.8 * len(shares) if barred else None)
    yield Claim(f"first advice has the largest figure, {title}", "", _share(shares.count(1.0), len(shares)),
                None)
    near = sum(share >= NEAR_BEST for share in shares)
    yield Claim(f"first advice gains 90 % of the best, {title}", ">= 80 %", _share(near, len(shares)),
                near >= 0.8 * len(shares) if barred else None)
    if barred:
        yield _useless("that gained nothing", befores, lambda change: change.tried.gain <= NO_GAIN, False)
        yield _useless("that was meant to gain nothing, and did not",
                       befores, lambda change: change.tried.useless and change.tried.gain <= NO_GAIN, True)


def _useless(title: str, befores: dict[str, list[JudgedChange]], is_useless: Any, barred: bool) -> Claim:
    listed = {name: [change for change in changes if is_useless(change)] for name, changes in befores.items()}
    advised = [f"{name}/{change.tried.change}" for name, changes in befores.items()
               for change in order(changes) if change in listed[name] and (change.place or 0) < FIRST]
    return Claim(f"an alternative {title} is among the first {FIRST}", "never" * barred, f"{len(advised)} of "
                 f"{sum(map(len, listed.values()))} in {sum(map(bool, listed.values()))} befores"
                 + "".join(f" {name}" for name in advised), not advised if barred else None)


def _share(count: int, total: int) -> str:
    low, high = exact_share(count, total)
    return f"{count} of {total} = {count / max(1, total):.2f}, {low:.2f} .. {high:.2f}"


def line(change: JudgedChange) -> str:
    """Return a change's line of the table."""
    tried = change.tried
    head = f"{tried.before.split('__')[0]:<24.23}{tried.change:<28.27}{' + '.join(tried.mechanisms):<30.29}"
    if change.expected is None:
        return f"{head}{'':>9}{'n/a':>9}{'':>18}{tried.gain:>9.2f}         {change.why_absent}"
    found, most = change.expected, f"{change.ceiling:.2f}" if change.ceiling else "-"
    return (f"{head}{most:>9}{found.factor:>9.2f}{found.low:>9.2f}{found.high:>9.2f}{tried.gain:>9.2f}"
            f"{change.error:>+8.2f}  {'' if change.covered else 'OUTSIDE'}")


def document(record: TrackRecord) -> dict[str, Any]:
    """Return the track record as it ships."""
    return {"source": "python -m benchmarks.advice_expected --write",
            "what": "log(measured / predicted) of the time after recorded changes, an H100 and an H200, no profiler",
            "habits": {name: round(value, 4) for name, value in as_dict(record.habits).items()},
            "residuals": [as_dict(residual) | {"log_residual": round(residual.log_residual, 4)}
                          for residual in record.residuals]}


def write(record: TrackRecord, path: Path = TABLE) -> None:
    """Write the track record that ships, a residual a line."""
    whole = document(record)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in whole.pop("residuals"))
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in whole.items())
    path.write_text(f"{{\n{head},\n \"residuals\": [\n{rows}\n ]\n}}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the claims; 1 where one misses its bar. arguments: of the command line by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the track record that ships")
    parser.add_argument("--untimed", action="store_true", help="rank by the advice of sessions without a step time")
    parser.add_argument("--json", type=Path, help="write the claims here too")
    chosen = parser.parse_args(arguments)
    changes = RECORDED if RECORDED.exists() else Path(os.environ["AACO_CHANGES"])
    with tempfile.TemporaryDirectory(prefix="aaco-expected-") as sessions:
        settings = resolve(overrides={"storage": {"sessions_dir": sessions}}, environment={})
        found = list(all_tried(Path(os.environ.get("AACO_CAPTURES", "../shared/data")), changes, settings,
                               chosen.untimed))
    return report(found, chosen.write, chosen.json)


def report(found: Sequence[TriedChange], writes: bool = False, json_path: Path | None = None) -> int:
    """Print the table and the claims of these changes; 1 where one misses its bar."""
    print(f"{'before':<24}{'change':<28}{'mechanism':<30}{'ceiling':>9}{'expected':>9}{'90 % interval':>18}"
          f"{'measured':>9}{'error':>8}")
    judgements = judged(found)
    print("\n".join(line(change) for change in judgements), end="\n\n")
    for name, alternatives in by_before(judgements).items():
        advised = [f"{change.tried.change} {change.expected.factor if change.expected else math.nan:.2f} "
                   f"({change.tried.gain:.2f})" for change in order(alternatives)]
        best = max(alternatives, key=lambda change: change.tried.gain).tried
        print(f"{name:<24} {share_of_best(alternatives):.2f} of the best, {best.change} {best.gain:.2f}: "
              f"{', '.join(advised) or f'nothing gains {LEAST_GAIN:g} x'}")
    record = track_record.learn([change.recorded for change in found if change.recorded])
    stated = list(claims(judgements))
    print(f"\na call of the host {record.habits.call_ns / 1e3:.1f} us, {record.habits.saved_share:.2f} of it saved; "
          f"{len(record.residuals)} changes of {len({row.workload for row in record.residuals})} families")
    for claim in stated:
        print(f"{claim.claim:<74} {claim.bar:<24} {claim.measured:<64} {claim.verdict}")
    if writes:
        write(record)
    if json_path:
        json_path.write_text(json.dumps([as_dict(claim) for claim in stated], indent=1) + "\n")
    return int(any(claim.met is False for claim in stated))


if __name__ == "__main__":
    sys.exit(main())
