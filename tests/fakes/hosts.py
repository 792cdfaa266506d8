"""Copies of the trees under / that AACO reads, filled in the kernel's formats, and fake tools for PATH."""

from __future__ import annotations

from pathlib import Path

CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9654 96-Core Processor
microcode\t: 0xa101148
flags\t\t: fpu sse4_2 smep sme avx avx2 fma f16c avx512f avx512_bf16

processor\t: 1
model name\t: another
"""
MEMINFO = "MemTotal:       1056000000 kB\nMemFree:        1000 kB\nHugePages_Total:       3\nSwapTotal:      8 kB\n"
KFD_CPU = "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\n"
KFD_GPU = """cpu_cores_count 0
simd_count 1216
mem_banks_count 1
simd_per_cu 4
gfx_target_version 90402
vendor_id 4098
device_id 29857
drm_render_minor {minor}
unique_id 16404946649897475633
"""
# What nvidia-smi tells of a GPU, by its own names of columns; a second one tells less.
SMI_ROW = {
    "name": "NVIDIA H200", "memory.total": "143771", "vbios_version": "96.00.CF.00.01", "power.limit": "650.00",
    "power.default_limit": "700.00", "power.max_limit": "710.00", "clocks.max.sm": "1980",
    "clocks.applications.graphics": "1900", "clocks.applications.memory": "3201",
    "clocks.default_applications.graphics": "1980", "clocks.default_applications.memory": "3200",
    "persistence_mode": "Enabled", "ecc.mode.current": "Enabled", "compute_mode": "Default",
    "mig.mode.current": "Disabled"}
SMI_LESS = SMI_ROW | {"power.limit": "500.00", "ecc.mode.current": "[N/A]",
                      "clocks.applications.graphics": "[Requested functionality has been deprecated]"}
# The files of an amdgpu device that tell how it is set, as MI300X has them.
AMD_SETTINGS = {
    "power_dpm_force_performance_level": "auto\n", "current_compute_partition": "SPX\n",
    "current_memory_partition": "NPS1\n", "vbios_version": "113-M3000100-102\n",
    "pp_od_clk_voltage": "OD_SCLK:\n0: 500Mhz\n1: 2100Mhz\nOD_MCLK:\n0: 900Mhz\n1: 1300Mhz\n",
    "ras/features": "feature mask: 0x2fd\n", "hwmon/hwmon4/power1_cap": "750000000\n",
    "hwmon/hwmon4/power1_cap_default": "750000000\n", "hwmon/hwmon4/power1_cap_max": "750000000\n"}


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write each file under root; returns root."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def server(root: Path, cores: int = 4, gpus: int = 2) -> Path:
    """Two sockets with SMT, cpufreq, two NUMA nodes, control groups of version 2, and MI300X GPUs."""
    cpus, threads = "sys/devices/system/cpu", 2 * cores
    plant(root, {
        "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
        "proc/cpuinfo": CPUINFO, "proc/meminfo": MEMINFO, "proc/loadavg": "0.50 0.25 0.12 1/900 4242\n",
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1234 ro quiet isolcpus=2-3 amdgpu.noretry=0\n",
        "proc/sys/kernel/osrelease": "6.8.0-45-generic\n", "proc/sys/kernel/version": "#45-Ubuntu SMP\n",
        "proc/sys/kernel/numa_balancing": "1\n", "proc/sys/kernel/perf_event_paranoid": "4\n",
        "proc/self/status": "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-1,4\n",
        "proc/self/cgroup": "0::/pod/box\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
        "proc/self/schedstat": "0 0 0\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        "sys/fs/cgroup/pod/cpu.max": "400000 100000\n", "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pod/memory.max": "max\n", "sys/fs/cgroup/pod/box/memory.max": "1073741824\n",
        f"{cpus}/present": f"0-{threads - 1}\n", f"{cpus}/online": f"0-{threads - 1}\n",
        f"{cpus}/smt/control": "on\n", f"{cpus}/cpufreq/boost": "1\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        "sys/module/amdgpu/version": "6.8.5\n", "opt/rocm/.info/version": "6.2.0-66\n",
    })
    for cpu in range(threads):
        siblings, socket = cpu // 2 * 2, int(cpu >= cores)
        plant(root, {f"{cpus}/cpu{cpu}/topology/physical_package_id": f"{socket}\n",
                     f"{cpus}/cpu{cpu}/topology/thread_siblings_list": f"{siblings}-{siblings + 1}\n",
                     f"{cpus}/cpufreq/policy{cpu}/scaling_governor": "performance\n" if cpu else "powersave\n"})
    plant(root, {f"{cpus}/cpu0/cache/index0/{name}": f"{value}\n"
                 for name, value in {"level": 1, "type": "Data", "size": "32K"}.items()})
    for node in range(2):
        plant(root, {f"sys/devices/system/node/node{node}/cpulist": f"{node * cores}-{node * cores + cores - 1}\n",
                     f"sys/devices/system/node/node{node}/distance": "10 32\n" if node == 0 else "32 10\n"})
    amd_gpus(root, gpus)
    return root


def amd_gpus(root: Path, gpus: int) -> Path:
    """The topology that KFD shows: one CPU node, then the GPUs, of 192 GiB each."""
    nodes = "sys/class/kfd/kfd/topology/nodes"
    plant(root, {f"{nodes}/0/properties": KFD_CPU})
    for gpu in range(gpus):
        minor = 128 + gpu
        plant(root, {f"{nodes}/{gpu + 1}/properties": KFD_GPU.format(minor=minor),
                     f"{nodes}/{gpu + 1}/mem_banks/0/properties": f"heap_type 1\nsize_in_bytes {192 << 30}\n",
                     f"sys/class/drm/renderD{minor}/device/revision": "0x00\n"})
    return plant(root, {"usr/share/libdrm/amdgpu.ids": "# list\n1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n"})


def smi(*rows: dict[str, str]) -> str:
    """An nvidia-smi of these GPUs: the columns that it is asked for, or the first that it does not know."""
    def case(column: str) -> str:
        return f"{column}) v='" + ",".join(row[column] for row in rows) + "';;"

    return f"""#!/bin/sh
IFS=,
for g in {' '.join(map(str, range(1, len(rows) + 1)))}; do
line=
for c in ${{1#--query-gpu=}}; do
case $c in
{chr(10).join(map(case, rows[0]))}
*) echo "Field \\"$c\\" is not a valid field to query."; exit 2;;
esac
line="$line, $(echo "$v" | cut -d, -f$g)"
done
echo "${{line#, }}"
done
"""


def tool(folder: Path, name: str, script: str) -> Path:
    """An executable of this name: a shell script, or anything else."""
    path = plant(folder, {name: script}) / name
    path.chmod(0o755)
    return path
