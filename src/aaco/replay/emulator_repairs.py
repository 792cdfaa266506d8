"""What the emulator has otherwise than the instruction set, put right where it is imported; its files stay as they are.

Sources: AMD, "CDNA 3" and "RDNA 3" instruction set architecture: flat addresses, S_GETPC_B64, local data share.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

from aaco.core.errors import AacoError
from aaco.replay.emulator_errors import NotEmulated

ROOM, MAP_NORESERVE = (4 << 30) + (1 << 20), 0x4000  # asm-generic/mman.h
FLAT_MASK, FLAT = 0xFC00C000, 0xDC000000  # of the first four bytes, on CDNA
BASE_BYTE, NO_BASE = 6, 0x7F
NO_REGISTERS = ("S_GETREG", "S_SENDMSG_RTN")  # of the hardware: its clock stands still
PC_BYTES = 4  # of S_GETPC_B64, behind which its result points


def repair(module: Any) -> None:
    """Put right an imported emulator. Raise AttributeError if it is another than that which this was written for."""
    _give_room(module)
    _refuse_registers(module)
    _ignore_base(module)
    _know_counter(module)


def _give_room(module: Any) -> None:
    """Put local memory where all that an index of 32 bits reaches is memory.

    The emulator reads it for inactive lanes, too, and their index may be anything.
    """
    room, made = mmap.mmap(-1, ROOM, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE), module.Buffer
    options, numbers = module.BufferSpec(external_ptr=ctypes.addressof(ctypes.c_char.from_buffer(room))), module.dtypes

    def buffer(*arguments: Any, **named: Any) -> Any:
        of_kernel = sys._getframe(1).f_code.co_name == "run_asm"
        if of_kernel and arguments[2:] == (numbers.uint32,) and not named:
            named = {"options": options}
        return made(*arguments, **named)

    module.Buffer, module._room_of_aaco = buffer, room


def _refuse_registers(module: Any) -> None:
    """Refuse instructions that read registers of the hardware: a clock would never change. A trap is the end."""
    decode = module.decode_inst

    def checked(content: bytes, family: str) -> Any:
        instruction = decode(content, family)
        name = getattr(getattr(instruction, "op", None), "name", "")
        if name.startswith(NO_REGISTERS):
            raise NotEmulated(f"{name} reads a register of the hardware, such as a clock")
        if name == "S_TRAP":
            raise AacoError("the kernel traps")
        return instruction

    module.decode_inst = checked


def _ignore_base(module: Any) -> None:
    """Let flat instructions of CDNA add no scalar register: the emulator reads a field that they do not have.

    It does so from the code in memory, where that field becomes the one that means none.
    """
    decode_at = module._decode_at

    def without_base(at: int, family: str) -> Any:
        if family == "cdna" and ctypes.c_uint32.from_address(at).value & FLAT_MASK == FLAT:
            ctypes.c_ubyte.from_address(at + BASE_BYTE).value |= NO_BASE
        return decode_at(at, family)

    module._decode_at = without_base


def _know_counter(module: Any) -> None:
    """Add S_GETPC_B64, by which code finds the variables of its module."""
    handlers, original = module._INST_HANDLERS, module._compile_sop

    def compiled(instruction: Any, context: Any) -> Any:
        if instruction.op.name != "S_GETPC_B64":
            return original(instruction, context)
        register = context.inst_field(type(instruction).sdst)
        low, high = module._split64(context.rpc() + module.UOp.const(PC_BYTES, module.dtypes.uint64))
        return module.UOp.sink(context.wsgpr_dyn(register, low), context.wsgpr_dyn(register + module._c(1), high),
                               *context.inc_pc())

    handlers |= {module.ir3.SOP1: compiled, module.irc.SOP1: compiled}
