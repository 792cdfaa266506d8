"""CUPTI's activity records as numpy types: the fields that are read, at their offsets in every version since CUDA 12.0.

Records grew only at their ends from 12.0 to 13.5 (tests/captures/cupti_layouts has the layouts of each version's own
header), so a record may be longer than the type here, never shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aaco.profiler.cupti.inside.tracer import COPY, DEVICE, DRIVER, FILL, KERNEL, PEER_COPY, RUNTIME

PLACE = {"deviceId": ("u4", 32), "contextId": ("u4", 36), "streamId": ("u4", 40)}
WHEN = {"start": ("u8", 16), "end": ("u8", 24)}
COPIED = {"copyKind": ("u1", 4), "srcKind": ("u1", 5), "dstKind": ("u1", 6), "bytes": ("u8", 8), **WHEN, **PLACE}
CALL = {"cbid": ("u4", 4), "start": ("u8", 8), "end": ("u8", 16), "processId": ("u4", 24), "threadId": ("u4", 28),
        "correlationId": ("u4", 32), "returnValue": ("u4", 36)}


def _record_type(fields: Mapping[str, tuple[str, int]]) -> np.dtype[np.void]:
    all_fields: Mapping[str, tuple[str, int]] = {"kind": ("u4", 0), **fields}
    shape: Any = {"names": list(all_fields), "formats": [kind for kind, _ in all_fields.values()],
                  "offsets": [offset for _, offset in all_fields.values()]}
    return np.dtype(shape)


TYPES: Mapping[int, np.dtype[np.void]] = {
    KERNEL: _record_type({
        "registersPerThread": ("u2", 6), **WHEN, "deviceId": ("u4", 40), "contextId": ("u4", 44),
        "streamId": ("u4", 48), "gridX": ("i4", 52), "gridY": ("i4", 56), "gridZ": ("i4", 60), "blockX": ("i4", 64),
        "blockY": ("i4", 68), "blockZ": ("i4", 72), "staticSharedMemory": ("i4", 76),
        "dynamicSharedMemory": ("i4", 80), "localMemoryPerThread": ("u4", 84), "correlationId": ("u4", 92),
        "name": ("u8", 104), "graphNodeId": ("u8", 144), "graphId": ("u4", 156)}),
    COPY: _record_type(COPIED | {"correlationId": ("u4", 44), "graphNodeId": ("u8", 64), "graphId": ("u4", 72)}),
    PEER_COPY: _record_type(COPIED | {"srcDeviceId": ("u4", 44), "dstDeviceId": ("u4", 52), "correlationId": ("u4", 60),
                                      "graphNodeId": ("u8", 72), "graphId": ("u4", 80)}),
    FILL: _record_type({"bytes": ("u8", 8), **WHEN, **PLACE, "correlationId": ("u4", 44), "graphNodeId": ("u8", 64),
                        "graphId": ("u4", 72)}),
    RUNTIME: _record_type(CALL),
    DRIVER: _record_type(CALL),
    DEVICE: _record_type({"globalMemorySize": ("u8", 16), "numMultiprocessors": ("u4", 44),
                          "computeCapabilityMajor": ("u4", 104), "computeCapabilityMinor": ("u4", 108),
                          "id": ("u4", 112), "name": ("u8", 136)}),
}


def split(buffer: bytes, sizes: Mapping[int, int]) -> tuple[dict[int, np.ndarray], dict[int, int], int]:
    """Return a buffer's records by kind, the number of records by kind that is not read, and the number of other bytes.

    sizes: the length of a record of each kind. Reading ends at a kind whose length is unknown, or shorter than its
    type.
    """
    words = np.frombuffer(buffer, np.uint32, len(buffer) // 4).tolist()
    places: dict[int, list[int]] = {}
    at = 0
    while at + 8 <= len(buffer):
        kind = words[at >> 2]
        size = sizes.get(kind, 0)
        if size < (TYPES[kind].itemsize if kind in TYPES else 8) or at + size > len(buffer):
            break
        places.setdefault(kind, []).append(at)
        at += size
    plain = np.frombuffer(buffer, np.uint8)
    rows_by_kind = {kind: _gather_rows(plain, np.array(offsets), TYPES[kind])
                    for kind, offsets in places.items() if kind in TYPES}
    return rows_by_kind, {kind: len(offsets) for kind, offsets in places.items() if kind not in TYPES}, len(buffer) - at


def _gather_rows(plain: np.ndarray, places: np.ndarray, kind: np.dtype[np.void]) -> np.ndarray:
    rows = plain[places[:, None] + np.arange(kind.itemsize)]
    return rows.reshape(-1).view(kind)
