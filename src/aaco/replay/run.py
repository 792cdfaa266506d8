"""A replay from outside its process: the request, the processes it takes, and the result with its verdict."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from aaco.calibration import child
from aaco.core.errors import AacoError
from aaco.core.records import as_dict
from aaco.replay import capture as captures
from aaco.replay import steering
from aaco.replay.capture import KernelCapture
from aaco.replay.documents import RegionUse
from aaco.replay.engine import CACHE_MODES, CacheMode, ReplayRequest
from aaco.replay.fidelity import Fidelity, ReplayCheck, judge, may_print_time, other_uses, unproved_state

LIMIT_S = 120.0
MOST_TRIES = 16  # processes that a replay may lose to addresses that are taken, and to kernels that fail when poisoned
EMULATED = "an emulator ran it, whose time says nothing of a device"
METHOD = "each region's bytes inverted before a launch, and every region compared with its state after the captured one"


class ReplayResult(Struct, frozen=True):
    """What a replay measured. times_us: of the iterations, less empty_pair_us; empty where no_time says why.

    regions: without the module's variables, which the driver puts where it likes, and which are located by their
    names. substituted: regions of the host that are device memory here. processes: how many it took, taken of
    them because addresses were not free. pid: of the last one.
    """

    symbol: str
    device: str
    request: ReplayRequest
    fidelity: Fidelity
    times_us: tuple[float, ...]
    no_time: str | None
    empty_pair_us: float
    regions: int
    exact_addresses: int
    substituted: int
    variables: int
    bytes: int
    uses: tuple[RegionUse, ...]
    processes: int
    taken: int
    pid: int
    seconds: float

    @property
    def median_us(self) -> float | None:
        """Return the median time, None where there is none."""
        return statistics.median(self.times_us) if self.times_us else None


@contextmanager
def child_command(capture: KernelCapture, request: ReplayRequest, code: Path | None = None,
                  measured: Iterable[RegionUse] = ()) -> Iterator[list[str]]:
    """Yield the module and arguments of Python for one replay.

    Its first act is to hold the addresses of the host's memory, and no others: CUDA's driver never gives a block that
    was mapped before, though it is free again (H100, driver 580: it gives the next 32 MiB).
    measured: of regions that need no measuring again. Raise BadCapture.
    """
    with tempfile.NamedTemporaryFile("w", prefix="aaco-replay-", suffix=".json") as file:
        json.dump({"capture": str(capture.path), "code": str(code) if code else None, "how": as_dict(request),
                   "measured": [use.model_dump() for use in measured]}, file)
        file.flush()
        yield ["aaco.replay.holding", json.dumps(steering.held(capture)), "aaco.replay.child", file.name]


class _Attempts:
    """The lines of a replay's processes, and what is measured from one to the next."""

    def __init__(self, capture: KernelCapture, code: Path | None, request: ReplayRequest, limit_s: float) -> None:
        self.measured = {use.base: use for use in capture.roles.regions} if capture.roles else {}
        self.ready: dict[str, Any] = {}
        self.times: list[float] = []
        self.checks: list[ReplayCheck] = []
        self.processes, self.taken, self.seconds = 0, 0, 0.0
        self._capture, self._code, self._request, self._limit_s = capture, code, request, limit_s

    def run(self) -> None:
        """Run processes until one comes to its end. Raise the error of the last one."""
        for left in reversed(range(MOST_TRIES)):
            self.processes += 1
            trying: int | None = None
            taken = False
            try:
                for line in self._lines():
                    trying = line.get("trying", trying)
                    taken = taken or "taken" in line
                    if "use" in line or "measured" in line:
                        trying = None
                    self._take(line)
                return
            except AacoError:
                self.taken += taken
                if not left or (trying is None and not taken):
                    raise
                if trying is not None:
                    self._forget(trying)

    def _forget(self, base: int) -> None:
        """Take down that the launch fails or hangs with this region inverted, so that it is not tried again."""
        region = next(region for region in self._capture.regions if region.base == base)
        written: Literal["some", "none"] = "some" if self._capture.changed_pages(region) else "none"
        self.measured[base] = RegionUse(base=base, read=True, survives=False, written=written)

    def _lines(self) -> Iterator[dict[str, Any]]:
        with child_command(self._capture, self._request, self._code, self.measured.values()) as (module, *arguments):
            yield from child.run(module, arguments, {}, self._limit_s, "replay")

    def _take(self, line: dict[str, Any]) -> None:
        if "ready" in line:
            self.ready, self.times, self.checks = line["ready"], [], []
        elif "use" in line:
            use = RegionUse(**line["use"])
            self.measured[use.base] = use
        elif "time_us" in line:
            self.times.append(line["time_us"])
            if check := line["check"]:
                for counts in ("differing", "wrong"):
                    check[counts] = {int(base): count for base, count in check[counts].items()}
                self.checks.append(ReplayCheck(**check))
        elif "seconds" in line:
            self.seconds += line["seconds"]


def replay(path: Path, request: ReplayRequest, code: Path | None = None, limit_s: float = LIMIT_S) -> ReplayResult:
    """Return the result of a replay in processes of its own. Raise UsageError, BadCapture, Missing, AacoError.

    code: in place of the capture's own, which is used to measure what the launch must write. limit_s: of each process;
    a kernel that hangs ends with it.
    """
    with captures.open(path) as capture:
        capture.require_device()
        recorded = list(capture.roles.regions) if capture.roles else []
        attempts = _Attempts(capture, code, request, limit_s)
        attempts.run()
        uses = tuple(attempts.measured[region.base] for region in capture.regions)
        if not recorded:
            captures.remember_roles(capture, METHOD, uses)
        gaps = other_uses(recorded, uses)
        if not request.recopy:
            changed = {region.base for region in capture.regions if capture.changed_pages(region)}
            gaps += unproved_state(uses, attempts.checks, changed)
        fidelity = judge(attempts.checks, (0, request.iterations - 1), gaps)
        return _result(capture, request, attempts, uses, fidelity)


def _result(capture: KernelCapture, request: ReplayRequest, attempts: _Attempts, uses: tuple[RegionUse, ...],
            fidelity: Fidelity) -> ReplayResult:
    ready, launch = attempts.ready, capture.launch
    no_time = None if may_print_time(fidelity) else "it would not be that of the captured work"
    no_time = EMULATED if capture.is_amd else no_time
    if used := [use.base for use in uses if use.base in ready["substituted"] and (use.read or use.written != "none")]:
        no_time = no_time or (f"memory of the host at {used[0]:#x}, which the kernel uses, lies between memory of the "
                              "device, which took its place")
    return ReplayResult(launch.demangled or launch.symbol, ready["device"], request, fidelity,
                        () if no_time else tuple(attempts.times), no_time, ready["empty_pair_us"], ready["regions"],
                        ready["exact_addresses"], len(ready["substituted"]), ready["variables"], ready["bytes"], uses,
                        attempts.processes, attempts.taken, ready["pid"], attempts.seconds)


def replay_each_cache(path: Path, result: ReplayResult, code: Path | None = None) -> dict[CacheMode, float]:
    """Return the median time of a replay in each state of the caches, us, from this result and replays like it.

    A state in which the replay is not faithful has no time. Raise as replay() does.
    """
    results = [result if mode == result.request.cache else replay(path,
                                                                  structs.replace(result.request, cache=mode), code)
               for mode in CACHE_MODES]
    return {result.request.cache: result.median_us for result in results if result.median_us is not None}
