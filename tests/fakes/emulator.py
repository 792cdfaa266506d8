"""A checkout of an emulator that is none: it computes what the code's first four bytes say, in Python.

The code is tests/captures/replay/counter_gfx90a.hsaco, whose arguments are a counter, an input, an output and a number
of rows of 128 floats.
"""

from __future__ import annotations

import struct
from pathlib import Path

from aaco.profiler.formats.code_object import elf
from aaco.replay.capture import CaptureWriter
from aaco.replay.code import read_code
from aaco.replay.documents import CapturedFrom, KernelLaunch

CODE = Path(__file__).parents[1] / "captures/replay/counter_gfx90a.hsaco"
PARAMETERS = ("unsigned *", "const float *", "float *", "unsigned")
BASE, ROWS, THREADS = 0x6300_0000_0000, 3, 128
WRONG, UNKNOWN, ENDLESS, OUTSIDE, RIGHT, CLOCK, TRAP = 1, 2, 3, 4, 5, 6, 7  # in place of the code's first bytes
SOURCE = '''
import ctypes, tempfile
class UOp:
    const = staticmethod(lambda value, kind: value)
    sink = staticmethod(lambda *stores: stores)
class Context:
    def inst_field(self, field): return field
    def rpc(self): return 100
    def inc_pc(self): return ["next"]
    def wsgpr_dyn(self, register, value): return "write", register, value
class Instruction:
    def __init__(self, name):
        self.op = type("op", (), {"name": name})
class GetPc(Instruction):
    sdst = 8
    def __init__(self):
        super().__init__("S_GETPC_B64")
class ir3:
    class SOP1: pass
class irc:
    class SOP1: pass
_INST_HANDLERS = {}
def _compile_sop(inst, ctx): return "else"
def _split64(value): return value & 0xffffffff, value >> 32
def _c(value): return value
def _decode_at(at, family):
    return decode_inst(ctypes.string_at(at, 8), family)
def decode_inst(content, family):
    return Instruction({6: "S_GETREG_B32", 7: "S_TRAP"}.get(content[0], "V_ADD_F32"))
class Buffer:
    def __init__(self, device, size, dtype, options=None):
        self.options = options
class dtypes: uint32, uint64 = 1, 2
def BufferSpec(external_ptr):
    return external_ptr
def _get_ftz_lib():
    tempfile.NamedTemporaryFile(suffix=".so", delete=False).close()
def run_asm(lib, size, gx, gy, gz, lx, ly, lz, kernarg, rsrc2, scratch, arch, registers):
    assert (gx * lx, gy, gz, ly, lz, scratch, arch) == (384, 1, 1, 1, 1, 0, "cdna")
    room = Buffer("CPU", 8, dtypes.uint32).options + (1 << 32)
    assert ctypes.c_uint32.from_address(room).value == 0 and Buffer("CPU", 8, dtypes.uint32, options=5).options == 5
    assert registers[4:] == [kernarg & 0xffffffff, kernarg >> 32] and (rsrc2 >> 15 & 511) == (4 + 511) // 512
    what = ctypes.c_uint32.from_address(lib).value
    _decode_at(lib, arch)
    if what == 2: raise RuntimeError("[emu] unimplemented instruction type: MIMG")
    if what == 3: raise RuntimeError("exceeded 1M instructions in single wave, likely infinite loop")
    counter, source, target, rows = [ctypes.c_uint64.from_address(kernarg + 8 * n).value for n in range(4)]
    count = (rows & 0xffffffff) * 128
    a, out = (ctypes.c_float * count).from_address(source), (ctypes.c_float * (count + 1)).from_address(target)
    for at in range(count):
        out[at] = 2 * a[at] + (what == 1 and at == 7)
    if what == 4: out[count] = 1
'''


def checkout(folder: Path, source: str = SOURCE) -> Path:
    """The folder, with what is imported of it."""
    for package in ("test", "test/mockgpu", "test/mockgpu/amd"):
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "test/mockgpu/amd/emu.py").write_text(source)
    return folder


def code(what: int | None = None) -> bytes:
    """The code object, the kernel's first bytes replaced."""
    whole = bytearray(CODE.read_bytes())
    _, sections = elf.read_sections(CODE, bytes(whole), 224, "", "")
    kernel = next(symbol for symbol in elf.symbols(CODE, bytes(whole), sections) if symbol.name == "counter")
    section = sections[kernel.section]
    if what is not None:
        struct.pack_into("<I", whole, section.offset + kernel.position - section.address, what)
    return bytes(whole)


def capture(path: Path, isa: str = "gfx90a", off: float = 0.0) -> Path:
    """A capture of a launch as HSA has it. off: how far one of the captured results is from what is computed."""
    inputs = [0.25 + at % 64 / 100 for at in range(ROWS * THREADS)]
    single = [struct.unpack("<f", struct.pack("<f", number))[0] for number in inputs]
    after = [2 * number + off * (at == 3) for at, number in enumerate(single)]
    memory = {BASE: (bytes(4), bytes(4)), BASE + (64 << 20): 2 * (struct.pack(f"<{len(single)}f", *single),),
              BASE + (128 << 20): (bytes(4 * len(after)), struct.pack(f"<{len(after)}f", *after))}
    with CaptureWriter(path, page_bytes=4096) as writer:
        for base, (before, left) in memory.items():
            writer.add_region(base, len(before), "device", before)
            writer.set_after(base, left)
        writer.finish(
            launch=KernelLaunch(symbol="counter", number=0, grid=(ROWS * THREADS, 1, 1), grid_unit="work-items",
                                block=(THREADS, 1, 1), dynamic_lds_bytes=0, passed_as="buffer",
                                arguments=struct.pack("<3QI", *memory, ROWS).hex(),
                                layout=read_code(CODE, "hsaco", code()).arguments["counter"]),
            code=code(), kind="hsaco",
            captured_from=CapturedFrom(vendor="AMD", device="AMD Instinct", isa=isa, granule_bytes=4096))
    return path
