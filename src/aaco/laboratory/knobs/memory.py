"""The machine's memory: swap off, and the page cache dropped on demand."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from aaco.core.host import text
from aaco.laboratory.knobs.knob import Knob, NotHere, Want, refusal, write_text

SWAP_FLAG_PREFER = 0x8000  # swapon(2)


class Swap(Knob):
    """Every swap device in use; its value is "on PRIORITY" or "off". Turning one off moves its pages to memory."""

    name = "swap"
    scope = "host"
    meaning = "nothing is swapped, by nobody"

    def wishes(self, want: Want) -> dict[str, str]:
        return dict.fromkeys(self._read_devices(), "off")

    def read(self, target: str) -> str:
        priority = self._read_devices().get(target)
        return "off" if priority is None else f"on {priority}"

    def write(self, target: str, value: str) -> None:
        """Set the value. The kernel gives priorities below 0 by itself, and gives them again."""
        if value == "off":
            _call_libc("swapoff", target)
            return
        priority = int(value.removeprefix("on "))
        _call_libc("swapon", target, SWAP_FLAG_PREFER | priority if priority >= 0 else 0)

    def command(self, target: str, value: str) -> str:
        return f"sudo swapoff {target}"

    def _read_devices(self) -> dict[str, int]:
        """Return path and priority from /proc/swaps, in which blanks of a path are octal (proc_swaps(5))."""
        rows = (line.split() for line in text(self.host.proc / "swaps").splitlines()[1:])
        return {row[0].encode().decode("unicode_escape"): int(row[4]) for row in rows}


class Caches(Knob):
    """The page cache, emptied once before the command. Undoing is neither possible nor necessary: it fills again."""

    name = "caches"
    scope = "host"
    meaning = "the command finds no file in the page cache"
    vanishes = True

    def wishes(self, want: Want) -> dict[str, str]:
        return {str(self.host.proc / "sys/vm/drop_caches"): "dropped"}

    def read(self, target: str) -> str:
        """Return the state.

        The file keeps the last number written, which is independent of the cache now (sysctl/vm.rst).
        """
        if not Path(target).exists():
            raise NotHere(f"{target} is missing")
        return self._state

    def write(self, target: str, value: str) -> None:
        os.sync()
        write_text(Path(target), "3")
        self._state = "dropped"

    def command(self, target: str, value: str) -> str:
        return f"sync; echo 3 | sudo tee {target}"

    _state = "as it is"


def _call_libc(function: str, path: str, *flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(os.fsencode(path), *flags):
        number = ctypes.get_errno()
        with refusal(f"{function} {path}"):
            raise OSError(number, os.strerror(number))
