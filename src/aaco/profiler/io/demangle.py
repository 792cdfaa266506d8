"""C++ symbols as people write them, by the compiler's own demangler: __cxa_demangle of libstdc++.

Nothing else demangles; kernel families need only the function in a symbol (analytics/kernels/families/function_names).
It is asked in a process of its own with little memory and time: a crafted name of 200 characters stands for a text that
no memory holds, and the function can be neither bounded nor stopped. What it does not answer stays as it is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping

SYMBOL = re.compile(r"_Z[\w.$]{1,8189}", re.ASCII)
LONGEST_TEXT, MOST_TEXT = 1 << 16, 16 << 20  # of one name, and of all: real ones take kilobytes
MEMORY_BYTES = 1 << 29
CPU_S = 1


def demangled(names: Iterable[str]) -> Mapping[str, str]:
    """The text of each mangled name that has one; of others nothing. No errors: what is not known stays mangled."""
    symbols = {name for name in names if SYMBOL.fullmatch(name)}
    if not symbols:
        return {}
    try:
        done = subprocess.run([sys.executable, "-I", "-S", __file__], encoding="ascii",
                              input="\n".join(sorted(symbols, key=len)),  # crafted ones are long, and end it
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return {}
    whole = done.stdout.rpartition("\n")[0]  # its limit may end the process within a line that waits for room
    return dict(json.loads(line) for line in whole.splitlines())


def _main() -> None:
    """Answer the symbols on standard input, a line each, as long as the limits allow. Imports nothing of ours."""
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    left = MOST_TEXT
    for symbol in sys.stdin.read().splitlines():
        place = demangle(symbol.encode(), None, None, None)  # is not freed: the process ends soon
        text = ctypes.string_at(place) if place else b""
        if 0 < len(text) <= min(LONGEST_TEXT, left) and text.isascii():
            left -= len(text)
            os.write(1, json.dumps([symbol, text.decode()]).encode() + b"\n")  # at once: nothing waits in a buffer


if __name__ == "__main__":
    _main()
