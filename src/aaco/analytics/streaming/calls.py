"""What a host-side call does to a device, by its name: rules as data, for CUDA, HIP and HSA."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

ON_DEVICE = "gpu_marker"  # domain of what a profiler copies from the host's ranges onto the device's streams


class CallKind(IntEnum):
    """The part a call plays in getting work onto a device."""

    OTHER = 0
    LAUNCH = 1  # starts one kernel
    GRAPH = 2  # starts a captured graph: many kernels
    COPY = 3
    FILL = 4
    SYNC = 5  # waits for everything that the device was given
    WAIT = 6  # waits for one stream or event
    BEGIN_CAPTURE = 7  # what follows is recorded into a graph, not run
    END_CAPTURE = 8
    RECORD = 9  # marks a place in a stream by an event
    STREAM_WAIT = 10  # makes a stream, not the host, wait for an event


# The first pattern that matches decides. Sources: the CUDA runtime and driver API references (modules Execution
# Control, Graph Management, Memory, Stream), the HIP runtime API reference, the HSA runtime specification 1.2.
RULES: tuple[tuple[CallKind, str], ...] = (
    (CallKind.BEGIN_CAPTURE, r"(cuda|hip|cu)StreamBeginCapture"),
    (CallKind.END_CAPTURE, r"(cuda|hip|cu)StreamEndCapture"),
    (CallKind.GRAPH, r"(cuda|hip|cu)GraphLaunch"),
    (CallKind.LAUNCH, r"(cuda|hip|hipExt|cu)(Module)?Launch(Cooperative)?(Kernel|Grid)"),
    (CallKind.LAUNCH, r"hip(Ext)?ModuleLaunch|hipHccModuleLaunch|hipLaunchByPtr|hipExtLaunch"),
    (CallKind.COPY, r"(cuda|hip|cu)Memcpy"),
    (CallKind.COPY, r"hsa_amd_memory_async_copy"),
    (CallKind.FILL, r"(cuda|hip|cu)Memset"),
    (CallKind.SYNC, r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize"),
    (CallKind.WAIT, r"(cuda|hip|cu)(Stream|Event)Synchronize|hsa_signal_wait"),
    (CallKind.RECORD, r"(cuda|hip|cu)EventRecord"),
    (CallKind.STREAM_WAIT, r"(cuda|hip|cu)StreamWaitEvent"),
    # SYCL and Level Zero (ur, ze, and pi before them), and the runtimes that PyTorch knows as mtia, hpu, privateuse1:
    # they name the same acts in their own spelling.
    (CallKind.GRAPH, r"\w*GraphLaunch|urCommandBufferEnqueue"),
    (CallKind.LAUNCH, r"\w*([lL]aunch(Cooperative)?Kernel|Kernel[lL]aunch|[iI]nvokeKernel)|zeCommandQueueExecute"),
    (CallKind.COPY, r"\w*([mM]emcpy|Mem(Buffer|Image)?Copy|AppendMemoryCopy)"),
    (CallKind.FILL, r"\w*([mM]emset|USMFill|BufferFill|AppendMemoryFill)"),
    (CallKind.SYNC, r"\w*([dD]evice|[cC]ontext)Synchronize"),
    (CallKind.WAIT, r"\w*([sS]tream|[eE]vent|[qQ]ueue|List|Fence)(Host)?Synchronize|(ur|pi)(QueueFinish|EventWait)\b"),
    (CallKind.RECORD, r"\w*EventRecord"),
    (CallKind.STREAM_WAIT, r"\w*StreamWaitEvent"),
)
# Domains of calls into a device's runtime or driver. PyTorch names one after each kind of device: xpu_runtime,
# mtia_runtime, privateuse1_driver; hpu_op is the host's side of Gaudi.
_RUNTIME = "hip|hsa|rccl|hpu_op|[A-Za-z0-9_]+_(runtime|driver)"


def is_runtime(domain: str | None) -> bool:
    """Return whether calls of this domain go into a device's runtime or driver."""
    return re.fullmatch(_RUNTIME, domain or "") is not None


@cache
def _rules() -> tuple[tuple[CallKind, re.Pattern[str]], ...]:
    """Return the rules, compiled where the first name is read."""
    return tuple((does, re.compile(pattern)) for does, pattern in RULES)


@lru_cache(1 << 16)
def call_kind(name: str) -> CallKind:
    """Return the part a call of this name plays."""
    return next((part for part, pattern in _rules() if pattern.match(name)), CallKind.OTHER)


def call_kinds(names: Sequence[str]) -> NDArray[np.int8]:
    """Return the kind of each name of a dictionary; index it with the column's codes."""
    return np.array([call_kind(name) for name in names], np.int8)


@lru_cache(1 << 16)
def waits_for_the_device(name: str) -> bool:
    """Return whether the host waits for the device in a call of this name, as in a copy that is not asynchronous."""
    kind = call_kind(name)
    return kind in (CallKind.SYNC, CallKind.WAIT) or (kind is CallKind.COPY and "async" not in name.lower())
