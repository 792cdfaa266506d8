"""Whose device a workload ran on, by which runtime, and in which frameworks: by names that only they use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from aaco.analytics.kernels.families import triton
from aaco.analytics.workload.facts import WorkloadFact, absent
from aaco.analytics.workload.signs import WorkloadSigns
from aaco.core.words import plural

AMD, NVIDIA, CPU = "amd", "nvidia", "cpu"
VENDORS = {AMD: re.compile(r"hip[A-Z]|hsa_|__hip"), NVIDIA: re.compile(r"cuda[A-Z]|cu(?:Launch|Memcpy|Memset|Graph|Ctx"
                                                                        r"|Stream|Event|Module|Func|Device|Init)")}
VENDOR_FORMATS = {"rocprof_csv": AMD, "rocprof_json": AMD, "rocprof_db": AMD, "rocprofv3_csv": AMD, "rocpd": AMD,
                  "rocprofv3_json": AMD, "pftrace": AMD, "att": AMD, "att_stats": AMD, "pc_sampling": AMD,
                  "rocprof_compute": AMD, "roctracer": AMD, "rpd": AMD, "kfd": AMD, "rocminfo": AMD, "migraphx": AMD,
                  "ncu": NVIDIA, "nsys": NVIDIA, "cupti": NVIDIA}
VENDOR_LIBRARIES = {"tensile": AMD, "ck": AMD, "aiter": AMD, "miopen": AMD, "rocclr": AMD, "rocprim": AMD,
                    "migraphx": AMD, "cublas": NVIDIA, "cutlass": NVIDIA, "cudnn": NVIDIA, "cub": NVIDIA}
VENDOR_PROVIDERS = {"ROCMExecutionProvider": AMD, "MIGraphXExecutionProvider": AMD, "CUDAExecutionProvider": NVIDIA,
                    "TensorrtExecutionProvider": NVIDIA, "NvTensorRTRTXExecutionProvider": NVIDIA}
RUNTIMES = (("hip", re.compile(r"hip[A-Z]")), ("cuda", VENDORS[NVIDIA]), ("hsa", re.compile(r"hsa_")))
# A framework's calls and ranges, by the beginning of their name or the file of a Python function; the engines first.
FRAMEWORKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("sglang", re.compile(r"(?:.*/)?sglang/|sgl_kernel::|sglang::")),
    ("vllm", re.compile(r"(?:.*/)?vllm/|vllm::|_C::\w|_C_cache_ops::|_vllm_")),
    ("onnxruntime", re.compile(r"(?:.*/)?onnxruntime/|onnxruntime::|SequentialExecutor::Execute|model_run$")),
    ("tensorrt", re.compile(r"ExecutionContext::enqueue|TensorRT:|(?:.*/)?tensorrt/|nvinfer")),
    ("tensorflow", re.compile(r"(?:.*/)?tensorflow/|tensorflow::|TfOp")),
    ("jax", re.compile(r"(?:.*/)?jax/|PjitFunction|XlaModule|xla::")),
    ("migraphx", re.compile(r"migraphx")),
    ("pytorch", re.compile(r"aten::|c10d::|(?:.*/)?torch/|nn\.Module|autograd::engine|ProfilerStep#|Optimizer\.step")),
)
FRAMEWORK_LIBRARIES = {"aten": "pytorch", "onnxruntime": "onnxruntime", "xla": "jax",
                       "migraphx": "migraphx", "llama.cpp": "llama.cpp", "vllm": "vllm", "sglang": "sglang",
                       "tensorrt_llm": "tensorrt_llm"}
FRAMEWORK_FORMATS = {"kineto": "pytorch", "ort": "onnxruntime", "xplane": "jax", "migraphx": "migraphx"}
_INDUCTOR = re.compile(triton.INDUCTOR.begins)
ENGINES = ("sglang", "vllm", "tensorrt_llm")
# Engines use each other's kernels, and names like llama.cpp's are common: calls, if there are some, tell which it is.
BY_CALLS = (*ENGINES, "llama.cpp")


def vendor(signs: WorkloadSigns) -> WorkloadFact:
    """Return whose device it is: amd, nvidia, or cpu where no device worked."""
    if signs.kernels and not signs.on_device and not signs.formats - {"ort"}:
        return WorkloadFact("vendor", CPU, (), {CPU: len(signs.kernels)}, source="kernels without a device",
                            evidence="no kernel ran on a device")
    votes = _vendor_votes(signs)
    if not votes:
        return absent("vendor", "no call, kernel or device names its maker")
    name, source = max(votes, key=lambda vote: votes[vote])
    return WorkloadFact("vendor", name, (), {f"{whose}, {by}": count for (whose, by), count in votes.items()},
                        source=source, evidence=f"{votes[name, source]:,} of its {source}")


def _vendor_votes(signs: WorkloadSigns) -> dict[tuple[str, str], int]:
    votes: dict[tuple[str, str], int] = {}
    for name, count in signs.calls.items():
        for whose, pattern in VENDORS.items():
            if pattern.match(name):
                votes[whose, "runtime calls"] = votes.get((whose, "runtime calls"), 0) + count
    for architecture in signs.architectures:
        whose = AMD if architecture.startswith("gfx") else NVIDIA
        votes[whose, "devices"] = votes.get((whose, "devices"), 0) + 1
    for kernel, tally in signs.decoded:
        if library := VENDOR_LIBRARIES.get(kernel.library or ""):
            votes[library, "kernels"] = votes.get((library, "kernels"), 0) + tally.count
    for provider, count in signs.providers.items():
        if maker := VENDOR_PROVIDERS.get(provider):
            votes[maker, "nodes"] = votes.get((maker, "nodes"), 0) + count
    for form in signs.formats & VENDOR_FORMATS.keys():
        votes[VENDOR_FORMATS[form], "profiler"] = votes.get((VENDOR_FORMATS[form], "profiler"), 0) + 1
    return votes


def runtime(signs: WorkloadSigns) -> WorkloadFact:
    """Return the runtime whose calls were recorded: hip, cuda, or hsa where it was called directly."""
    counts = {name: sum(count for call, count in signs.calls.items() if pattern.match(call))
              for name, pattern in RUNTIMES}
    found = [name for name, count in counts.items() if count]
    if not found:
        return absent("runtime", "no call of a device's runtime was recorded")
    return WorkloadFact("runtime", found[0], tuple(found), {name: counts[name] for name in found}, source="calls",
                        evidence=plural(counts[found[0]], "call"))


def framework(signs: WorkloadSigns) -> WorkloadFact:
    """Return the frameworks that a workload ran in, the outermost first."""
    by_calls, by_kernels = _by_calls(signs), _by_kernels(signs)
    formats = {FRAMEWORK_FORMATS[form]: 1 for form in signs.formats & FRAMEWORK_FORMATS.keys()}
    engines = [name for name in ENGINES if name in by_calls]
    counts = dict(_without_borrowed(by_kernels, bool(by_calls), engines)) | formats | by_calls
    order = [name for name, _ in FRAMEWORKS]
    names = sorted(counts, key=lambda name: (order.index(name) if name in order else -1, -counts[name]))
    if not names:
        return absent("framework", "no call and no kernel has a name of a framework that is known here")
    first = names[0]
    source = "calls" if first in by_calls else "kernels" if first in by_kernels else "format"
    evidence = f"its own {source}, {counts[first]:,}" if source != "format" else "the profiler is its own"
    return WorkloadFact("framework", first, tuple(names), counts, source=source, evidence=evidence)


def _by_calls(signs: WorkloadSigns) -> dict[str, int]:
    counts: dict[str, int] = {}
    for call, count in signs.calls.items():
        if name := _framework_of(call):
            counts[name] = counts.get(name, 0) + count
    if signs.domains.get("ort") or signs.providers:
        counts["onnxruntime"] = counts.get("onnxruntime", 0) + max(1, signs.domains.get("ort", 0))
    return counts


@lru_cache(1 << 16)
def _framework_of(call: str) -> str | None:
    return next((name for name, pattern in FRAMEWORKS if pattern.match(call)), None)


def _by_kernels(signs: WorkloadSigns) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kernel, tally in signs.decoded:
        name = "pytorch" if is_inductor(tally.name) else FRAMEWORK_LIBRARIES.get(kernel.library or "")
        if name:
            counts[name] = counts.get(name, 0) + tally.count
    return counts


def is_inductor(kernel_name: str) -> bool:
    """Return whether PyTorch's compiler made the kernel."""
    return _INDUCTOR.match(kernel_name) is not None


def _without_borrowed(by_kernels: Mapping[str, int], has_calls: bool, engines: list[str]
                      ) -> Iterator[tuple[str, int]]:
    """Yield the frameworks by kernels, less those that calls contradict."""
    for name, count in by_kernels.items():
        if name not in BY_CALLS or name in engines or not has_calls:
            yield name, count
