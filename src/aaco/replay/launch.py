"""A captured launch as the arguments of CUDA's driver: its bytes in memory that outlives the launches."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from msgspec import Struct

from aaco.replay.documents import KernelLaunch

ALIGNMENT = 128  # of the argument buffer: tensor maps (CUtensorMap) need 64
ATTRIBUTE_BYTES = 72
CLUSTER_DIMENSION = 4
BUFFER_POINTER, BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE
DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14  # CUfunction_attribute
STATIC_LIMIT = 48 << 10  # bytes of dynamic shared memory that a kernel gets without asking
CONFIG = struct.Struct("<7I4xQQI4x")  # CUlaunchConfig: grid, block, shared memory, stream, attributes, their number


class EncodedLaunch(Struct, frozen=True):
    """Arguments of cuLaunchKernelEx, without the function, which goes between; and what they point to."""

    config: Any
    pointers: Any  # None where the arguments go as a buffer
    extra: Any
    function_attributes: dict[int, int]
    kept: tuple[Any, ...]


def encode(launch: KernelLaunch, stream: int) -> EncodedLaunch:
    """Return the launch for a stream. Raise ValueError if its arguments have no layout and need one."""
    arguments = bytes.fromhex(launch.arguments)
    raw, start = aligned(arguments)
    attributes = b"".join(bytes.fromhex(attribute.hex).ljust(ATTRIBUTE_BYTES, b"\0") for attribute in launch.attributes)
    values = ctypes.create_string_buffer(attributes, len(attributes) or 1)
    config = ctypes.create_string_buffer(CONFIG.pack(
        *launch.grid, *launch.block, launch.dynamic_lds_bytes, stream, ctypes.addressof(values) if attributes else 0,
        len(launch.attributes)), CONFIG.size)
    pointers, extra, size = None, None, ctypes.c_size_t(len(arguments))
    if launch.passed_as == "buffer":
        extra = (ctypes.c_void_p * 5)(BUFFER_POINTER, start, BUFFER_SIZE, ctypes.addressof(size), None)
    elif arguments:
        if launch.layout is None:
            raise ValueError("the capture does not say where its arguments lie")
        pointers = (ctypes.c_void_p * len(launch.layout))(*[start + place.offset for place in launch.layout])
    return EncodedLaunch(config, pointers, extra, _function_attributes(launch), (raw, values, size))


def aligned(content: bytes) -> tuple[Any, int]:
    """Return memory that holds the content at a multiple of ALIGNMENT, and that address."""
    raw = ctypes.create_string_buffer(len(content) + ALIGNMENT)
    start = -(-ctypes.addressof(raw) // ALIGNMENT) * ALIGNMENT
    ctypes.memmove(start, content, len(content))
    return raw, start


def _function_attributes(launch: KernelLaunch) -> dict[int, int]:
    """Return what the program must have set on the function for the driver to accept this launch."""
    needed = {}
    if launch.dynamic_lds_bytes > STATIC_LIMIT:
        needed[DYNAMIC_SHARED] = launch.dynamic_lds_bytes
    if any(attribute.id == CLUSTER_DIMENSION for attribute in launch.attributes):
        needed[NON_PORTABLE_CLUSTER] = 1
    return needed
