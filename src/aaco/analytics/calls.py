"""What a host-side call does to a device, told by its name: rules as data, for CUDA, HIP and HSA alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


class Does(IntEnum):
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
RULES: tuple[tuple[Does, str], ...] = (
    (Does.BEGIN_CAPTURE, r"(cuda|hip|cu)StreamBeginCapture"),
    (Does.END_CAPTURE, r"(cuda|hip|cu)StreamEndCapture"),
    (Does.GRAPH, r"(cuda|hip|cu)GraphLaunch"),
    (Does.LAUNCH, r"(cuda|hip|hipExt|cu)(Module)?Launch(Cooperative)?(Kernel|Grid)"),
    (Does.LAUNCH, r"hip(Ext)?ModuleLaunch|hipHccModuleLaunch|hipLaunchByPtr|hipExtLaunch"),
    (Does.COPY, r"(cuda|hip|cu)Memcpy"),
    (Does.COPY, r"hsa_amd_memory_async_copy"),
    (Does.FILL, r"(cuda|hip|cu)Memset"),
    (Does.SYNC, r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize"),
    (Does.WAIT, r"(cuda|hip|cu)(Stream|Event)Synchronize|hsa_signal_wait"),
    (Does.RECORD, r"(cuda|hip|cu)EventRecord"),
    (Does.STREAM_WAIT, r"(cuda|hip|cu)StreamWaitEvent"),
)
_COMPILED = tuple((does, re.compile(pattern)) for does, pattern in RULES)


@lru_cache(1 << 16)
def does(name: str) -> Does:
    """The part a call of this name plays."""
    return next((part for part, pattern in _COMPILED if pattern.match(name)), Does.OTHER)


def parts(names: Sequence[str]) -> NDArray[np.int8]:
    """Per name of a dictionary, its part; index it with the column's codes."""
    return np.array([does(name) for name in names], np.int8)
