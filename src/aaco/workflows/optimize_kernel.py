"""`aaco optimize --kernel`: from a source and captures of a kernel's launches to a faster text, or "no change"."""

from __future__ import annotations

import difflib
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.calibration.driver import MODULE_VERSION
from aaco.core import files, host
from aaco.core.errors import BadCapture, UsageError
from aaco.core.readings import Absent, known
from aaco.core.records import as_dict
from aaco.optimize.kernels import applying, compiling, widening
from aaco.optimize.kernels.acceptance import Gain
from aaco.optimize.kernels.compiling import Toolchain
from aaco.optimize.kernels.edits import rule_proposals
from aaco.optimize.kernels.equivalence import EMULATED_LIMIT_S, LIMIT_S, Trials
from aaco.optimize.kernels.log import SearchFiles
from aaco.optimize.kernels.prompt import kernel_prompt
from aaco.optimize.kernels.proposers import ATTEMPTS, COMMAND, ask_command
from aaco.optimize.kernels.search import KernelDecision, KernelSearch, baseline_of
from aaco.optimize.kernels.situation import KernelSituation, read_situation
from aaco.optimize.kernels.source import KernelSource, find_kernel
from aaco.optimize.kernels.variants import Proposal, Refused, RefusedOffer, Variant
from aaco.replay import capture as captures
from aaco.replay import emulator
from aaco.replay.documents import CapturedFrom, CaptureDocument, KernelLaunch
from aaco.replay.engine import ReplayRequest
from aaco.replay.run import replay
from aaco.tracelake.document_schemas.kernel_search import KernelOrigin
from aaco.workflows.kernel_program import InProgram, phrase

MOST_SEED = 1 << 31
TryInProgram = Callable[[bytes, Proposal, Gain], InProgram]
Propose = Callable[[KernelSituation, str], Iterable[Proposal | RefusedOffer]]


class OptimizeRequest(Struct, frozen=True):
    """What to optimise. budget_s: begin nothing that would end after so long. seed: None draws one."""

    kernel: str
    source: Path
    captures: tuple[Path, ...]
    budget_s: float = 600.0
    seed: int | None = None
    apply: bool = False
    any_driver: bool = False


class OptimizeOutcome(Struct, frozen=True):
    """What came of it. diff: of the kept text, empty for no change. applied: where the untouched source is now.

    no_reference: why the kernel has no form in double precision that says how exact it is; empty if it has.
    in_program: how the program ran with the kept text; None if no program was named, or nothing kept.
    """

    request: OptimizeRequest
    decision: KernelDecision
    diff: str
    applied: Path | None
    log: Path
    seed: int
    no_reference: str
    in_program: InProgram | None = None


def optimize(request: OptimizeRequest, propose: Propose, try_in_program: TryInProgram | None = None
             ) -> OptimizeOutcome:
    """Search, and write the kept text if the request says so. Raise UsageError, BadCapture, Missing, Refused.

    try_in_program: runs the program with the untouched text and with the kept one; what is not faster there is not
    written.
    """
    if not files.is_file(request.source):
        raise UsageError(f"{request.source}: no such file", "name the file that defines the kernel")
    with files.storage(request.source):
        text = request.source.read_bytes()
    if request.apply:
        applying.require_writable(request.source)
    kernel = _find(request, text)
    documents = _require_faithful(request)
    launch, origin = documents[0].launch, documents[0].captured_from
    chain = compiling.choose(request.source, origin.isa)
    kept = SearchFiles(request.source, request.kernel)
    seed = _seed(request, kept)

    def build(proposal: Proposal) -> Variant:
        return compiling.compile_proposal(proposal, chain, launch.symbol, request.source.name)

    reference, why_none = _wide(text, chain, launch, request.source)
    trials = Trials(build(baseline_of(text)), parameter_types(kernel), request.any_driver, _limit_s(documents),
                    reference=reference, emulated=_is_emulated(documents))
    search = KernelSearch(kept, _origin(request, text, chain, origin, seed), trials, build, request.captures,
                          request.budget_s)
    decision = search.run(propose(read_situation(kernel, documents[0], chain.options,
                                                 tuple(document.launch.block for document in documents[1:])),
                                  request.source.name))
    applied = in_program = None
    if decision.kept and decision.gain and try_in_program:
        in_program = try_in_program(text, decision.kept, decision.gain)
    if decision.kept and request.apply and (in_program is None or in_program.answer == "faster"):
        applied = applying.apply(request.source, text, decision.kept.text)
    return OptimizeOutcome(request, decision, _diff(request.source, text, decision.kept), applied, kept.log, seed,
                           why_none, in_program)


def _find(request: OptimizeRequest, text: bytes) -> KernelSource:
    try:
        return find_kernel(text, request.kernel)
    except Refused as refused:
        raise UsageError(f"{request.source}: {refused.detail}", refused.fix or "name the file that defines it") \
            from refused


def parameter_types(kernel: KernelSource) -> list[str]:
    """Return the C++ types of the kernel's parameters, in order."""
    return [b" ".join(parameter.kind).decode(errors="replace") for parameter in kernel.parameters]


def _require_faithful(request: OptimizeRequest) -> list[CaptureDocument]:
    """Return the captures' documents. Raise BadCapture unless all replay exactly.

    A capture that replays otherwise with its own code could judge no other code.
    """
    if not request.captures:
        raise UsageError("no capture of the kernel", "aaco replay capture --kernel NAME -o DIR -- python PROGRAM")
    documents: list[CaptureDocument] = []
    for path in request.captures:
        with captures.open(path) as capture:
            capture.require_device()
            documents.append(capture.document)
        result = replay(path, ReplayRequest(iterations=2, any_driver=request.any_driver), limit_s=_limit_s(documents))
        if result.fidelity.verdict != "exact":
            raise BadCapture(f"{path}: its own code is replayed {result.fidelity.verdict}: {result.fidelity.reason}",
                             "capture another launch of the kernel")
    symbols = {document.launch.symbol for document in documents}
    if len(symbols) > 1:
        raise UsageError(f"the captures are of several kernels: {', '.join(sorted(symbols))[:200]}",
                         "name captures of one kernel")
    return documents


def _is_emulated(documents: Sequence[CaptureDocument]) -> bool:
    """Return whether launches run in an emulator: those of AMD do, where they run at all."""
    return any(document.captured_from.is_amd for document in documents)


def _limit_s(documents: Sequence[CaptureDocument]) -> float:
    return EMULATED_LIMIT_S if _is_emulated(documents) else LIMIT_S


def proposers(command: Sequence[str] | None) -> Propose:
    """Return what offers proposals: the rules. command: runs after them, if it is given."""
    def propose(situation: KernelSituation, file: str) -> Iterator[Proposal | RefusedOffer]:
        yield from (offer for offer in rule_proposals(situation) if isinstance(offer, Proposal))
        if command:
            yield from _ask(command, situation, file)

    return propose


def _ask(command: Sequence[str], situation: KernelSituation, file: str) -> Iterator[Proposal | RefusedOffer]:
    """Ask a command, and again with the reasons where its answer is refused."""
    refusals: list[Refused] = []
    for _ in range(1 + ATTEMPTS):
        prompt = kernel_prompt(situation.kernel, file, situation, None, refused=refusals)
        try:
            yield ask_command(command, situation.kernel, prompt)
            return
        except Refused as refused:
            refusals.append(refused)
            yield RefusedOffer(f"{Path(command[0]).name}'s answer {len(refusals)}", COMMAND, refused)


def _wide(text: bytes, chain: Toolchain, launch: KernelLaunch, source: Path) -> tuple[Variant | None, str]:
    """Return the kernel in double precision, or why there is none: then numbers must be equal or adjacent.

    Headers beside the source are part of it, for their functions take numbers, too.
    """
    def read(name: str) -> bytes | None:
        path = source.parent / name
        return path.read_bytes() if files.is_file(path) else None

    try:
        proposal = Proposal("double precision", "none", widening.double_text(widening.with_headers(text, read)))
        return compiling.compile_proposal(proposal, chain, widening.double_symbol(launch.symbol), source.name), ""
    except widening.NotWidened as reason:
        return None, str(reason)
    except Refused as refused:
        return None, f"in double precision: {refused.detail}"


def _seed(request: OptimizeRequest, kept: SearchFiles) -> int:
    """Return the seed: the one asked for, that of a search that was cut off, or a new one."""
    if request.seed is not None:
        return request.seed
    last = kept.last_origin()
    return last.seed if last else random.SystemRandom().randrange(MOST_SEED)


def _origin(request: OptimizeRequest, text: bytes, chain: Toolchain, origin: CapturedFrom, seed: int) -> KernelOrigin:
    digests = []
    for path in request.captures:
        with captures.open(path) as capture:
            digests.append(capture.sha256)
    return KernelOrigin(kernel=request.kernel, source_sha256=hashlib.sha256(text).hexdigest(), captures=digests,
                        compiler=_identity(chain), options=list(chain.options), seed=seed, **_runs_on(origin))


def _runs_on(origin: CapturedFrom) -> dict[str, str]:
    """Return the device and its driver, or the emulator: what one proves, the other has not."""
    if origin.is_amd:
        return {"device": f"emulated {emulator.target(origin.isa)}", "driver": emulator.identity()}
    return {"device": origin.device, "driver": known(host.text, MODULE_VERSION) or origin.driver or ""}


def _identity(chain: Toolchain) -> str:
    """Return the compiler with its version, so that another one's results are not taken for this one's."""
    if not chain.program:
        return f"{chain.compiler} {compiling.library_version(chain)}"
    try:
        lines = host.ask([chain.program, "--version"], 20.0).strip().splitlines()
    except Absent as reason:
        return f"{chain.program}: {reason}"
    return f"{chain.program}: {lines[-1] if lines else ''}"


def _diff(source: Path, text: bytes, kept: Proposal | None) -> str:
    if kept is None:
        return ""
    before, after = (content.decode(errors="replace").splitlines(keepends=True) for content in (text, kept.text))
    return "".join(difflib.unified_diff(before, after, f"a/{source.name}", f"b/{source.name}"))


def document(outcome: OptimizeOutcome) -> dict[str, Any]:
    """Return the outcome as JSON. What is not known is null."""
    decision, gain = outcome.decision, outcome.decision.gain
    return {
        "schema_version": 1, "kernel": outcome.request.kernel, "source": str(outcome.request.source),
        "kept": decision.kept.name if decision.kept else None, "why": decision.why,
        "gain": as_dict(gain) if gain else None,
        "in_program": phrase(outcome.in_program) if decision.kept else None,
        "program": None if outcome.in_program is None else as_dict(outcome.in_program),
        "launch": None if decision.kept is None else {"block": decision.kept.block, "grid": decision.kept.grid,
                                                      "options": list(decision.kept.options)},
        "diff": outcome.diff, "applied": outcome.applied is not None,
        "original": str(outcome.applied) if outcome.applied else None, "log": str(outcome.log), "seed": outcome.seed,
        "no_reference": outcome.no_reference or None,
        "tried": [{"name": line.name, "proposer": line.proposer, "refused": line.refused, "detail": line.detail,
                   "gain_pct": line.gain_pct, "not_timed": line.not_timed or None} for line in decision.judged],
        "confirmed": [line.model_dump(mode="json", include={"name", "gain_pct", "low_pct", "high_pct", "level",
                                                            "processes", "kept", "why", "not_examined"})
                      for line in decision.confirmed]}


def lines(outcome: OptimizeOutcome) -> Sequence[str]:
    """Return the outcome for a person: the verdict, the diff, and what was tried."""
    decision = outcome.decision
    head = f"{outcome.request.kernel}: " + (f"keep {decision.kept.name}: {decision.why}; {phrase(outcome.in_program)}"
                                            if decision.kept else f"no change: {decision.why}")
    rows = [f"  {line.name}: {line.refused}: {line.detail}" if line.refused else
            f"  {line.name}: equal, not timed" if line.not_timed else
            f"  {line.name}: {line.gain_pct:+.1f} % at first sight" for line in decision.judged]
    rows += [f"  {line.name}, confirmed: {line.why}" for line in decision.confirmed]
    rows += dict.fromkeys(f"  compute-sanitizer did not look at it: {line.not_examined}"
                          for line in decision.confirmed if line.not_examined)
    if decision.kept and (decision.kept.block or decision.kept.grid or decision.kept.options):
        rows.append(f"  launch it with block {decision.kept.block}, grid {decision.kept.grid}, options "
                    f"{' '.join(decision.kept.options)}")
    if outcome.no_reference:
        rows.append(f"  numbers had to be equal or adjacent, as there is no reference: {outcome.no_reference}")
    written = [f"written; the untouched source is {outcome.applied}"] if outcome.applied else \
        ["not written: it is not faster in the program"] if outcome.request.apply and outcome.in_program else []
    diff = [files.readable(line.expandtabs()) for line in outcome.diff.splitlines()]
    return [head, *diff, f"tried {len(decision.judged)}:", *map(files.readable, rows),
            f"log: {outcome.log}", *written]
