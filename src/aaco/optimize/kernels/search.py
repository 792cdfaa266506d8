"""The search for a faster kernel: proposals are checked, the best confirmed in fresh processes; else "no change".

Only measurement keeps a proposal; an order of proposals decides nothing but what the budget leaves out.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.optimize.kernels import acceptance
from aaco.optimize.kernels.equivalence import Pair, Trials
from aaco.optimize.kernels.log import SearchFiles, key_of
from aaco.optimize.kernels.variants import Proposal, Refused, RefusedOffer, Variant
from aaco.tracelake.document_schemas.kernel_search import (
    KernelOrigin,
    KernelSearchBegun,
    KernelSearchDecided,
    VariantConfirmed,
    VariantJudged,
)

PAIRS = 20  # of a process
NOT_TIMED = "an emulator ran it, and has no time of a device"
Build = Callable[[Proposal], Variant]


class KernelDecision(Struct, frozen=True):
    """What a search decided. kept: the proposal, None for no change."""

    kept: Proposal | None
    why: str
    gain: acceptance.Gain | None
    judged: tuple[VariantJudged, ...]
    confirmed: tuple[VariantConfirmed, ...]
    resumed: int = 0


class KernelSearch:
    """One search, or the rest of one that was cut off."""

    def __init__(self, kept: SearchFiles, origin: KernelOrigin, trials: Trials, build: Build, captures: Sequence[Path],
                 budget_s: float, processes: int = acceptance.PROCESSES) -> None:
        self._files, self._origin, self._trials, self._build = kept, origin, trials, build
        self._captures, self._budget_s, self._processes = list(captures), budget_s, processes
        lines = kept.unfinished(origin)
        self.resumed = max(0, len(lines) - 1)
        self._name = lines[0].search if lines else _sha256(f"{origin} {time.time_ns()}".encode())[:12]
        self.judged = {line.key: line for line in lines if isinstance(line, VariantJudged)}
        self.confirmed = {line.key: line for line in lines if isinstance(line, VariantConfirmed)}
        self._spent_s = sum(line.took_s for line in lines)
        self._variants: dict[str, Variant] = {}
        self._first_of_code: dict[Any, str] = {}
        if not lines:
            self._append(KernelSearchBegun(search=self._name, origin=origin, budget_s=budget_s,
                                           baseline_sha256=_sha256(trials.baseline.code)))

    def run(self, proposals: Iterable[Proposal | RefusedOffer]) -> KernelDecision:
        """Judge the proposals, confirm the best, and decide. A baseline that cannot be judged ends it: no change."""
        try:
            self._check_baseline()
        except Refused as refused:
            return self._decide(None, f"the kernel cannot be judged: {refused.reason}: {refused.detail}")
        offered: dict[str, Proposal] = {}
        for proposal in proposals:
            if isinstance(proposal, RefusedOffer):
                self._keep_refused(proposal)
                continue
            if key_of(proposal) in offered:
                continue
            offered[key_of(proposal)] = proposal
            if key_of(proposal) not in self.judged:
                if not self._has_room():
                    break
                self._judge(proposal)
        for key in acceptance.finalists(self._timed):
            if key not in self.confirmed:
                self._confirm(offered.setdefault(key, self._offered_before(self.judged[key])))
        return self._decide(*self._best(offered))

    def _keep_refused(self, offer: RefusedOffer) -> None:
        key = _sha256(f"{offer.name} {offer.refused}".encode())
        if key not in self.judged:
            self._keep(self.judged, VariantJudged(search=self._name, key=key, name=offer.name, proposer=offer.proposer,
                                                  text_sha256="", refused=offer.refused.reason,
                                                  detail=offer.refused.detail))

    def _offered_before(self, line: VariantJudged) -> Proposal:
        """Return a proposal that this search timed before it was cut off: a command may offer another text now."""
        return Proposal(line.name, line.proposer, self._files.read_text(line.key), tuple(line.options), line.block,
                        line.grid)

    def _check_baseline(self) -> None:
        """Try the baseline against itself on each capture: what refuses it would refuse any candidate."""
        begin = time.monotonic()
        for path in self._captures:
            self._trials.try_once(self._trials.baseline, path, self._origin.seed, 0,
                                  ("captured", "inputs", "repeats", "bounds"))
        self._trial_s = time.monotonic() - begin
        self._spent_s += self._trial_s

    def _has_room(self) -> bool:
        """Return whether the budget has room for another proposal and the confirmations."""
        confirming = 0 if self._trials.emulated else acceptance.FINALISTS * self._processes * len(self._captures)
        return self._spent_s + (1 + confirming) * self._trial_s / len(self._captures) <= self._budget_s

    def _judge(self, proposal: Proposal) -> None:
        begin, variant = time.monotonic(), None
        line = VariantJudged(search=self._name, key=key_of(proposal), name=proposal.name, proposer=proposal.proposer,
                             text_sha256=_sha256(proposal.text), options=list(proposal.options), block=proposal.block,
                             grid=proposal.grid)
        try:
            variant = self._build(proposal)
            self._refuse_twin(variant)
            result = self._trials.check(variant, self._captures, self._seed(0), PAIRS)
            line = line.model_copy(update={"not_timed": NOT_TIMED} if self._trials.emulated else
                                   {"gain_pct": acceptance.screened_pct(result.pairs)})
            self._files.keep_text(proposal)
            self._variants[line.key] = variant
        except Refused as refused:
            line = line.model_copy(update={"refused": refused.reason, "detail": refused.detail})
        code = _sha256(variant.code) if variant else None
        self._keep(self.judged, line.model_copy(update={"code_sha256": code, "took_s": time.monotonic() - begin}))

    def _refuse_twin(self, variant: Variant) -> None:
        """Raise Refused for code that was judged under another name."""
        what = (_sha256(variant.code), variant.proposal.block, variant.proposal.grid)
        name = self._first_of_code.setdefault(what, variant.proposal.name)
        if name != variant.proposal.name:
            raise Refused("same_code", f"the compiler makes the same code object of it as of {name}")

    @property
    def _timed(self) -> dict[str, float]:
        return {key: line.gain_pct for key, line in self.judged.items() if line.gain_pct is not None}

    def _confirm(self, proposal: Proposal) -> None:
        begin, key = time.monotonic(), key_of(proposal)
        line = VariantConfirmed(search=self._name, key=key, name=proposal.name, gain_pct=None, low_pct=None,
                                high_pct=None, level=0.0, processes=0, kept=False, why="")
        try:
            if key not in self._variants:
                self._variants[key] = self._build(proposal)
            not_examined = self._trials.examine(self._variants[key], self._captures[0], self._seed(0))
            found = self._measure(self._variants[key])
            line = line.model_copy(update={"not_examined": not_examined,
                                           "gain_pct": found.gain.percent, "low_pct": found.gain.low, "high_pct":
                                           found.gain.high, "level": found.gain.level, "processes":
                                           found.gain.processes, "kept": found.kept, "why": found.why})
        except Refused as refused:
            line = line.model_copy(update={"why": f"{refused.reason}: {refused.detail}"})
        self._keep(self.confirmed, line.model_copy(update={"took_s": time.monotonic() - begin}))

    def _measure(self, variant: Variant) -> acceptance.Acceptance:
        by_capture = [[self._fresh(variant, path, turn) for turn in range(self._processes)] for path in self._captures]
        candidates = len(self._timed)
        guards = {path.name: acceptance.gain(processes, candidates)
                  for path, processes in zip(self._captures[1:], by_capture[1:], strict=True)}
        return acceptance.judge(by_capture[0], candidates, guards)

    def _fresh(self, variant: Variant, path: Path, turn: int) -> list[Pair]:
        return self._trials.try_once(variant, path, self._seed(turn + 1), PAIRS).pairs

    def _seed(self, turn: int) -> int:
        """Return the seed of a process: no two of a search have the same inputs."""
        return self._origin.seed * 1_000_003 + turn * 10_007

    def _best(self, offered: dict[str, Proposal]) -> tuple[Proposal | None, str]:
        kept = [line for line in self.confirmed.values() if line.kept]
        if kept:
            best = max(kept, key=lambda line: (line.low_pct or -math.inf, line.name))
            return offered.get(best.key) or self._offered_before(self.judged[best.key]), best.why
        if self.confirmed:
            line = max(self.confirmed.values(), key=lambda line: line.gain_pct or -math.inf)
            return None, f"none was confirmed; the best, {line.name}: {line.why}"
        if self._trials.emulated and (equal := sum(line.refused is None for line in self.judged.values())):
            return None, f"{equal} of {len(self.judged)} are proved equal, and not timed: {NOT_TIMED}"
        if self._timed:
            return None, f"none of {len(self._timed)} that compute the same looked faster"
        return None, f"none of {len(self.judged)} proposals passed the checks" if self.judged else "no proposal"

    def _decide(self, kept: Proposal | None, why: str) -> KernelDecision:
        key = key_of(kept) if kept else None
        self._append(KernelSearchDecided(search=self._name, kept=kept.name if kept else None, key=key, why=why))
        line = self.confirmed.get(key or "")
        gain = None if line is None else acceptance.Gain(line.gain_pct or 0.0, line.low_pct or 0.0,
                                                         line.high_pct or 0.0, line.level, line.processes)
        return KernelDecision(kept, why, gain, tuple(self.judged.values()), tuple(self.confirmed.values()),
                              self.resumed)

    def _keep(self, lines: dict[str, Any], line: Any) -> None:
        lines[line.key] = line
        self._spent_s += line.took_s
        self._append(line)

    def _append(self, line: Any) -> None:
        self._files.append(line)


def baseline_of(text: bytes) -> Proposal:
    """Return the untouched source as a proposal, to be built by the same compiler."""
    return Proposal("baseline", "none", text)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
