"""Writes AMD GPU code objects and bundles of them as linkers and clang do, for tests. The kernels are made up."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

KERNEL = {".name": "axpy", ".symbol": "axpy.kd", ".vgpr_count": 178, ".agpr_count": 50, ".sgpr_count": 46,
          ".vgpr_spill_count": 3, ".sgpr_spill_count": 0, ".group_segment_fixed_size": 1024,
          ".private_segment_fixed_size": 16, ".wavefront_size": 64, ".max_flat_workgroup_size": 256,
          ".kernarg_segment_size": 28, ".kernarg_segment_align": 8, ".uses_dynamic_stack": False,
          ".args": [{".name": "a", ".offset": 0, ".size": 8, ".value_kind": "global_buffer",
                     ".address_space": "global"}, {".offset": 8, ".size": 4, ".value_kind": "by_value"}]}
TARGET = "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-"


def metadata(*kernels: dict[str, Any], target: str = TARGET) -> dict[str, Any]:
    """The metadata of a code object."""
    return {"amdhsa.version": [1, 2], "amdhsa.target": target, "amdhsa.kernels": list(kernels or (KERNEL,))}


def code_object(said: Any = None, machine: int = 224, raw: bytes | None = None) -> bytes:
    """An ELF file with the metadata note, and a descriptor of 64 bytes for the symbol axpy.kd."""
    content = msgspec.msgpack.encode(metadata() if said is None else said) if raw is None else raw
    note = struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content + b"\0" * (-len(content) % 4)
    descriptor = struct.pack("<III4xq20xIIIHH4x", 1024, 16, 28, 256, 44 | 12 << 0, 22, 0, 0, 0)
    names = b"\0axpy.kd\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 1, 0, 2, 0x1000, 64)
    parts, at, rows = [], 64, [(0, 0, 0, 0, 0)]
    contents = ((7, note, 0, 0), (1, descriptor, 0x1000, 0), (3, names, 0, 0), (2, symbols, 0, 3))
    for kind, data, address, link in contents:
        rows.append((kind, address, at, len(data), link))
        parts.append(data)
        at += len(data)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7), 3, machine, 1, 0, 0, at, 0, 64,
                         0, 0, 64, len(rows), 0)
    sections = b"".join(struct.pack("<IIQQQQIIQQ", 0, kind, 0, address, offset, size, link, 0, 0, 0)
                        for kind, address, offset, size, link in rows)
    return header + b"".join(parts) + sections


def bundle(entries: dict[str, bytes]) -> bytes:
    """clang's offload bundle of these contents by target."""
    size = 32 + sum(24 + len(target) for target in entries)
    table, contents = b"", b""
    for target, content in entries.items():
        table += struct.pack("<QQQ", size + len(contents), len(content), len(target)) + target.encode()
        contents += content
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + contents


TEXT = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
\t.text
\t.type\taxpy,@function
axpy:                                   ; @axpy
\ts_load_dwordx4 s[0:3], s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
; %bb.0: s_nop 0
.LBB0_1:
\tv_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]
\tglobal_load_dword v5, v[2:3], off ; a remark: s_nop
\tds_read_b128 v[0:3], v4
\ts_cbranch_execz .LBB0_1
\ts_endpgm
.Lfunc_end0:
\t.section\t.AMDGPU.csdata,"",@progbits
; codeLenInByte = 40
; Occupancy: 2
\t.section\t.debug_str
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .name: axpy
    .symbol: axpy.kd
    .vgpr_count: 178
    .wavefront_size: 64
    .max_flat_workgroup_size: 256
amdhsa.target: amdgcn-amd-amdhsa--gfx942
...

\t.end_amdgpu_metadata
"""
