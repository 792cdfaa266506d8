"""Which libraries compute: those of matrix products, and AMD's kernels for language models."""

from __future__ import annotations

import re

from aaco.analytics.kernels.families.terms import KernelName
from aaco.analytics.workload.facts import WorkloadFact, absent
from aaco.analytics.workload.platform import framework
from aaco.analytics.workload.signs import WorkloadSigns
from aaco.core.words import plural

HIPBLASLT, ROCBLAS, CUBLAS = "hipblaslt", "rocblas", "cublas"
# Both of AMD's libraries name kernels as Tensile does. hipBLASLt's own Tensile lets a caller give a kernel its
# arguments (TensileLite's SupportUserArgs), and says so in the name; of rocBLAS's no kernel does.
_OF_HIPBLASLT = re.compile(r"_UserArgs(?:_|$)")
_OF_NVIDIA = ("cublas", "cutlass")

# vLLM takes AITER on CDNA 3 and later (vllm/_aiter_ops.py, is_aiter_found_and_supported), of which Composable Kernel
# and the assembly are built; on gfx12 there are AITER's Triton kernels only, of which names tell nothing.
AITER_DEVICES = ("gfx942", "gfx950")
AITER_ENGINES = ("vllm", "sglang")
AITER_CALLS = ("aiter::", "vllm::rocm_aiter_")
# SGLang exchanges by AITER whether it computes by it or not (SGLANG_USE_AITER_AR, on by default).
_EXCHANGES = "collective"
# AITER's norms and its sorting of experts are tiles of Composable Kernel; no engine brings others, and MIOpen takes its
# norms from the older form. AITER's attention is of such tiles, too, as FlashAttention's for ROCm, and tells nothing.
_TILES = "ck_tile"
_OF_AITER_BY_TILES = ("norm", "sort")


def blas_library(signs: WorkloadSigns) -> WorkloadFact:
    """Return which library computes most time of matrix products: hipblaslt, rocblas, cublas, or none."""
    if not signs.kernels:
        return absent("blas_library", "no kernels were recorded")
    times: dict[str, int] = {}
    for kernel, tally in signs.decoded:
        if kernel.family == "gemm" and (library := _blas(kernel)):
            times[library] = times.get(library, 0) + tally.ns
    if not times:
        return WorkloadFact("blas_library", "none", source="names of kernels",
                            evidence="no product's name is one of hipBLASLt, rocBLAS or cuBLAS")
    most = max(times, key=lambda library: times[library])
    share = times[most] / signs.kernel_ns if signs.kernel_ns else None
    text = "" if share is None else f", {100 * share:.0f} % of kernel time"
    return WorkloadFact("blas_library", most, (), times, "ns", share, "names of kernels", f"its products{text}")


def _blas(kernel: KernelName) -> str | None:
    if kernel.library == "tensile":
        return HIPBLASLT if _OF_HIPBLASLT.search(kernel.name) else ROCBLAS
    return CUBLAS if kernel.library in _OF_NVIDIA else None


def aiter(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether AITER computes: used, unused by an engine that has it on such a device, or no where there is none.
    """
    if not signs.kernels:
        return absent("aiter", "no kernels were recorded")
    count, ns = 0, 0
    for kernel, tally in signs.decoded:
        if _is_aiter(kernel):
            count, ns = count + tally.count, ns + tally.ns
    calls = sum(many for name, many in signs.calls.items() if name.startswith(AITER_CALLS))
    if count or calls:
        share = ns / signs.kernel_ns if signs.kernel_ns else None
        return WorkloadFact("aiter", "used", (), {"kernels": count, "calls": calls}, share_ratio=share,
                            source="names", evidence=f"{plural(count, 'kernel')} and {plural(calls, 'call')} of AITER")
    if not {*framework(signs).values} & {*AITER_ENGINES}:
        return WorkloadFact("aiter", "no", source="framework", evidence="no engine ran that has a switch for it")
    devices = ", ".join(dict.fromkeys(signs.architectures))
    if not devices:
        return absent("aiter", "none of its kernels ran, and the device is not known (--device names it)")
    has_kernels = all(architecture.startswith(AITER_DEVICES) for architecture in signs.architectures)
    return WorkloadFact("aiter", "unused" if has_kernels else "no", source="names and devices",
                        evidence=f"none of its kernels ran on {devices}" if has_kernels
                        else f"AITER has kernels for {' and '.join(AITER_DEVICES)}, and none for {devices}")


def _is_aiter(kernel: KernelName) -> bool:
    if kernel.library == "ck":
        return _TILES in kernel.name and kernel.family in _OF_AITER_BY_TILES
    return kernel.library == "aiter" and kernel.family != _EXCHANGES
