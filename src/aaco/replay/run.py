"""A replay from outside its process: the request, the processes it takes, and the result with its verdict."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aaco.calibration import child
from aaco.core.errors import AacoError
from aaco.replay import capture as captures
from aaco.replay.documents import RegionUse
from aaco.replay.engine import CACHE_MODES, CacheMode, ReplayRequest
from aaco.replay.fidelity import Fidelity, ReplayCheck, judge, may_print_time, other_uses

LIMIT_S = 120.0
MOST_TRIES = 16  # processes that a replay may lose to addresses that are taken, and to kernels that fail when poisoned
METHOD = "each region's bytes inverted before a launch, and every region compared with its state after the captured one"


@dataclass(frozen=True)
class ReplayResult:
    """What a replay found. times_us: of the iterations, less empty_pair_us; empty where the verdict forbids a time.

    regions: without the module's variables, which the driver puts where it likes, and which are found by their names.
    """

    symbol: str
    device: str
    request: ReplayRequest
    fidelity: Fidelity
    times_us: tuple[float, ...]
    empty_pair_us: float
    regions: int
    exact_addresses: int
    variables: int
    bytes: int
    uses: tuple[RegionUse, ...]
    processes: int
    seconds: float

    @property
    def median_us(self) -> float | None:
        """Return the median time, None where there is none."""
        return statistics.median(self.times_us) if self.times_us else None


class _Attempts:
    """The lines of a replay's processes, and what is known from one to the next."""

    def __init__(self, capture: Path, code: Path | None, request: ReplayRequest, known: Mapping[int, RegionUse],
                 changed: frozenset[int], limit_s: float) -> None:
        self.known, self.changed, self.limit_s = dict(known), changed, limit_s
        self.ready: dict[str, Any] = {}
        self.times: list[float] = []
        self.checks: list[ReplayCheck] = []
        self.processes, self.seconds = 0, 0.0
        self._request = {"capture": str(capture), "code": str(code) if code else None, "how": asdict(request)}

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
                if not left or (trying is None and not taken):
                    raise
                if trying is not None:
                    self.known[trying] = RegionUse(base=trying, read=True, survives=False,
                                                   written="some" if trying in self.changed else "none")

    def _lines(self) -> Iterator[dict[str, Any]]:
        known = [use.model_dump() for use in self.known.values()]
        request = json.dumps(self._request | {"known": known})
        yield from child.run("aaco.replay.child", [request], {}, self.limit_s, "replay")

    def _take(self, line: dict[str, Any]) -> None:
        if "ready" in line:
            self.ready, self.times, self.checks = line["ready"], [], []
        elif "use" in line:
            use = RegionUse(**line["use"])
            self.known[use.base] = use
        elif "time_us" in line:
            self.times.append(line["time_us"])
            if check := line["check"]:
                check["differing"] = {int(base): count for base, count in check["differing"].items()}
                self.checks.append(ReplayCheck(**check))
        elif "seconds" in line:
            self.seconds += line["seconds"]


def replay(path: Path, request: ReplayRequest, code: Path | None = None, limit_s: float = LIMIT_S) -> ReplayResult:
    """Return the result of a replay in processes of its own. Raise UsageError, BadCapture, Missing, AacoError.

    code: in place of the capture's own, which is used to measure what the launch must write. limit_s: of each process;
    a kernel that hangs ends with it.
    """
    with captures.open(path) as capture:
        known = {use.base: use for use in capture.roles.regions} if capture.roles else {}
        changed = frozenset(region.base for region in capture.regions if capture.changed_pages(region))
        attempts = _Attempts(path, code, request, known, changed, limit_s)
        attempts.run()
        uses = tuple(attempts.known[region.base] for region in capture.regions)
        if not known:
            captures.remember_roles(capture, METHOD, uses)
        fidelity = judge(attempts.checks, (0, request.iterations - 1), other_uses(list(known.values()), uses))
        return ReplayResult(capture.launch.demangled or capture.launch.symbol, attempts.ready["device"], request,
                            fidelity,
                            tuple(attempts.times) if may_print_time(fidelity) else (), attempts.ready["empty_pair_us"],
                            attempts.ready["regions"], attempts.ready["exact_addresses"],
                            attempts.ready["variables"], attempts.ready["bytes"], uses, attempts.processes,
                            attempts.seconds)


def replay_each_cache(path: Path, result: ReplayResult, code: Path | None = None) -> dict[CacheMode, float]:
    """Return the median time of a replay in each state of the caches, us, from this result and replays like it.

    A state in which the replay is not faithful has no time. Raise as replay() does.
    """
    results = [result if mode == result.request.cache else replay(path,
                                                                  dataclasses.replace(result.request, cache=mode), code)
               for mode in CACHE_MODES]
    return {one.request.cache: one.median_us for one in results if one.median_us is not None}
