"""The environment lockbox: everything about a host that a measurement may depend on, and nothing that is secret.

What is kept is named here; all else stays out. Command-line tokens and environment variables are allow-listed by name,
and even then a value that could be a credential is replaced by `<withheld>`. Every fact that could not be read is None,
with the reason under the same key in `why_absent`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.collectors.inventory import gpu_settings, machine, scheduler
from aaco.core.cgroup import cgroup
from aaco.core.host import Host, matched, number, text
from aaco.core.machine import GIB
from aaco.core.readings import Absent, known
from aaco.core.records import as_dict
from aaco.core.redaction import redact_home, redact_variable

SCHEMA_VERSION = 1

# Kernel parameters that change performance (Documentation/admin-guide/kernel-parameters.txt).
KERNEL_PARAMETERS = frozenset((
    "isolcpus", "nohz", "nohz_full", "rcu_nocbs", "rcu_nocb_poll", "irqaffinity", "mitigations", "spectre_v2", "nosmt",
    "maxcpus", "nr_cpus", "transparent_hugepage", "hugepages", "hugepagesz", "default_hugepagesz", "numa",
    "numa_balancing", "intel_pstate", "amd_pstate", "processor.max_cstate", "intel_idle.max_cstate", "idle",
    "cpuidle.off", "cpufreq.off", "cpufreq.default_governor", "clocksource", "tsc", "hpet", "preempt", "threadirqs",
    "skew_tick", "nmi_watchdog", "nowatchdog", "iommu", "amd_iommu", "intel_iommu", "iommu.passthrough",
    "iommu.strict", "pci", "pcie_aspm", "cgroup_disable", "cgroup_enable", "cgroup_no_v1", "cgroup_memory",
    "systemd.unified_cgroup_hierarchy", "swapaccount", "psi", "delayacct", "schedstats", "mem", "init_on_alloc",
    "init_on_free", "page_poison",
))
KERNEL_MODULES = ("amdgpu.", "amdkfd.", "nvidia.", "nvidia_uvm.", "nvidia_drm.", "kvm.", "kvm_amd.", "kvm_intel.")

# Variables that steer threads, allocators, devices and the libraries in between; each is documented by its project.
VARIABLES = frozenset((
    "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "NUMEXPR_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "LD_PRELOAD",
    "LD_BIND_NOW", "GLIBC_TUNABLES", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONMALLOC", "PYTHONDEVMODE", "ROCM_PATH",
    "HIP_VISIBLE_DEVICES", "HIP_LAUNCH_BLOCKING", "HIP_FORCE_DEV_KERNARG", "GPU_MAX_HW_QUEUES", "GPU_DEVICE_ORDINAL",
    "AMD_LOG_LEVEL", "AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY", "AMD_DIRECT_DISPATCH", "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING",
    "CUDA_CACHE_DISABLE", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
))
VARIABLE_FAMILIES = (
    "AACO_", "OMP_", "MKL_", "KMP_", "GOMP_", "MALLOC_", "ORT_MIGRAPHX_", "ORT_TENSORRT_", "ORT_CUDA_", "ORT_ROCM_",
    "ORT_OPENVINO_", "MIGRAPHX_", "HSA_", "ROCR_", "NCCL_", "RCCL_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_", "TENSILE_",
)

# Instruction sets that decide which kernels a library picks.
CPU_FLAGS = re.compile(r"^(sse4_2|avx|avx2|avx_\w+|avx512\w+|amx\w+|fma|f16c|bf16|i8mm|asimd\w*|sve\w*|sme"
                       r"|sme[2bfi]\w*)$")
ORT_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-migraphx", "onnxruntime-rocm", "onnxruntime-openvino",
                "onnxruntime-training", "onnxruntime-qnn", "onnxruntime-directml")
ORT_LIBRARIES = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider",
                 "migraphx": "MIGraphXExecutionProvider", "rocm": "ROCMExecutionProvider",
                 "openvino": "OpenVINOExecutionProvider"}
CPU_PROVIDER = "CPUExecutionProvider"

# What must be equal for two runs to be comparable. Left out: time and load, which never are; the code under test (git);
# the host's own name, because equal machines compare; measured ceilings; AACO_*, which say where files are kept.
COMPARABLE = ("os", "kernel", "cpu", "clock", "memory", "numa", "virtualization", "cgroup", "process",
              "gpu", "python", "onnxruntime", "packages", "variables")
VOLATILE = ("captured_utc", "load", "labels", "machine.card", "machine.ceilings", "why_absent")


class FactDifference(Struct, frozen=True):
    """One fact that two environments do not share; None where it is absent."""

    key: str
    a: Any
    b: Any


def capture(cwd: Path, host: Host | None = None) -> dict[str, Any]:
    """Return the environment now, as env.json keeps it. `cwd` is the folder for the git state.

    Runs git, and nvidia-smi if there is one; starts nothing else. Never raises for a fact it cannot read.
    """
    host = host or Host()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    facts: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "captured_utc": now}
    why_absent = {}
    readers: dict[str, Callable[[Host], Any]] = {**FACTS, "git": lambda _: git_state(cwd)}
    for key, read in readers.items():
        try:
            value = read(host)
        except Absent as reason:
            value, why_absent[key] = None, str(reason)
        _set_by_path(facts, key, _without_reasons(key, value, why_absent))
    return facts | {"why_absent": why_absent}


def digest(env: Mapping[str, Any]) -> str:
    """Return 12 hex digits over the comparable facts: equal digests mean that only the code or the noise differ."""
    facts = comparable(env)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def comparable(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts under COMPARABLE by dotted key, memory in GiB: two runs must share them to be compared."""
    facts = {key: value for key, value in flatten(env).items()
             if _is_under(key, COMPARABLE) and not key.startswith("variables.AACO_")}
    if isinstance(facts.get("memory.total_bytes"), int | float):  # a boot may leave a few pages more or less
        facts["memory.total_bytes"] = round(facts["memory.total_bytes"] / GIB)
    return facts


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[FactDifference]:
    """Return every fact that differs, by dotted key, without those that always do (VOLATILE)."""
    left, right = flatten(a), flatten(b)
    keys = sorted(key for key in left.keys() | right.keys() if not _is_under(key, VOLATILE))
    return [FactDifference(key, left.get(key), right.get(key)) for key in keys if left.get(key) != right.get(key)]


def flatten(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return leaves by dotted key.

    A list of objects is numbered; a list of plain values is one leaf; absent facts are out.
    """
    return dict(_leaves("", env))


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{prefix}{key}.", item)
    elif value is not None:
        yield prefix.removesuffix("."), value


def _is_under(key: str, branches: tuple[str, ...]) -> bool:
    return f"{key}.".startswith(_beginnings(branches))


@cache
def _beginnings(branches: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{branch}." for branch in branches)


def _without_reasons(key: str, value: Any, why_absent: dict[str, str]) -> Any:
    """Return the value with None for every Absent in it; put its reason under its key."""
    if isinstance(value, Absent):
        why_absent[key] = str(value)
        return None
    if isinstance(value, Mapping):
        return {name: _without_reasons(f"{key}.{name}", item, why_absent) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_reasons(f"{key}.{place}", item, why_absent) for place, item in enumerate(value)]
    return value


def _set_by_path(tree: dict[str, Any], key: str, value: Any) -> None:
    *branches, leaf = key.split(".")
    for branch in branches:
        tree = tree.setdefault(branch, {})
    tree[leaf] = value


# --- what may be kept of names and values -----------------------------------------------------------------------------

def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the allow-listed environment variables, credentials redacted, home folders as `~`, LD_PRELOAD without
    folders.
    """
    allowed = {name: value for name, value in sorted(environ.items())
               if name in VARIABLES or name.startswith(VARIABLE_FAMILIES)}
    if allowed.get("LD_PRELOAD"):
        allowed["LD_PRELOAD"] = ":".join(Path(path).name for path in re.split(r"[\s:]+", allowed["LD_PRELOAD"]))
    return {name: redact_variable(name, redact_home(value)) for name, value in allowed.items()}


def kernel_parameters(cmdline: str) -> tuple[list[str], int]:
    """Return the allow-listed tokens of a kernel command line, in order, and how many were left out.

    Tokens after `--` belong to the init program and are left out.
    """
    tokens = re.findall(r'(?:[^\s"]|"[^"]*")+', cmdline)
    kept = []
    for token in tokens[:tokens.index("--")] if "--" in tokens else tokens:
        name, equals, value = token.partition("=")
        plain = name.replace("-", "_")
        if plain in KERNEL_PARAMETERS or plain.startswith(KERNEL_MODULES):
            kept.append(name + equals + redact_variable(name, value))
    return kept, len(tokens) - tokens.count("--") - len(kept)


# --- the facts --------------------------------------------------------------------------------------------------------

def _host_id(host: Host) -> str:
    """Return an id that distinguishes hosts without naming them (machine-id(5) requires a hash)."""
    identity = text(host.root / "etc/machine-id")
    if not identity:
        raise Absent(f"{host.root / 'etc/machine-id'}: empty")
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def _os_name(host: Host) -> str:
    pattern = r'^PRETTY_NAME="?([^"\n]*)'
    return matched(host.root / "etc/os-release", pattern, "has no PRETTY_NAME", re.MULTILINE)[1]


def _caches(host: Host) -> dict[str, int]:
    """Return the size in bytes of each cache that the first CPU reaches: l1_data, l1_instruction, l2_unified, ..."""
    sizes = {}
    for index in sorted((host.cpus / "cpu0/cache").glob("index*")):
        size = text(index / "size")
        name = f"l{text(index / 'level')}_{text(index / 'type').lower()}_bytes"
        sizes[name] = int(size.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(size[-1], 0)
    if not sizes:
        raise Absent(f"{host.cpus / 'cpu0/cache'}: missing")
    return sizes


def _cpu_flags(host: Host) -> list[str]:
    info = machine.cpu_info(host)
    flags = info.get("flags") or info.get("Features")
    if not flags:
        raise Absent(f"{host.proc / 'cpuinfo'}: lists no flags")
    return sorted(filter(CPU_FLAGS.match, flags.split()))


def _microcode(host: Host) -> str:
    microcode = machine.cpu_info(host).get("microcode")
    if not microcode:
        raise Absent(f"{host.proc / 'cpuinfo'}: has no microcode")
    return microcode


def _policies(name: str) -> Callable[[Host], dict[str, int]]:
    """Return a reader of how many cpufreq policies hold each value of this setting."""
    def read(host: Host) -> dict[str, int]:
        policies = sorted((host.cpus / "cpufreq").glob("policy*"))
        if not policies:
            raise Absent(f"{host.cpus / 'cpufreq'}: no policy: the kernel does not scale the frequency here")
        return dict(Counter(text(policy / name) for policy in policies))
    return read


def _boost(host: Host) -> bool:
    if (host.cpus / "intel_pstate/no_turbo").exists():
        return not number(host.cpus / "intel_pstate/no_turbo")
    return bool(number(host.cpus / "cpufreq/boost"))


def _bracketed_value(path: str) -> Callable[[Host], str]:
    """Return a reader of the value in brackets in a sysfs file that lists all possible ones."""
    def read(host: Host) -> str:
        content = text(host.sys / path)
        match = re.search(r"\[(.+?)\]", content)
        return match[1] if match else content
    return read


def _file(tree: str, path: str) -> Callable[[Host], str]:
    return lambda host: text(host.root / tree / path)


def _swap(host: Host) -> int:
    sizes = machine.memory(host)
    if "SwapTotal" not in sizes:
        raise Absent(f"{host.proc / 'meminfo'}: has no SwapTotal")
    return sizes["SwapTotal"]


def _huge_pages(host: Host) -> dict[str, int]:
    pools = sorted((host.sys / "kernel/mm/hugepages").glob("hugepages-*"))
    if not pools:
        raise Absent(f"{host.sys / 'kernel/mm/hugepages'}: no pool")
    return {pool.name.removeprefix("hugepages-"): number(pool / "nr_hugepages") for pool in pools}


def _numa_nodes(host: Host) -> dict[str, dict[str, str]]:
    nodes = sorted((host.sys / "devices/system/node").glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    if not nodes:
        raise Absent(f"{host.sys / 'devices/system/node'}: no node: a kernel without NUMA")
    return {node.name: {"cpus": text(node / "cpulist"), "distances": text(node / "distance")} for node in nodes}


def hypervisor(host: Host) -> bool:
    """Return whether the CPU reports that it is a guest's. Raise Absent if it cannot (only x86 has that flag)."""
    info = machine.cpu_info(host)
    if "flags" not in info:
        raise Absent(f"{host.proc / 'cpuinfo'}: this architecture does not tell")
    return "hypervisor" in info["flags"].split()


def container(host: Host) -> str:
    """Return the kind of container that this process is in. Raise Absent if there is no sign of one."""
    for path, kind in (("run/.containerenv", "podman"), (".dockerenv", "docker")):
        if (host.root / path).exists():
            return kind
    match = re.search(r"kubepods|docker|lxc|containerd", known(text, host.proc / "1/cgroup") or "")
    if not match:
        raise Absent("no sign of one")
    return match[0]


def _cpu_limit(host: Host) -> float:
    """Return the CPUs' worth of time that this process may use."""
    group = cgroup(host, "cpu")
    if group.version == 2:
        pairs = [value.split() for value in group.settings("cpu.max")]
    else:
        quotas, periods = group.settings("cpu.cfs_quota_us"), group.settings("cpu.cfs_period_us")
        pairs = [list(pair) for pair in zip(quotas, periods, strict=True)]
    shares = [int(quota) / int(period) for quota, period in pairs if quota not in ("max", "-1")]
    if not shares:
        raise Absent("no limit is set")
    return min(shares)


def _memory_limit(host: Host) -> int:
    group = cgroup(host, "memory")
    values = group.settings("memory.max" if group.version == 2 else "memory.limit_in_bytes")
    # A v1 group without a limit holds the largest page-aligned number instead of a word.
    limits = [int(value) for value in values if value != "max" and int(value) < 1 << 62]
    if not limits:
        raise Absent("no limit is set")
    return min(limits)


def _load(host: Host) -> list[float]:
    return [float(value) for value in text(host.proc / "loadavg").split()[:3]]


def _nvidia(host: Host) -> list[dict[str, Any]]:
    """Return each device with its settings; without nvidia-smi only those in the driver's files."""
    try:
        return [{"vendor": "NVIDIA", **row} for row in gpu_settings.nvidia()]
    except Absent:
        return [as_dict(gpu) for gpu in machine.nvidia_gpus(host)]


def _amd(host: Host) -> list[dict[str, Any]]:
    """Return each device with its settings."""
    return [as_dict(gpu) | gpu_settings.amd(gpu_settings.amd_folder(host, facts))
            for gpu, facts in machine.amd_nodes(host)]


def _amdgpu_driver(host: Host) -> str:
    """Return the version of ROCm's driver package; the driver inside the kernel has that of the kernel."""
    if not (host.sys / "module/amdgpu").is_dir():
        raise Absent(f"{host.sys / 'module/amdgpu'}: missing: the amdgpu driver is not loaded")
    return known(text, host.sys / "module/amdgpu/version") or "in the kernel"


def rocm_folder(host: Host) -> Path:
    """Return the folder of ROCm, installed or not."""
    return host.root / os.environ.get("ROCM_PATH", "/opt/rocm").lstrip("/")


def git_state(cwd: Path) -> dict[str, Any]:
    """Return commit, branch and whether tracked files were changed (never the remote: its URL may hold a password)."""
    answer = machine.ask(["git", "-C", str(cwd), "status", "--porcelain=v2", "--branch", "--untracked-files=no"])
    lines = answer.splitlines()
    head = dict(line.removeprefix("# branch.").split(" ", 1) for line in lines if line.startswith("# branch."))
    commit, branch = head.get("oid"), head.get("head")
    return {"commit": None if commit == "(initial)" else commit, "branch": None if branch == "(detached)" else branch,
            "dirty": any(line[:2] in ("1 ", "2 ", "u ") for line in lines)}


def packages(host: Host) -> dict[str, str]:
    """Return version by name of every installed distribution."""
    versions: dict[str, str] = {}
    for distribution in metadata.distributions(**_python_path(host)):
        facts = distribution.metadata
        if facts["Name"] and facts["Version"]:
            versions.setdefault(facts["Name"], facts["Version"])
    return dict(sorted(versions.items()))


def onnxruntime(host: Host) -> dict[str, Any]:
    """Return the installed distributions of ONNX Runtime and the providers with their libraries installed; import
    nothing.

    More than one distribution means a broken installation, since all of them write the same module. Raise Absent.
    """
    installed = {name: distribution.version for name in ORT_PACKAGES
                 for distribution in metadata.distributions(name=name, **_python_path(host))}
    return {"distributions": installed, "providers": ort_providers(host)}


def ort_providers(host: Host) -> list[str]:
    """Return the providers whose libraries are in the installed ONNX Runtime. Raise Absent."""
    core = [CPU_PROVIDER] if any(_ort_folder(host).glob("onnxruntime_pybind11_state*")) else []
    return [*provider_libraries(host), *core]


def provider_libraries(host: Host) -> dict[str, Path]:
    """Return by provider its library in the installed ONNX Runtime. Raise Absent."""
    folder = _ort_folder(host)
    return {name: path for stem, name in ORT_LIBRARIES.items()
            if (path := folder / f"libonnxruntime_providers_{stem}.so").is_file()}


def _ort_folder(host: Host) -> Path:
    spec = PathFinder.find_spec("onnxruntime", host.python_path)
    if not spec or not spec.submodule_search_locations:
        raise Absent("the module onnxruntime is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "capi"


def _python_path(host: Host) -> dict[str, Any]:
    return {} if host.python_path is None else {"path": list(host.python_path)}


# Dotted key in env.json -> how it is read.
FACTS: Mapping[str, Callable[[Host], Any]] = {
    "host.id": _host_id,
    "os.name": _os_name,
    "kernel.release": _file("proc", "sys/kernel/osrelease"),
    "kernel.build": _file("proc", "sys/kernel/version"),
    "kernel.architecture": lambda _: platform.machine(),
    "kernel.parameters": lambda host: kernel_parameters(text(host.proc / "cmdline"))[0],
    "kernel.parameters_left_out": lambda host: kernel_parameters(text(host.proc / "cmdline"))[1],
    "cpu.model": machine.cpu_model,
    "cpu.sockets": lambda host: machine.topology(host)[0],
    "cpu.cores": lambda host: machine.topology(host)[1],
    "cpu.threads": lambda host: machine.topology(host)[2],
    "cpu.online": _file("sys", "devices/system/cpu/online"),
    "cpu.isolated": _file("sys", "devices/system/cpu/isolated"),
    "cpu.smt": _file("sys", "devices/system/cpu/smt/control"),
    "cpu.caches": _caches,
    "cpu.flags": _cpu_flags,
    "cpu.microcode": _microcode,
    "cpu.boost": _boost,
    "cpu.idle_driver": _file("sys", "devices/system/cpu/cpuidle/current_driver"),
    "cpu.frequency.drivers": _policies("scaling_driver"),
    "cpu.frequency.governors": _policies("scaling_governor"),
    "cpu.frequency.min_khz": _policies("scaling_min_freq"),
    "cpu.frequency.max_khz": _policies("scaling_max_freq"),
    "clock.source": _file("sys", "devices/system/clocksource/clocksource0/current_clocksource"),
    "memory.total_bytes": machine.memory_bytes,
    "memory.swap_bytes": _swap,
    "memory.transparent_huge_pages": _bracketed_value("kernel/mm/transparent_hugepage/enabled"),
    "memory.transparent_huge_page_defrag": _bracketed_value("kernel/mm/transparent_hugepage/defrag"),
    "memory.huge_pages": _huge_pages,
    "memory.numa_balancing": lambda host: number(host.proc / "sys/kernel/numa_balancing"),
    "numa.nodes": _numa_nodes,
    "virtualization.hypervisor": hypervisor,
    "virtualization.product": _file("sys", "class/dmi/id/product_name"),
    "virtualization.container": container,
    "cgroup.version": lambda host: cgroup(host, "cpu").version,
    "cgroup.cpus": _cpu_limit,
    "cgroup.memory_bytes": _memory_limit,
    "process.affinity": lambda host: matched(host.proc / "self/status", r"Cpus_allowed_list:\s*(\S+)",
                                             "has no Cpus_allowed_list")[1],
    "load.average": _load,
    "gpu.nvidia": _nvidia,
    "gpu.nvidia_driver": lambda host: matched(host.proc / "driver/nvidia/version", r"\d{3,}\.\d+(\.\d+)?",
                                              "names no version")[0],
    "gpu.amd": _amd,
    "gpu.amdgpu_driver": _amdgpu_driver,
    "gpu.rocm": lambda host: text(rocm_folder(host) / ".info/version"),
    "python.version": lambda _: platform.python_version(),
    "python.implementation": lambda _: platform.python_implementation(),
    "onnxruntime": onnxruntime,
    "packages": packages,
    "variables": lambda _: variables(os.environ),
    "labels": lambda _: scheduler.of_environment(os.environ),
}
