"""What a switch costs with the BPF tracer attached: `python -m benchmarks.switch_cost`, and a part of benchmarks.host.

Two processes hand each other a byte on one CPU, in bursts under SCHED_FIFO, so that every byte is two switches. In a
sitting the same two play short rounds under every mode, in random order, again and again; a round is paired with the
mean of the two untraced ones of its turn (off and control), and measured by the CPU time of both processes. Each
sitting loads the programs anew: where the kernel puts their code alone moves the figure by some ns. The estimate is the
median of all paired differences, its 95 % interval a bootstrap over whole sittings (seeded). Sittings go on until the
intervals are narrow, wherever they lie, or to a limit. A bar holds if the upper end of the interval is within it.

Modes: control, paired with off alone, so that its interval should hold 0; empty, a program that does
nothing, which is what any program at a switch costs on this kernel; timed, the same while the kernel takes the time of
BPF programs (bpf_stats); filtered, a stranger is traced; family, a stranger with a child; totals and events, the
players themselves are traced, and two others play. "By the kernel" is what bpf_stats says of a run of the program at
a switch: it holds a reading of the clock, which is all that it says of the empty one; "net" is without that.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from aaco.collectors.host import bpf, bpf_scheduler
from aaco.collectors.host.bpf_ring import BpfRing
from aaco.core.host import Host
from aaco.core.records import as_dict
from benchmarks.programs import IDLE, PARENT, PARTNERS, tell, waiting

TURNS, ROUNDS = 2_000, 12  # bytes there and back in a round; rounds of each mode in a sitting
LEAST, NARROW_NS, LIMIT_S = 16, 3.0, 180.0  # sittings; half an interval of the filtered modes; all sittings
RESAMPLES, SEED = 4_000, 20
FILTERED, TRACED = ("filtered", "family"), ("totals", "events")
BARS_NS = dict.fromkeys(FILTERED, 100) | dict.fromkeys(TRACED, 1000)
_RAW_TRACEPOINT = 17  # BPF_PROG_TYPE_RAW_TRACEPOINT of include/uapi/linux/bpf.h
_RETURN_0 = bytes.fromhex("b700000000000000" "9500000000000000")  # r0 = 0; exit
Mode = Callable[[], AbstractContextManager[object]]  # something is attached while it is entered
Runs = Callable[[], tuple[int, int, int]]  # ns and number of the runs of the program at a switch, and refused ones
Differences = npt.NDArray[np.float64]


class Cost(Struct, frozen=True):
    """ns a switch: the median of the paired differences and its interval; by_kernel: null where it was not weighed."""

    ns: float
    low: float
    high: float
    by_kernel: float | None = None

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2


class Game(Struct, frozen=True):
    """Two players, the modes in which they play, and the kernel's account of those that have a program."""

    players: subprocess.Popen[str]
    modes: dict[str, Mode]
    runs: dict[str, Runs]

    def play(self, mode: Mode) -> float:
        """CPU ns per switch of one round."""
        with mode():
            cpu_ns, switches = map(int, tell(self.players).split())
        return cpu_ns / switches

    def rounds(self, chance: random.Random) -> dict[str, Differences]:
        """By mode: CPU ns per switch of each round, beyond the untraced rounds of its turn; off: as it is."""
        turns = [{mode: self.play(self.modes[mode]) for mode in chance.sample(list(self.modes), len(self.modes))}
                 for _ in range(ROUNDS)]
        taken = {mode: np.array([turn[mode] for turn in turns]) for mode in self.modes}
        untraced = (taken["off"] + taken["control"]) / 2
        compared_with = {"off": 0, "control": taken["off"]}
        return {mode: values - compared_with.get(mode, untraced) for mode, values in taken.items()}

    def weigh(self, mode: str) -> float:
        """ns of a run of the program at a switch, by the kernel's account, over one round."""
        before_ns, before, _ = self.runs[mode]()
        self.play(lambda: _timed(self.modes[mode]))
        after_ns, after, _ = self.runs[mode]()
        return (after_ns - before_ns) / (after - before)


def measure() -> dict[str, Any]:
    """The cost of each mode; how many sittings there were, how long they took, and whether they met the width asked."""
    began, chance = time.monotonic(), random.Random(SEED)
    extra, weights = defaultdict[str, list[Differences]](list), defaultdict[str, list[float]](list)
    while True:
        begins = len(extra["filtered"]) < LEAST  # afterwards, only what is near its bar
        for sitting in (bystanders, traced) if begins else (bystanders,):
            with sitting() as game:
                for mode, differences in game.rounds(chance).items():
                    extra[mode].append(differences)
                for mode in game.runs if begins else ():
                    weights[mode].append(game.weigh(mode))
        untraced = float(np.median(extra["off"]))
        costs = {mode: cost(np.array(values), weights[mode]) for mode, values in extra.items() if mode != "off"}
        spent, sittings = time.monotonic() - began, len(extra["filtered"])
        narrow = all(costs[mode].half_width <= NARROW_NS for mode in FILTERED)
        if sittings >= LEAST and (narrow or spent > LIMIT_S):
            return {"costs": costs, "untraced_ns": untraced, "sittings": sittings, "pairs": sittings * ROUNDS,
                    "spent_s": spent, "narrow": narrow}


@contextmanager
def bystanders() -> Iterator[Game]:
    """The players are not traced: another is, or nobody."""
    with ExitStack() as opened:
        players, stranger, parent = (opened.enter_context(waiting(*code)) for code in (
            (PARTNERS, str(TURNS)), (IDLE,), (PARENT,)))
        filtered, family = (opened.enter_context(_loaded(process, events=True)) for process in (stranger, parent))
        empty = opened.enter_context(_empty())
        tell(players)
        with _attached(family):
            tell(parent)
        yield Game(players, {
            "off": nullcontext, "control": nullcontext, "empty": lambda: _at_switches(empty),
            "timed": lambda: _timed(lambda: _at_switches(empty)), "filtered": lambda: _attached(filtered),
            "family": lambda: _attached(family)},
            {"empty": lambda: bpf._read_runs(empty), "filtered": _runs(filtered), "family": _runs(family)})


@contextmanager
def traced() -> Iterator[Game]:
    """The players are traced, both: the tracer sees the first start the second."""
    with waiting(PARTNERS, str(TURNS)) as players, _loaded(players, events=False) as totals, \
            _loaded(players, events=True) as events, BpfRing(events, bpf_scheduler.RING_BYTES) as ring:
        with _attached(totals), _attached(events):
            tell(players)
        yield Game(players, {"off": nullcontext, "control": nullcontext, "totals": lambda: _attached(totals),
                             "events": lambda: _emptied(events, ring)},
                   {"totals": _runs(totals), "events": _runs(events)})
        assert not any(lost for _, lost, *_ in events.per_cpu("accounts")), "a record that finds no room costs less"


def cost(differences: Differences, by_kernel: list[float]) -> Cost:
    """Of differences, shape (sittings, rounds). Rounds of one sitting are alike, so sittings are drawn as a whole."""
    drawn = np.random.default_rng(SEED).integers(0, len(differences), (RESAMPLES, len(differences)))
    medians = np.median(differences[drawn].reshape(RESAMPLES, -1), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    weight = float(np.median(by_kernel)) if by_kernel else None
    return Cost(float(np.median(differences)), float(low), float(high), weight)


@contextmanager
def _attached(feature: bpf.Feature) -> Iterator[None]:
    feature.attach()
    try:
        yield
    finally:
        feature.detach()


@contextmanager
def _emptied(feature: bpf.Feature, ring: BpfRing) -> Iterator[None]:
    with _attached(feature):
        yield
    with Path("/dev/null").open("wb", buffering=0) as nowhere:
        ring.drain(nowhere)


def _loaded(process: subprocess.Popen[str], *, events: bool) -> bpf.Feature:
    return bpf.Feature(bpf_scheduler.FEATURE, bpf_scheduler.SETTINGS.pack(process.pid, events, 1),
                       {"ring": bpf_scheduler.RING_BYTES})


def _runs(feature: bpf.Feature) -> Runs:
    return lambda: feature.runs()["on_switch"]


@contextmanager
def _empty() -> Iterator[int]:
    """A program that does nothing, called by the same functions of the kernel as ours."""
    code, license_text = ctypes.create_string_buffer(_RETURN_0), ctypes.create_string_buffer(b"GPL")
    program, _ = bpf._bpf(bpf._PROG_LOAD, struct.pack(
        "<2I2Q2IQ2I16s", _RAW_TRACEPOINT, len(_RETURN_0) // 8, ctypes.addressof(code), ctypes.addressof(license_text),
        0, 0, 0, 0, 0, b"empty").ljust(120, b"\0"))
    with _closed(program):
        yield program


def _at_switches(program: int) -> AbstractContextManager[object]:
    name = ctypes.create_string_buffer(b"sched_switch")
    return _closed(bpf._bpf(bpf._RAW_TRACEPOINT_OPEN, struct.pack("<QIxxxx", ctypes.addressof(name), program))[0])


@contextmanager
def _timed(mode: Mode) -> Iterator[None]:
    with _closed(bpf.statistics()), mode():
        yield


@contextmanager
def _closed(handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(handle)


def table(found: dict[str, Any]) -> str:
    """The costs, each with its interval, what the kernel says, and its bar."""
    costs: dict[str, Cost] = found["costs"]
    accounting, clock = costs["timed"].ns - costs["empty"].ns, costs["empty"].by_kernel
    return "\n".join([
        f"{'ns a switch, beyond untraced':<34}{'extra CPU':>12}{'95 % interval':>18}{'by the kernel':>15}{'net':>6}",
        *(f"  {mode:<32}{costs[mode].ns:>12.0f}{f'{costs[mode].low:.0f} .. {costs[mode].high:.0f}':>18}"
          f"{_weight(costs, mode)}{held(costs[mode], mode)}" for mode in ("control", "empty", "timed", *BARS_NS)),
        f"  medians of {found['pairs']} pairs in {found['sittings']} sittings, {found['spent_s']:.0f} s; untraced "
        f"{found['untraced_ns']:.0f} ns a switch",
        f"  intervals of the filtered {'within' if found['narrow'] else 'NOT within'} +-{NARROW_NS:.0f} ns "
        f"{'' if found['narrow'] else f'after {LIMIT_S:.0f} s: the machine is too busy'}",
        f"  the kernel's account of BPF programs itself costs {accounting:.0f} ns a run; {clock:.0f} of them "
        "count as the program's"])


def _weight(costs: dict[str, Cost], mode: str) -> str:
    weight, clock = costs[mode].by_kernel, costs["empty"].by_kernel
    if weight is None or clock is None:
        return f"{'':>21}"
    return f"{weight:>15.0f}{weight - clock:>6.0f}"


def held(row: Cost, mode: str) -> str:
    """Whether the mode's bar holds, in words; empty where it has none."""
    if mode not in BARS_NS:
        return ""
    holds = row.high <= BARS_NS[mode]
    return f"  the upper end is {'<=' if holds else '>'} {BARS_NS[mode]} ns: {'met' if holds else 'missed'}"


def main() -> None:
    """Print the table and the JSON."""
    if reason := bpf_scheduler.why_not(Host()):
        sys.exit(f"BPF cannot be loaded here: {reason}")
    found = measure()
    print(table(found))
    print(json.dumps(found, default=as_dict))


if __name__ == "__main__":
    main()
