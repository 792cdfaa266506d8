"""The device of captures that do not say which it is, by the name that the user gives (`aaco import --device`)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from aaco.analytics.roofline.devices.boards import BOARDS, Board, board_of
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.profiler.capture import CapturedDevice, CaptureFacts


def board_named(name: str) -> Board:
    """Return the board of this name. Raise UsageError if none or several have it."""
    try:
        return board_of(name)
    except Absent as reason:
        raise UsageError(f"--device {name}: {reason}", f"known: {', '.join(board.name for board in BOARDS)}") from None


def with_board(facts: CaptureFacts, board: Board, device_ids: Iterable[int]) -> CaptureFacts:
    """Return the facts of a capture whose devices are such boards, where it does not say so itself.

    device_ids: of the capture's work, for devices that it does not list. Raise UsageError if it names another device.
    """
    listed = {device.id: device for device in facts.devices}
    named = (_as_board(listed.get(number, CapturedDevice(number)), board) for number in sorted({*listed, *device_ids}))
    return replace(facts, devices=tuple(named))


def _as_board(device: CapturedDevice, board: Board) -> CapturedDevice:
    for what, said, meant in (("architecture", device.arch, board.arch),
                              ("number of compute units", device.compute_units, board.compute_units)):
        if said is not None and said != meant:
            raise UsageError(f"--device {board.name}: the capture has {said} as the {what} of device {device.id}",
                             "leave --device out: the capture says which device it is")
    memory = device.vram_bytes or int(board.memory_gib * 2**30) or None
    return CapturedDevice(device.id, device.name or board.name, board.arch, board.compute_units, memory)
