"""Capabilities of this host: what can be measured, and for what cannot, the reason and a remedy."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

from msgspec import Struct

import aaco
from aaco.collectors.gpu import amd_sensors, gpu_access
from aaco.collectors.host import bpf, kernel_device, perf_event, tracepoints
from aaco.collectors.inventory import environment, machine
from aaco.core import extras
from aaco.core.host import Host, number, text
from aaco.core.machine import GIB
from aaco.core.readings import Absent, known
from aaco.core.words import plural

TOOL_TIMEOUT_S = 3.0
CUPTI_TIMEOUT_S = 10.0  # it initialises every GPU
LINKER_TIMEOUT_S = 30.0  # it reads gigabytes of CUDA's libraries, from a cold disk
LACKS = "what the dynamic linker lacks: "
# ONNX Runtime brings CUDA's libraries into the process itself, from their wheels. That, and its import, may warn of
# what keeps no provider from being loaded: only text after LACKS counts.
LOADS = """import ctypes, sys, onnxruntime
if "cuda" in sys.argv[1] or "tensorrt" in sys.argv[1]:
    onnxruntime.preload_dlls()
try:
    ctypes.CDLL(sys.argv[1])
except OSError as error:
    print()
    print(sys.argv[2], error, sep="")
"""
CUPTI_PROBE = Path(aaco.__file__).parent / "profiler/cupti/inside"  # it runs in any Python, and imports nothing of ours
CUPTI_FILE = "AACO_CUPTI"  # the environment variable that names the libcupti to load
SPARE_BYTES = GIB  # a profiled session of a large model stays well under it
WATCHING = {"CAP_PERFMON", "CAP_SYS_ADMIN"}  # each of these lets a process watch others
NO_DRIVER = "nvidia-smi must work, and a container needs --gpus all"

Probe = Callable[[Host], str]


class Capability(Struct, frozen=True):
    """One capability: present (`detail`), or absent (`why_not`, and `fix`, the next thing to try)."""

    group: str
    name: str
    available: bool
    detail: str = ""
    why_not: str = ""
    fix: str = ""


class HostCheck(Struct, frozen=True):
    """A check of one capability: `probe` returns the detail or raises Absent.

    in_kernel: it loads programs into the kernel, whose verifier takes tens of milliseconds of CPU for them.
    """

    group: str
    name: str
    probe: Probe
    fix: str
    in_kernel: bool = False

    def answer(self, host: Host) -> Capability:
        """Return the capability as it is on this host."""
        try:
            return Capability(self.group, self.name, True, self.probe(host))
        except Absent as reason:
            return Capability(self.group, self.name, False, why_not=str(reason), fix=getattr(reason, "fix", self.fix))


def examine(sessions: Path = Path("sessions"), host: Host | None = None, *, in_kernel: bool = True) -> list[Capability]:
    """Return every capability, in order of its group. Runs the tools it finds, all at once, to see whether they work.

    Without in_kernel, those that only the kernel's verifier can tell are left out. Takes at most about as long as the
    slowest tool, and no tool gets more than TOOL_TIMEOUT_S.
    """
    host = host or Host()
    disk = HostCheck("host", "disk space", partial(_disk, sessions), "aaco gc, or point AACO_SESSION_DIR elsewhere")
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda question: question.answer(host),
                             [question for question in (*QUESTIONS, disk) if in_kernel or not question.in_kernel]))


def _python(_: Host) -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _distribution(name: str) -> Probe:
    def probe(_: Host) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            raise Absent(f"the package {name} is not installed") from None
    return probe


def _onnxruntime(host: Host) -> str:
    installed = environment.onnxruntime(host)["distributions"]
    named = ", ".join(f"{name} {version}" for name, version in installed.items())
    if len(installed) > 1:
        raise Absent(f"{named} are all installed and overwrite each other's files")
    return named or "of unknown version"


def _provider(name: str, needs: Probe | None = None) -> Probe:
    """Return a probe: is the provider's library installed, and are the other libraries and the device that it needs
    present?
    """
    def probe(host: Host) -> str:
        providers = environment.ort_providers(host)
        if name not in providers:
            raise Absent(f"the installed ONNX Runtime brings only {', '.join(providers) or 'no provider'}")
        details = ["library installed"]
        missing = _missing_libraries(host, environment.provider_libraries(host).get(name))
        try:
            details += [needs(host)] if needs else []
        except Absent as reason:
            missing.append(str(reason))
        if missing:
            raise Absent("; ".join(missing))
        return "; ".join(details)
    return probe


def _missing_libraries(host: Host, library: Path | None) -> list[str]:
    """Return what the dynamic linker misses for the library, in its words, from a separate process.

    Nothing is loaded for a copy of a system.
    """
    if library is None or host != Host():
        return []
    answer = machine.ask([sys.executable, "-P", "-c", LOADS, str(library), LACKS], LINKER_TIMEOUT_S)
    return [line.removeprefix(LACKS) for line in answer.splitlines() if line.startswith(LACKS)]


def _tool(name: str, *options: str) -> Probe:
    """Return a probe: is the tool on PATH, and does it answer? The detail is its version if one is recognised."""
    def probe(_: Host) -> str:
        answer = machine.ask([name, *options], TOOL_TIMEOUT_S)
        version = re.search(r"\d+\.\d+(\.\d+)*", answer)
        return f"{version[0] if version else 'version not recognised'} at {shutil.which(name)}"
    return probe


def _device(path: str) -> Probe:
    def probe(host: Host) -> str:
        node = host.root / path
        if not node.exists():
            raise Absent(f"{node} is missing")
        gpu_access.may_open(host, node)
        return f"{node} is accessible"
    return probe


def _amd(host: Host) -> str:
    return _count_names([gpu.name for gpu in machine.amd_gpus(host)])


def _nvidia(host: Host) -> str:
    return _count_names([gpu.name for gpu in machine.nvidia_gpus(host)])


def _count_names(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))


def _amd_sensors(host: Host) -> str:
    reason = amd_sensors.why_not(host)
    if reason:
        raise Absent(reason)
    devices = amd_sensors.devices(host)
    unread = "".join(f"; device {device.index}: {why}" for device in devices if (why := amd_sensors.unread(device)))
    with_sensors = sum(device.hwmon is not None for device in devices)
    return f"{plural(len(devices), 'device')}, {with_sensors} of them with sensors{unread}"


def _libcuda(_: Host) -> str:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Absent(str(error)) from error
    return "libcuda.so.1 loads"


def _cupti(host: Host) -> str:
    """Return whether our tracer would trace a program of this Python, from a separate process.

    CUPTI traces nothing without the driver's library, so without it no process starts. A library that AACO_CUPTI names
    is always tried.
    """
    if not os.environ.get(CUPTI_FILE):
        _require_libcuda(host)
    answer = machine.ask([sys.executable, "-P", str(CUPTI_PROBE)], CUPTI_TIMEOUT_S)
    try:
        report = json.loads(answer.splitlines()[-1])
    except (IndexError, ValueError):
        raise Absent(f"the tracer's probe gave no answer: {answer[-80:]!r}") from None
    if "error" in report:
        raise gpu_access.Lacking(report["error"], report["fix"])
    return f"version {report['version']} traces: {report['library']}"


def _require_libcuda(host: Host) -> None:
    """Raise Lacking if the driver's library does not load."""
    try:
        _libcuda(host)
    except Absent as reason:
        raise gpu_access.Lacking(f"CUPTI needs the driver: {reason}", NO_DRIVER) from reason


def _perf_events(host: Host) -> str:
    """Return what perf_event_paranoid allows.

    Level 2 and below lets users watch their own processes (Documentation/admin-guide/perf-security.rst).
    """
    level = number(host.proc / "sys/kernel/perf_event_paranoid")
    if level > 2 and not bpf.capabilities(host) & WATCHING:
        raise Absent(f"perf_event_paranoid is {level} and this process has no CAP_PERFMON")
    whole = level < 1 or bpf.capabilities(host) & WATCHING
    return f"perf_event_paranoid {level}: {'the whole system' if whole else 'own processes'}"


def _switch_records(host: Host) -> str:
    """Return the result of a trial, because a container's seccomp filter may refuse what the level allows."""
    _perf_events(host)
    return perf_event.probe(host)


def _hardware_counters(host: Host) -> str:
    """Return the processor's event sources: `cpu` (x86; two on hybrids) or `armv*` provides the core's counters."""
    sources = host.sys / "bus/event_source/devices"
    names = sorted(path.name for pattern in ("cpu", "cpu_*", "armv*") for path in sources.glob(pattern))
    if not names:
        raise Absent(f"{sources}: no processor event source")
    return ", ".join(names)


def _gpu_events(host: Host) -> str:
    bpf.possible(host)
    groups = [event.group for event in tracepoints.gpu_events(host)]
    return ", ".join(f"{groups.count(group)} of {group}" for group in dict.fromkeys(groups))


def _pressure(host: Host) -> str:
    return text(host.proc / "pressure/cpu").splitlines()[0]


def _schedstat(host: Host) -> str:
    """Return a detail. All zeros in a running process mean that the kernel does not count."""
    ran, waited, _ = text(host.proc / "self/schedstat").split()
    if ran == waited == "0":
        raise Absent(f"{host.proc / 'self/schedstat'}: all zero: the kernel keeps no account")
    return "run-queue wait per thread"


def _governor(host: Host) -> str:
    policies = sorted((host.cpus / "cpufreq").glob("policy*/scaling_governor"))
    if not policies:
        raise Absent(f"{host.cpus / 'cpufreq'}: no policy: the kernel does not scale the frequency here")
    if not all(os.access(policy, os.W_OK) for policy in policies):
        raise Absent(f"{policies[0]} is not writable by this user")
    return _count_names([text(policy) for policy in policies])


def _cgroup_v2(host: Host) -> str:
    """Return the mount and its controllers.

    Look at the files, because a plain folder of that name is no control group.
    """
    folders = [host.sys / "fs/cgroup", host.sys / "fs/cgroup/unified"]
    mounted = [folder for folder in folders if (folder / "cgroup.controllers").exists()]
    if not mounted:
        raise Absent(f"{folders[0]}: version 2 is not mounted")
    controllers = text(mounted[0] / "cgroup.controllers").split()
    lacking = [name for name in ("cpu", "cpuset", "memory") if name not in controllers]
    if lacking:
        raise Absent(f"{mounted[0]} does not govern {', '.join(lacking)}")
    if not os.access(mounted[0] / "cgroup.procs", os.W_OK):
        raise Absent(f"{mounted[0]} is not writable by this user")
    return f"{mounted[0]}: {' '.join(controllers)}"


def _huge_pages(host: Host) -> str:
    content = text(host.sys / "kernel/mm/transparent_hugepage/enabled")
    if "[never]" in content:
        raise Absent("transparent_hugepage/enabled is never")
    return content


def _numa(host: Host) -> str:
    nodes = len(list((host.sys / "devices/system/node").glob("node[0-9]*")))
    if not nodes:
        raise Absent(f"{host.sys / 'devices/system/node'}: no node: a kernel without NUMA")
    return f"{nodes} node{'s' if nodes > 1 else ''}"


def _clock(host: Host) -> str:
    """Return the clock source. Sources other than these two cost a system call or a hypervisor exit per reading."""
    source = text(host.sys / "devices/system/clocksource/clocksource0/current_clocksource")
    if source not in ("tsc", "arch_sys_counter"):
        raise Absent(f"the clock source is {source}: reading the time is slow")
    return source


def _bare_metal(host: Host) -> str:
    container = known(environment.container, host)
    if environment.hypervisor(host):
        raise Absent("virtual machine" + (f", in a container ({container})" if container else ""))
    return f"in a container ({container})" if container else "no hypervisor, no container"


def _compiler(host: Host) -> str:
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return _tool(name, "--version")(host)
    raise Absent("none of cc, gcc, clang is on PATH")


def _disk(sessions: Path, _: Host) -> str:
    folder = next(path for path in (sessions.absolute(), *sessions.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Absent(f"{folder} is not writable by this user")
    if free < SPARE_BYTES:
        raise Absent(f"{folder}: {free / GIB:.2f} GiB free")
    return f"{folder}: {free / GIB:.0f} GiB free"


_ALONE = "on a host with the driver, in an environment of its own: pip install "
_ROCM = "install ROCm and put its bin folder on PATH: https://rocm.docs.amd.com"
_CUDA = "install the CUDA toolkit and put its bin folder on PATH"
QUESTIONS = (
    HostCheck("python", "Python", _python, ""),
    HostCheck("python", "aaco", _distribution("aaco"), "pip install . in aaco's own folder"),
    HostCheck("python", "onnx", _distribution("onnx"), extras.add("onnx")),
    HostCheck("runtime", "ONNX Runtime", _onnxruntime, "pip uninstall them all, then pip install exactly one of "
              "onnxruntime, onnxruntime-gpu, onnxruntime-migraphx, onnxruntime-openvino"),
    HostCheck("runtime", "CPUExecutionProvider", _provider("CPUExecutionProvider"), extras.add("onnxruntime")),
    HostCheck("runtime", "MIGraphXExecutionProvider", _provider("MIGraphXExecutionProvider", _device("dev/kfd")),
              _ALONE + "onnxruntime-migraphx"),
    HostCheck("runtime", "ROCMExecutionProvider", _provider("ROCMExecutionProvider", _device("dev/kfd")),
              "ONNX Runtime 1.23 dropped it: use MIGraphXExecutionProvider"),
    HostCheck("runtime", "CUDAExecutionProvider", _provider("CUDAExecutionProvider", _libcuda),
              _ALONE + "onnxruntime-gpu"),
    HostCheck("runtime", "TensorrtExecutionProvider", _provider("TensorrtExecutionProvider", _libcuda),
              _ALONE + "onnxruntime-gpu tensorrt"),
    HostCheck("runtime", "OpenVINOExecutionProvider", _provider("OpenVINOExecutionProvider"),
              "in an environment of its own: pip install onnxruntime-openvino"),
    HostCheck("amd", "amdgpu driver", gpu_access.driver(gpu_access.AMD, "amdgpu"), ""),
    HostCheck("amd", "AMD GPU", _amd,
              "load the amdgpu driver; in a container pass --device /dev/kfd --device /dev/dri"),
    HostCheck("amd", "amdgpu sensors", _amd_sensors, "load the amdgpu driver; in a container mount /sys read-only"),
    HostCheck("amd", "/dev/kfd", _device("dev/kfd"), "load the amdgpu driver; in a container pass --device /dev/kfd"),
    HostCheck("amd", "/dev/dri/renderD*", gpu_access.amd_nodes, ""),
    HostCheck("amd", "ROCm", lambda host: text(environment.rocm_folder(host) / ".info/version"),
              "install ROCm, or set ROCM_PATH to where it is"),
    HostCheck("amd", "ROCm and its driver", gpu_access.rocm_fits,
              "install the ROCm release that goes with the driver, or the driver (amdgpu-dkms) that goes with ROCm: "
              "https://rocm.docs.amd.com, user and kernel-space support matrix"),
    HostCheck("amd", "rocprofv3", _tool("rocprofv3", "--version"), _ROCM),
    HostCheck("amd", "rocprof", _tool("rocprof", "--version"), "prefer rocprofv3, its successor"),
    HostCheck("amd", "amd-smi", _tool("amd-smi", "version"), _ROCM),
    HostCheck("amd", "rocm-smi", _tool("rocm-smi", "--version"), "prefer amd-smi, its successor"),
    HostCheck("amd", "migraphx-driver", _tool("migraphx-driver", "--version"), "install the package migraphx of ROCm"),
    HostCheck("nvidia", "nvidia driver", gpu_access.driver(gpu_access.NVIDIA, "nvidia"), ""),
    HostCheck("nvidia", "NVIDIA GPU", _nvidia, "load the nvidia driver; in a container pass --gpus all"),
    HostCheck("nvidia", "nvidia-smi", _tool("nvidia-smi", "--version"), "it comes with the driver: put it on PATH"),
    HostCheck("nvidia", "libcuda", _libcuda, "it comes with the driver; in a container pass --gpus all"),
    HostCheck("nvidia", "/dev/nvidia*", gpu_access.nvidia_nodes, ""),
    HostCheck("nvidia", "NVML", gpu_access.nvml, "it comes with the driver: in a container pass --gpus all; where "
              "library and driver are of different versions, reboot, or reload nvidia and nvidia_uvm"),
    HostCheck("nvidia", "CUDA and its driver", gpu_access.cuda_fits,
              "update the driver, or take a toolkit and packages of the CUDA that it knows"),
    HostCheck("nvidia", "NVIDIA counters", gpu_access.nvidia_counters,
              "run as root, in a container with --cap-add SYS_ADMIN, or: echo 'options nvidia "
              "NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/profiling.conf, and reboot"),
    HostCheck("nvidia", "CUPTI", _cupti, extras.add("nvidia-cuda-cupti")),
    HostCheck("nvidia", "ncu", _tool("ncu", "--version"), _CUDA),
    HostCheck("nvidia", "nsys", _tool("nsys", "--version"), _CUDA),
    HostCheck("kernel", "perf events", _perf_events, "sudo sysctl kernel.perf_event_paranoid=2"),
    HostCheck("kernel", "switch records", _switch_records, perf_event.FIX),
    HostCheck("kernel", "hardware counters", _hardware_counters, "a virtual machine must be given a PMU by its host"),
    HostCheck("kernel", "BPF", bpf.possible, bpf.GRANT),
    HostCheck("kernel", "BPF scheduler events", bpf.loads("scheduler"), bpf.GRANT, in_kernel=True),
    HostCheck("kernel", "BPF fault latency", bpf.loads("faults"),
              "needs a kernel that allows fentry; without it faults are counted, not timed", in_kernel=True),
    HostCheck("kernel", "BPF GPU events", _gpu_events, tracepoints.GPU_FIX),
    HostCheck("kernel", "tracefs", lambda host: str(tracepoints.tracefs(host)),
              "sudo mount -t tracefs tracefs /sys/kernel/tracing"),
    HostCheck("kernel", "pressure (PSI)", _pressure, "boot with psi=1"),
    HostCheck("kernel", "schedstat", _schedstat, "needs a kernel with CONFIG_SCHED_INFO"),
    HostCheck("kernel", "/dev/aaco", kernel_device.probe, kernel_device.FIX),
    HostCheck("quiet", "frequency governor", _governor, "run as root; in a virtual machine the host decides"),
    HostCheck("quiet", "cgroup v2", _cgroup_v2, "boot with systemd.unified_cgroup_hierarchy=1, and run as root"),
    HostCheck("quiet", "transparent huge pages", _huge_pages,
              "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
    HostCheck("quiet", "NUMA", _numa, "needs a kernel with CONFIG_NUMA"),
    HostCheck("quiet", "clock source", _clock, "boot with clocksource=tsc where the processor's is reliable"),
    HostCheck("quiet", "bare metal", _bare_metal, "compare interleaved runs here; take absolute numbers on bare metal"),
    HostCheck("host", "git", _tool("git", "--version"), "install git: sessions then know their commit"),
    HostCheck("host", "C compiler", _compiler, "install gcc or clang"),
)
