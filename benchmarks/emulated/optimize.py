"""Wrong variants of six kernels for three targets: each refused; right ones equal, and not timed."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from aaco.optimize.kernels.source import find_kernel
from aaco.optimize.kernels.variants import Proposal, Refused
from benchmarks.claims import Claim
from benchmarks.emulated._cases import NATIVE, Case, shapes
from benchmarks.gpu._wrong_variants import DEVICE, PLANTED, PlantedKernel, WrongVariant, of_device

TARGETS = tuple(os.environ.get("AACO_EMULATED_TARGETS", "gfx942 gfx90a gfx1100").split())
NAMES = tuple(shapes())
NEAR = 1e-5  # of the largest number: the float32 of the testbeds, sums of up to 150
QUICK = {"TARGETS": ("gfx1100",), "NAMES": ("in_place", "gather")}
EQUAL = "equal, not timed"


def claims(_: Path) -> Iterator[Claim]:
    """Every claim, target by target."""
    kernels = {kernel.name: kernel for kernel in PLANTED if kernel.path.parent == NATIVE}
    for arch in TARGETS:
        with tempfile.TemporaryDirectory(prefix="aaco-emulated-") as made:
            cases = {name: Case(Path(made), name, arch) for name in NAMES}
            errors = {name: case.capture() for name, case in cases.items()}
            far = {name: f"{error:.2g}" for name, error in errors.items() if not error <= NEAR}
            yield Claim(f"{arch}: the emulator computes what numpy does", f"{len(cases)} within {NEAR:g}",
                        f"{len(cases) - len(far)}; largest {max(errors.values()):.2g} {far or ''}", not far)
            exact = [name for name, case in cases.items() if case.replayed == "exact"]
            yield Claim(f"{arch}: captures are replayed exactly, in processes of their own", f"{len(cases)}",
                        f"{len(exact)}", len(exact) == len(cases))
            yield from _wrong(arch, [(cases[name], kernels[name]) for name in NAMES])
            yield from _right(arch, list(cases.values()))


def _wrong(arch: str, cases: list[tuple[Case, PlantedKernel]]) -> Iterator[Claim]:
    verdicts = [(variant, *_verdict(case, variant.name, variant.text)) for case, kernel in cases
                for variant in of_device(kernel)]
    for variant, reason, detail in verdicts:
        if reason not in variant.reasons:
            _say(arch, variant, f"{reason}, not {sorted(variant.reasons)}: {detail}")
    equal = sum(reason == EQUAL for _, reason, _ in verdicts)
    judged = [(variant, reason) for variant, reason, _ in verdicts if reason != "not_judged"]
    named = sum(reason in variant.reasons for variant, reason in judged)
    counts = dict(Counter(reason for _, reason, _ in verdicts).most_common())
    yield Claim(f"{arch}: wrong variants of {len(cases)} kernels are refused", f"all {len(verdicts)}",
                f"{len(verdicts) - equal} {counts}", not equal and bool(verdicts))
    yield Claim(f"{arch}: each for one of its reasons, of those that could be judged", f"all {len(judged)}", f"{named}",
                named == len(judged) > 0)
    yield Claim(f"{arch}: wrong variants that the emulator cannot run", "none counts as equal",
                f"{len(verdicts) - len(judged)}: {sorted({v.name for v, r, _ in verdicts if r == 'not_judged'})}", None)


def _right(arch: str, cases: list[Case]) -> Iterator[Claim]:
    """Right variants: an unrolled loop, and a branch that is never taken."""
    verdicts = [(case.name, name, *_verdict(case, name, text)) for case in cases
                for name, text in _right_texts(case)]
    wrong = [f"{name}, {edit}: {reason}: {detail}"[:150] for name, edit, reason, detail in verdicts
             if reason not in (EQUAL, "no_change")]
    equal = sum(reason == EQUAL for *_, reason, _ in verdicts)
    yield Claim(f"{arch}: right variants of {len(cases)} kernels are {EQUAL}", f"all {len(verdicts)} of other code",
                f"{equal}, {len(verdicts) - equal - len(wrong)} the same code {wrong or ''}", not wrong and equal > 0)


def _right_texts(case: Case) -> Iterator[tuple[str, bytes]]:
    text = case.text.encode()
    kernel = find_kernel(text, case.name)
    begin, end = kernel.body[0] + 1, kernel.body[1]
    yield "unrolled by 2", text[:begin] + text[begin:end].replace(b"\tfor (", b"#pragma unroll 2\n\tfor (") + text[end:]
    number = next(parameter.name for parameter, kind in zip(kernel.parameters, case.shape.parameters, strict=True)
                  if kind == "int")
    yield "never taken", text[:begin] + b"\n\tif (%s == -7)\n\t\treturn;" % number + text[begin:]


def _verdict(case: Case, name: str, text: bytes) -> tuple[str, str]:
    try:
        case.trials.check(case.build(Proposal(name, "planted", text)), [case.path], 7, 0)
    except Refused as refused:
        return refused.reason, refused.detail
    return EQUAL, ""


def _say(arch: str, variant: WrongVariant, text: str) -> None:
    where = "" if variant.stage == DEVICE else f" ({variant.stage})"
    print(f"{arch} {variant.kernel.name} {variant.kind}, {variant.name}{where}: {text}", flush=True)
