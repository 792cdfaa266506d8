"""What works on this machine and what to fix first: one line, then the groups and what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from aaco.collectors.capabilities import Capability
from aaco.collectors.gpu.gpu_access import NO_DEVICE
from aaco.report.format import plural

LISTED = 8  # missing capabilities on the first screen; with headings and fixes that is at most 30 lines
PROVIDER = "ExecutionProvider"
NEEDED_FIRST = ("python", "runtime", "amd", "nvidia", "host", "kernel", "quiet")
VENDORS = {"amd": ("amdgpu driver", "AMD GPU"), "nvidia": ("nvidia driver", "NVIDIA GPU")}
VENDOR_OF = {f"MIGraphX{PROVIDER}": "amd", f"CUDA{PROVIDER}": "nvidia", f"Tensorrt{PROVIDER}": "nvidia"}
# Something else does the same, or it is for few readers: only the full list names them where they are missing.
OPTIONAL = {f"ROCM{PROVIDER}", f"OpenVINO{PROVIDER}", "rocprof", "rocm-smi", "/dev/aaco"}


def lines(capabilities: Sequence[Capability]) -> Iterator[str]:
    """Yield the lines of the first screen."""
    absent_vendors = [vendor for vendor in VENDORS if not _is_plugged(vendor, capabilities)]
    missing = [capability for group in NEEDED_FIRST for capability in capabilities
               if capability.group == group and _is_needed(capability, absent_vendors)]
    yield _headline(capabilities, missing)
    for group, members in groupby(capabilities, lambda capability: capability.group):
        names = ", ".join(capability.name for capability in members if capability.available)
        text = "no such GPU on this machine" if group in absent_vendors else names or "nothing works yet"
        yield f"{group}: {text}"
    for capability in missing[:LISTED]:
        yield f"missing: {capability.name}: {capability.why_not}"
        yield f"    fix: {capability.fix}"
    hidden = len(capabilities) - sum(capability.available for capability in capabilities) - len(missing[:LISTED])
    if hidden:
        yield f"{plural(hidden, 'more check')} failed or do not apply; `aaco doctor --full` has every reason and fix"


def full_lines(capabilities: Sequence[Capability]) -> Iterator[str]:
    """Yield each capability with its detail, or with why it is missing and the fix."""
    width = max(len(capability.name) for capability in capabilities)
    for capability in capabilities:
        mark, text = ("yes", capability.detail) if capability.available else ("no", capability.why_not)
        yield f"{capability.name:<{width}}  {mark:<4}{text}"
        if not capability.available and capability.fix:
            yield f"{'':<{width}}      fix: {capability.fix}"


def _headline(capabilities: Sequence[Capability], missing: Sequence[Capability]) -> str:
    backends = [capability.name.removesuffix(PROVIDER) for capability in capabilities
                if capability.available and capability.name.endswith(PROVIDER)]
    models = f"runs models on {', '.join(backends)}" if backends else "runs no model (no ONNX Runtime backend)"
    first = f"{missing[0].name}: {missing[0].fix}" if missing else "nothing"
    return f"AACO reads traces and {models}. Fix first: {first}."


def _is_plugged(vendor: str, capabilities: Sequence[Capability]) -> bool:
    """Return whether the machine has a GPU of this vendor: on the bus, or seen by its driver."""
    driver, device = ([capability for capability in capabilities if capability.name == name]
                      for name in VENDORS[vendor])
    return any(capability.fix != NO_DEVICE for capability in driver) or any(gpu.available for gpu in device)


def _is_needed(capability: Capability, absent_vendors: Sequence[str]) -> bool:
    """Return whether it is missing although the machine could have it and something would use it."""
    if capability.available or capability.name in OPTIONAL:
        return False
    return VENDOR_OF.get(capability.name, capability.group) not in absent_vendors
