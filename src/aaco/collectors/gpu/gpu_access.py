"""Obstacles between this user and the GPUs that are plugged in: drivers, device nodes, groups, versions, locks.

Each function returns what is fine, or raises Absent with what is not. They read files and call no driver. Only `nvml`
calls one, in a separate process, because a driver may hang.
"""

from __future__ import annotations

import ctypes
import grp
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from aaco.collectors.host.bpf import capabilities
from aaco.collectors.inventory import environment, machine
from aaco.core.host import Host, number, text
from aaco.core.readings import Absent, known

AMD, NVIDIA = 0x1002, 0x10DE  # the PCI SIG's list
GPU_CLASSES = (0x03, 0x12)  # PCI base classes: display controller, processing accelerator
NVML_TIMEOUT_S = 10.0
# The release that a version of the module amdgpu is of: packages amdgpu-dkms of repo.radeon.com; their version is that
# of the module and the release (6.16.13.30300100 is of 30.30.1). From 31.40 on the module itself says both.
DRIVERS = {(6, 2, 4): "5.7", (6, 3, 6): "6.0", (6, 7, 0): "6.1", (6, 8, 5): "6.2", (6, 10, 5): "6.3",
           (6, 12, 12): "6.4", (6, 14, 14): "30.10", (6, 16, 6): "30.20", (6, 16, 13): "30.30"}
# Which ROCm goes with a release of the driver: the compatibility matrix of AMD's driver, which was ROCm's "user and
# kernel-space support matrix" (ROCm/amdgpu-docs, docs/compatibility/compatibility-matrix.rst). From 30.10 on the driver
# is released by itself.
GOES_WITH = {driver: tuple(releases.split()) for driver, releases in {
    "5.7": "5.5 5.6 5.7 6.0 6.1",
    "6.0": "5.6 5.7 6.0 6.1 6.2",
    "6.1": "5.7 6.0 6.1 6.2 6.3 6.4",
    "6.2": "6.0 6.1 6.2 6.3 6.4 7.0",
    "6.3": "6.1 6.2 6.3 6.4 7.0",
    "6.4": "6.1 6.2 6.3 6.4 7.0 7.1 7.2",
    "30.10": "6.2 6.3 6.4 7.0 7.1 7.2 7.14 10.0",
    "30.20": "6.3 6.4 7.0 7.1 7.2 7.14 10.0",
    "30.30": "6.3 6.4 7.0 7.1 7.2 7.14 10.0",
    "31.40": "7.0 7.1 7.2 7.14 10.0",
    "31.50": "7.0 7.1 7.2 7.14 10.0",
}.items()}
KNOWN_ROCM = {release for releases in GOES_WITH.values() for release in releases}
# The first ROCm release that knows an architecture (ROCm's release notes).
SINCE = {"gfx942": (6, 0), "gfx950": (7, 0), "gfx1200": (6, 4), "gfx1201": (6, 4)}
INSTALL = {"amdgpu": "install amdgpu-dkms", "nvidia": "install the driver of the distribution, or nvidia.com's"}
PASS = {"amdgpu": "--device /dev/kfd --device /dev/dri", "nvidia": "--gpus all (NVIDIA container toolkit)"}
MAKE = {"amdgpu": "sudo udevadm trigger, and read dmesg", "nvidia": "sudo nvidia-modprobe -u -c=0"}
OWN_LINE = "see the driver's own line"
NO_DEVICE = "nothing to mend: use a machine that has one"


class Lacking(Absent):
    """What is not fine, and the fix for it."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


def driver(vendor: int, module: str) -> Callable[[Host], str]:
    """Return a probe: do a vendor's devices have their driver? It distinguishes "none plugged in" from "none loaded".
    """
    def probe(host: Host) -> str:
        plugged = on_bus(host, vendor)
        loaded = (host.sys / "module" / module).is_dir()
        if not plugged and not loaded:
            raise Lacking("no such device is on the PCI bus", NO_DEVICE)
        if not loaded:
            rival = next((name for name in ("nouveau", "vfio_pci") if (host.sys / "module" / name).is_dir()), None)
            raise Lacking(f"{', '.join(plugged)} is on the PCI bus, but the driver {module} is not loaded"
                          + (f" ({rival} is)" if rival else ""),
                          f"keep {rival} from it and reboot: echo 'blacklist {rival}' | sudo tee "
                          f"/etc/modprobe.d/{rival}.conf" if rival else
                          f"sudo modprobe {module}, and read dmesg; where there is no such module, {INSTALL[module]}")
        version = known(text, host.sys / "module" / module / "version") or "the kernel's own"
        return f"{module} {version}, {len(plugged)} on the PCI bus"
    return probe


def on_bus(host: Host, vendor: int) -> list[str]:
    """Return the PCI addresses of a vendor's GPUs."""
    addresses = []
    for device in sorted((host.sys / "bus/pci/devices").glob("*")):
        kind = known(number, device / "class")
        if known(number, device / "vendor") == vendor and kind is not None and kind >> 16 in GPU_CLASSES:
            addresses.append(device.name)
    return addresses


def amd_nodes(host: Host) -> str:
    """Return whether this user may open /dev/kfd and the render nodes of AMD's devices."""
    cards = sorted((host.sys / "class/drm").glob("renderD*"))
    nodes = [host.root / "dev/dri" / card.name for card in cards if known(number, card / "device/vendor") == AMD]
    return open_to(host, nodes, "amdgpu")


def nvidia_nodes(host: Host) -> str:
    """Return whether this user may open the nodes of NVIDIA's devices."""
    minors = [re.search(r"^Device Minor:\s*(\d+)", known(text, path) or "", re.MULTILINE)
              for path in sorted((host.proc / "driver/nvidia/gpus").glob("*/information"))]
    nodes = [host.root / "dev" / name for name in ("nvidiactl", "nvidia-uvm")] if minors else []
    nodes += [host.root / f"dev/nvidia{minor[1]}" for minor in minors if minor]
    return open_to(host, nodes, "nvidia")


def open_to(host: Host, nodes: Sequence[Path], module: str) -> str:
    """Return which of the nodes this user may read and write.

    Raise Lacking for missing nodes, and for the first node that the user may not open.
    """
    if not nodes:
        raise Lacking(f"the driver {module} offers no device", OWN_LINE)
    missing = [str(node) for node in nodes if not node.exists()]
    if missing:
        inside = known(environment.container, host)
        raise Lacking(f"the kernel offers {', '.join(missing)}, but "
                      + (f"this container ({inside}) was not given it" if inside else "there is no such file"),
                      f"start the container with {PASS[module]}" if inside else MAKE[module])
    for node in nodes:
        may_open(host, node, module)
    return f"{', '.join(map(str, nodes))} open to this user"


def may_open(host: Host, node: Path, module: str = "amdgpu") -> None:
    """Raise Lacking if this user may not read and write a node, with its group and the user's groups."""
    if os.access(node, os.R_OK | os.W_OK):
        return
    about = node.stat()
    group, own_groups = _group(about.st_gid), ", ".join(map(_group, sorted(set(os.getgroups())))) or "none"
    inside = known(environment.container, host)
    raise Lacking(f"{node} is of group {group} (mode {stat.S_IMODE(about.st_mode):o}), "
                  f"and this process is in {own_groups}",
                  f"start the container with {PASS[module]} --group-add {about.st_gid}" if inside else
                  f"sudo usermod -aG {group} $USER, then log in again" if about.st_gid and about.st_mode & 0o060 else
                  f"sudo chmod g+rw {node} for a group of this user, by a udev rule that lasts")


def rocm_fits(host: Host) -> str:
    """Return whether ROCm is new enough for the devices, and compatible with the loaded driver."""
    version = text(environment.rocm_folder(host) / ".info/version")
    rocm = _release(version)
    if rocm is None:
        raise Absent(f"ROCm names no version: {version[:40]!r}")
    for gpu in known(machine.amd_gpus, host) or ():
        if gpu.arch in SINCE and rocm < SINCE[gpu.arch]:
            raise Absent(f"ROCm {version} is older than {gpu.name or gpu.arch} ({gpu.arch}), which it knows since "
                         f"{'.'.join(map(str, SINCE[gpu.arch]))}")
    module = known(text, host.sys / "module/amdgpu/version")
    release = driver_release(module)
    named = f"{rocm[0]}.{rocm[1]}"
    if release not in GOES_WITH or named not in KNOWN_ROCM:
        return (f"ROCm {version}; whether the driver ({module or 'the kernel’s own'}) goes with it, "
                "AMD's list does not say")
    if named not in GOES_WITH[release]:
        raise Absent(f"the driver {module}, of release {release}, goes with ROCm {', '.join(GOES_WITH[release])}, "
                     f"and this is {version}")
    return f"ROCm {version} with the driver {module} of release {release}"


def driver_release(module: str | None) -> str | None:
    """Return the release of a version of the module amdgpu; None if unknown."""
    numbers = [int(part) for part in re.findall(r"\d+", module or "")]
    if len(numbers) > 3 and (release := re.match(r"(\d\d)(\d\d)\d{4}$", str(numbers[3]))):  # 6.19.14.31400000
        return f"{release[1]}.{release[2]}"
    return DRIVERS.get((*numbers, 0, 0, 0)[:3])  # type: ignore[arg-type]


def nvml(_: Host) -> str:
    """Return whether NVML opens and sees a device, from a separate process."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise Absent(str(error)) from error
    code = "from aaco.collectors.gpu import nvml; print(nvml.why_not() or '')"
    if why := machine.ask([sys.executable, "-P", "-c", code], NVML_TIMEOUT_S).strip():
        raise Absent(why)
    return "libnvidia-ml.so.1 opens and sees a device"


def nvidia_counters(host: Host) -> str:
    """Return whether this process may read the device's performance counters (NVIDIA, ERR_NVGPUCTRPERM)."""
    content = known(text, host.proc / "driver/nvidia/params")
    if content is None:
        raise Lacking("the driver nvidia is not loaded here", OWN_LINE)
    locked = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", content, re.MULTILINE)
    if locked is None:
        raise Absent(f"{host.proc / 'driver/nvidia/params'}: does not tell who may profile")
    if locked[1] != "0" and "CAP_SYS_ADMIN" not in capabilities(host):
        raise Absent("only administrators may profile (RmProfilingAdminOnly is 1), and this process has no "
                     "CAP_SYS_ADMIN")
    return "open to every user" if locked[1] == "0" else "open to administrators, as this process is"


def cuda_fits(host: Host) -> str:
    """Return whether the driver supports the toolkit's CUDA version, by their major numbers."""
    knows = _driver_cuda()
    driver = f"the driver knows CUDA {knows // 1000}.{knows % 1000 // 10}"
    toolkit = host.root / os.environ.get("CUDA_HOME", "/usr/local/cuda").lstrip("/")
    toolkit_version = _toolkit_cuda(toolkit)
    if toolkit_version is None:
        return f"{driver}; no toolkit at {toolkit} to compare it with"
    if toolkit_version[0] > knows // 1000:
        raise Absent(f"the toolkit is of CUDA {toolkit_version[0]}.{toolkit_version[1]}, {driver}")
    return f"{driver}, the toolkit is of {toolkit_version[0]}.{toolkit_version[1]}"


def _toolkit_cuda(toolkit: Path) -> tuple[int, int] | None:
    """Return the toolkit's version, from its header if it was installed without version.json."""
    if version := re.search(r'"cuda"\s*:\s*{[^}]*"version"\s*:\s*"(\d+)\.(\d+)',
                            known(text, toolkit / "version.json") or ""):
        return int(version[1]), int(version[2])
    if version := re.search(r"#define CUDA_VERSION (\d+)", known(text, toolkit / "include/cuda.h") or ""):
        return int(version[1]) // 1000, int(version[1]) % 1000 // 10
    return None


def _driver_cuda() -> int:
    """Return the version of cuDriverGetVersion, 12040 for 12.4; it opens no device."""
    version = ctypes.c_int()
    try:
        code = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError as error:
        raise Lacking(str(error), OWN_LINE) from error
    if code or version.value <= 0:
        raise Absent(f"cuDriverGetVersion: error {code}")
    return version.value


def _group(number_of: int) -> str:
    try:
        return grp.getgrgid(number_of).gr_name
    except KeyError:
        return str(number_of)


def _release(version: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(match[1]), int(match[2])) if match else None
