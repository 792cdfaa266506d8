"""Which backend runs on this machine: the choice of `--backend auto`, and what the default leaves unused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

from aaco.collectors import capabilities
from aaco.collectors.inventory import environment, machine
from aaco.core.errors import Missing
from aaco.core.host import Host
from aaco.core.machine import Gpu
from aaco.core.providers import MIGRAPHX, ON_CUDA
from aaco.core.readings import Absent
from aaco.runner.registry import BackendEntry

# Whose devices a provider runs on. Those not named here run on the processor.
DEVICES: dict[str, Callable[[Host], Sequence[Gpu]]] = {
    MIGRAPHX: machine.amd_gpus, **dict.fromkeys(ON_CUDA, machine.nvidia_gpus)}

# What hides devices from a process; HIP's come one behind the other.
HIDE = {"cuda": ("CUDA_VISIBLE_DEVICES",), "hip": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}


def choose(entries: Mapping[str, BackendEntry], host: Host | None = None) -> tuple[str, str]:
    """Return the first backend with an installed provider and a present device, and why that one.

    Nothing is started: a provider that then fails to start is an error like any other. Raises Missing.
    """
    refused: dict[str, list[str]] = {}
    for name, entry in entries.items():
        if entry.retired:
            continue
        try:
            installed = _here(entry, host or Host())
        except Absent as reason:
            refused.setdefault(str(reason), []).append(name)
        else:
            return name, "; ".join((f"the first by priority that is here ({installed})", *_told(refused)))
    raise Missing(f"no backend is here: {'; '.join(_told(refused))}", "aaco doctor")


def refuse_missing(entry: BackendEntry, host: Host | None = None) -> None:
    """Raise Missing if the installed ONNX Runtime lacks the provider, by its files: nothing is loaded or measured.

    A provider that is none of ONNX Runtime's own packages is left to its first session.
    """
    providers = environment.ort_providers(host or Host())
    if entry.provider in environment.ORT_LIBRARIES.values() and entry.provider not in providers:
        raise Missing(f"backend {entry.name}: {entry.provider} is not in the installed ONNX Runtime, which has "
                      f"{', '.join(providers) or 'no provider'}", entry.install)


def unused(entries: Mapping[str, BackendEntry], default: str, host: Host | None = None) -> str:
    """The backend of a device that would run here, where the default is another; else empty."""
    try:
        name, _ = choose(entries, host)
    except Missing:
        return ""
    return name if name != default and entries[name].provider in DEVICES else ""


def _told(refused: Mapping[str, Sequence[str]]) -> Iterator[str]:
    return (f"not {', '.join(names)}: {reason}" for reason, names in refused.items())


def _here(entry: BackendEntry, host: Host) -> str:
    """Return the evidence that it is here. Raise Absent with what is missing."""
    question = next((one for one in capabilities.QUESTIONS if one.name == entry.provider), None)
    if question is None:
        raise Absent(f"what {entry.provider} needs is not known here: name it to use it")
    provider_state, look = question.probe(host), DEVICES.get(entry.provider)
    if look is None:
        return provider_state
    gpus, device_id = look(host), entry.provider_options.get("device_id", "0")
    seen, by = _seen(len(gpus), HIDE["hip" if look is machine.amd_gpus else "cuda"])
    if not device_id.isdecimal() or int(device_id) >= seen:
        raise Absent(f"device {device_id} is not there, of {seen}{by}")
    which = f"device {device_id} of {seen}{by}" if by else gpus[int(device_id)].name
    return f"{which}; {provider_state}"


def _seen(devices: int, variables: Sequence[str]) -> tuple[int, str]:
    """Return how many of the devices this process sees, and which variable says so, in words. What follows a word
    that names no device does not count (CUDA C++ Programming Guide, CUDA Environment Variables)."""
    by = ""
    for name in variables:
        if name in os.environ:
            words = takewhile(lambda word: word not in ("", "-1"), map(str.strip, os.environ[name].split(",")))
            devices, by = min(devices, len(list(words))), f" by {name}"
    return devices, by
