"""Loads the light skeletons of native/bpf into the kernel by bpf(2): no library, no compiler, no headers, no root.

A blob holds a loader program, which the kernel itself runs: it makes the maps, fits the programs to the types of the
running kernel (CO-RE) and loads them, all or nothing. It needs CAP_BPF with CAP_PERFMON, and a kernel with BTF.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import re
import struct
import sys
import zlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.core.closing import Closing
from aaco.core.errors import Missing
from aaco.core.host import Host, text
from aaco.core.readings import Absent, known

# The system call's number, by machine, and its commands (include/uapi/linux/bpf.h).
_NUMBERS = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _PROG_LOAD, _PROG_RUN = 0, 1, 2, 5, 10
_OBJECT_INFO, _RAW_TRACEPOINT_OPEN, _LINK_CREATE, _ENABLE_STATS = 15, 17, 28, 32
_ARRAY, _SYSCALL_PROGRAM, _SLEEPABLE, _PERF_EVENT = 2, 31, 1 << 4, 41
_LICENSE = b"Dual MIT/GPL\0"
# Where struct bpf_prog_info keeps run_time_ns, run_cnt and recursion_misses, and struct bpf_map_info value_size.
_INFO_BYTES, _RUNS_AT, _VALUE_SIZE_AT = 216, 192, 12
# struct bpf_loader_ctx, then per map struct bpf_map_desc, then per program its descriptor (libbpf's skel_internal.h).
_CONTEXT, _MAP, _PROGRAM = struct.Struct("<4IQ"), struct.Struct("<iIQ"), struct.Struct("<i")
# Bits of CapEff in proc_pid_status(5), from include/uapi/linux/capability.h.
CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h
GRANT = f"run as root, or: sudo setcap cap_bpf,cap_perfmon+ep {os.path.realpath(sys.executable)}"


class Blob(Struct, frozen=True):
    """A feature as native/bpf/pack.py packed it."""

    facts: dict[str, Any]
    data: bytes
    instructions: bytes


@cache
def blob(name: str) -> Blob:
    """Return the feature of that name, from the package. Raise Missing if the installation does not have it."""
    path = resources.files("aaco.collectors") / "blobs" / f"{name}.blob"
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise Missing(f"{path}: not in this installation", "make -C native/bpf, or reinstall aaco") from error
    line, _, code = zlib.decompress(content).partition(b"\n")
    facts = json.loads(line)
    return Blob(facts, code[:facts["data_bytes"]], code[facts["data_bytes"]:])


def possible(host: Host) -> str:
    """Return what makes BPF possible for this process on this host. Raise Absent with the reason if it is not."""
    if not (held := known(capabilities, host) or set()) & {"CAP_SYS_ADMIN"} and not held >= {"CAP_BPF", "CAP_PERFMON"}:
        raise Absent("this process has neither CAP_BPF with CAP_PERFMON nor CAP_SYS_ADMIN")
    if not (host.sys / "kernel/btf/vmlinux").exists():
        raise Absent(f"{host.sys / 'kernel/btf/vmlinux'} is missing: the kernel has no type information")
    if "[confidentiality]" in (known(text, host.sys / "kernel/security/lockdown") or ""):
        raise Absent("kernel lockdown is in confidentiality mode, which keeps BPF from reading kernel memory")
    if (namespace := _read_link(host.proc / "self/ns/pid")) not in (None, INITIAL_PID_NAMESPACE):
        raise Absent(f"this process lives in a PID namespace of its own ({namespace}), and the kernel numbers "
                     "processes by the first: run on the host, or the container with --pid=host")
    return "CAP_BPF and CAP_PERFMON held, BTF present"


def _read_link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None


def capabilities(host: Host) -> set[str]:
    """Return those of CAPABILITIES that this process holds. Raise Absent."""
    match = re.search(r"CapEff:\s*([0-9a-f]+)", text(host.proc / "self/status"))
    bits = int(match[1], 16) if match else 0
    return {name for name, bit in CAPABILITIES.items() if bits >> bit & 1}


def loads(name: str) -> Callable[[Host], str]:
    """Return a probe that loads the feature and removes it, which takes a fraction of a second: only that is proof.

    On a copy of a host's files its answer is that of `possible`.
    """
    def probe(host: Host) -> str:
        detail = possible(host)
        if host.root != Host().root:
            return detail
        try:
            with Feature(name, b"") as feature:
                return f"{len(feature.programs)} programs accepted by kernel {platform.release()}"
        except Missing as error:
            raise Absent(error.what) from error
    return probe


class Feature(Closing):
    """A blob in the kernel: its maps and programs by name, as file descriptors. `close` removes it all.

    `settings` becomes the content of its read-only data, padded with zeros; `entries` overrides sizes of maps. Raises
    Missing with the kernel's reason.
    """

    def __init__(self, name: str, settings: bytes, entries: dict[str, int] | None = None) -> None:
        self.name = name
        self._links: list[int] = []
        self.maps: dict[str, int] = {}
        self.programs: dict[str, int] = {}
        code = blob(name)
        try:
            context = _run_loader(code, _loader_context(code.facts, settings, entries or {}))
        except OSError as error:
            raise refusal(f"BPF feature {name}", error) from error
        programs_at = _CONTEXT.size + _MAP.size * len(code.facts["maps"])
        for number, title in enumerate(code.facts["maps"]):
            self.maps[title] = _MAP.unpack_from(context, _CONTEXT.size + number * _MAP.size)[0]
        for number, title in enumerate(code.facts["programs"]):
            self.programs[title] = _PROGRAM.unpack_from(context, programs_at + number * _PROGRAM.size)[0]

    def attach(self) -> None:
        """Let every program run from now on. Raise Missing."""
        for title, program in self.programs.items():
            try:
                self._links.append(_bpf(_RAW_TRACEPOINT_OPEN, struct.pack("<QIxxxx", 0, program))[0])
            except OSError as error:
                self.detach()
                raise refusal(f"BPF program {self.name}/{title}", error) from error

    def attach_to_event(self, program: str, perf_event: int, cookie: int) -> None:
        """Let a program run at a tracepoint opened by perf_event_open(2); it can read the cookie. Raise Missing."""
        request = struct.pack("<4IQ", self.programs[program], perf_event, _PERF_EVENT, 0, cookie)
        try:
            self._links.append(_bpf(_LINK_CREATE, request.ljust(64, b"\0"))[0])
        except OSError as error:
            raise refusal(f"BPF program {self.name}/{program}", error) from error

    def detach(self) -> None:
        """Stop the programs; the maps stay readable."""
        while self._links:
            os.close(self._links.pop())

    def close(self) -> None:
        """Stop the programs and remove everything from the kernel."""
        self.detach()
        for handles in (self.programs, self.maps):
            while handles:
                os.close(handles.popitem()[1])

    def per_cpu(self, name: str) -> list[tuple[int, ...]]:
        """Return the first value of a per-CPU array, as 64-bit words: one tuple per possible CPU."""
        words = -(-struct.unpack_from("<I", _read_info(self.maps[name]), _VALUE_SIZE_AT)[0] // 8)
        key, values = ctypes.c_uint32(0), ctypes.create_string_buffer(8 * words * possible_cpus())
        _bpf(_MAP_LOOKUP, struct.pack("<IxxxxQQQ", self.maps[name], ctypes.addressof(key), ctypes.addressof(values), 0))
        return list(struct.iter_unpack(f"<{words}Q", values))

    def runs(self) -> dict[str, tuple[int, int, int]]:
        """Return by program: ns and number of its runs, counted while `statistics` are on; and runs refused as
        recursive.
        """
        return {title: _read_runs(program) for title, program in self.programs.items()}


def statistics() -> int:
    """Return a file descriptor; while it is open, the kernel counts the time of all BPF programs on this host.

    Raise Missing without CAP_SYS_ADMIN.
    """
    try:
        return _bpf(_ENABLE_STATS, struct.pack("<I", 0))[0]
    except OSError as error:
        raise Missing(f"run time of BPF programs: {error.strerror}: it takes CAP_SYS_ADMIN", "run as root") from error


@cache
def possible_cpus() -> int:
    """Return how many CPUs the kernel keeps per-CPU values for (Documentation/admin-guide/cputopology.rst)."""
    last = re.split(r"[-,]", text(Host().cpus / "possible"))[-1]
    return int(last) + 1


def refusal(what: str, error: OSError) -> Missing:
    """Return the meaning of the kernel's error here, and what to try."""
    message = f"{what}: {error.strerror or error}"
    try:
        possible(Host())
    except Absent as reason:
        return Missing(f"{message}: {reason}", GRANT)
    if error.errno == errno.EPERM:
        return Missing(f"{message} although the capabilities are held: the kernel is locked down, or a container's "
                       "seccomp filter forbids it", "run on the host itself; dmesg | grep -i lockdown")
    if error.errno == errno.ENOSYS:
        return Missing(f"{message}: no bpf(2) on {platform.machine()} with kernel {platform.release()}",
                       "--ebpf needs Linux 6.1 or newer on x86-64")
    if error.errno == errno.EACCES:
        return Missing(f"{message}: the verifier of kernel {platform.release()} refuses a program",
                       "report it, with the version of the kernel")
    return Missing(f"{message}: kernel {platform.release()} lacks a type, an event or a kind of program that it needs",
                   "--ebpf is known to work from Linux 6.1 on")


def _loader_context(facts: dict[str, Any], settings: bytes, entries: dict[str, int]) -> tuple[bytes, Any]:
    """Return the loader's argument, and the read-only data that it points to, which must live until the loader has run.
    """
    constants = ctypes.create_string_buffer(settings, 4096)
    maps = [_MAP.pack(0, entries.get(title, 0), ctypes.addressof(constants) if title == "rodata" else 0)
            for title in facts["maps"]]
    whole = b"".join(maps) + bytes(_PROGRAM.size * len(facts["programs"]))
    return _CONTEXT.pack(_CONTEXT.size + len(whole), 0, 0, 0, 0) + whole, constants


def _run_loader(code: Blob, argument: tuple[bytes, Any]) -> bytes:
    """Do what bpf_load_and_run of libbpf's skel_internal.h does. Raise OSError."""
    data_map = _create_array(code.data)
    try:
        program = _load_loader(code.instructions, data_map)
        try:
            return _run(program, argument[0])
        finally:
            os.close(program)
    finally:
        os.close(data_map)


def _create_array(data: bytes) -> int:
    handle, _ = _bpf(_MAP_CREATE, struct.pack("<7I16s", _ARRAY, 4, len(data), 1, 0, 0, 0, b"__loader.map"))
    key, value = ctypes.c_uint32(0), ctypes.create_string_buffer(data, len(data))
    try:
        _bpf(_MAP_UPDATE, struct.pack("<IxxxxQQQ", handle, ctypes.addressof(key), ctypes.addressof(value), 0))
    except OSError:
        os.close(handle)
        raise
    return handle


def _load_loader(instructions: bytes, data_map: int) -> int:
    code, license_text = ctypes.create_string_buffer(instructions), ctypes.create_string_buffer(_LICENSE)
    maps = ctypes.c_int(data_map)
    request = struct.pack("<2I2Q2IQ2I16s", _SYSCALL_PROGRAM, len(instructions) // 8, ctypes.addressof(code),
                          ctypes.addressof(license_text), 0, 0, 0, 0, _SLEEPABLE, b"__loader.prog")
    request = request.ljust(120, b"\0") + struct.pack("<Q", ctypes.addressof(maps))  # fd_array
    return _bpf(_PROG_LOAD, request)[0]


def _run(program: int, context: bytes) -> bytes:
    """Return the context as the loader left it, file descriptors included. Raise OSError with the loader's error."""
    place = ctypes.create_string_buffer(context, len(context))
    request = struct.pack("<I36xIIQQ3Ixxxx", program, len(context), 0, ctypes.addressof(place), 0, 0, 0, 0)
    _, answer = _bpf(_PROG_RUN, request)
    result = struct.unpack_from("<i", answer, 4)[0]
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return place.raw


def _read_runs(program: int) -> tuple[int, int, int]:
    ns, count, misses = struct.unpack_from("<3Q", _read_info(program), _RUNS_AT)
    return ns, count, misses


def _read_info(handle: int) -> bytes:
    """Return the kernel's information on a map or a program."""
    info = ctypes.create_string_buffer(_INFO_BYTES)
    _bpf(_OBJECT_INFO, struct.pack("<IIQ", handle, _INFO_BYTES, ctypes.addressof(info)))
    return info.raw


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Return the result of bpf(2), and the attributes as the kernel left them. Raise OSError."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    place = ctypes.create_string_buffer(attributes, len(attributes))
    result = _c_library().syscall(ctypes.c_long(number), ctypes.c_int(command), place, ctypes.c_uint(len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result, place.raw
