"""The doctor: right about what is here, and with a reason and a fix for what is not, however a tool misbehaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.collectors import capabilities
from aaco.collectors.capabilities import Capability
from aaco.collectors.gpu.gpu_access import NO_DEVICE
from aaco.collectors.inventory.machine import Host
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.report.sections import capabilities as overview
from tests.fakes import hosts

ORT = {"onnxruntime/__init__.py": "raise SystemError('imported')\n",
       "onnxruntime/capi/onnxruntime_pybind11_state.so": ""}


def examined(host: Host | None = None, sessions: Path = Path("sessions")) -> dict[str, Capability]:
    return {found.name: found for found in capabilities.examine(sessions, host)}


def installed(root: Path, *names: str) -> dict[str, str]:
    return {f"{name.replace('-', '_')}-1.23.0.dist-info/METADATA": f"Name: {name}\nVersion: 1.23.0\n" for name in names}


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, with a shell's necessities in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sleep", "yes", "cat"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_every_answer_is_complete_and_in_groups() -> None:
    found = capabilities.examine()
    assert all(item.detail and not item.why_not and not item.fix for item in found if item.available)
    assert all(item.why_not and item.fix and not item.detail for item in found if not item.available)
    assert not any("\n" in text for item in found for text in (item.detail, item.why_not, item.fix))
    groups = [item.group for item in found]
    assert groups == sorted(groups, key=groups.index)
    assert len({item.name for item in found}) == len(found)
    json.dumps([as_dict(item) for item in found])


def test_no_program_is_loaded_into_the_kernel_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities.bpf.Feature, "__init__", lambda *_: pytest.fail("a program was loaded"))
    names = {item.name for item in capabilities.examine(in_kernel=False)}
    assert "BPF" in names and not names & {"BPF scheduler events", "BPF fault latency"}


def test_this_host_agrees_with_other_tools() -> None:
    found = examined()
    assert found["git"].detail.split()[0] in subprocess.run(["git", "--version"], capture_output=True, text=True).stdout
    assert found["/dev/kfd"].available == Path("/dev/kfd").exists()
    assert found["CPUExecutionProvider"].available
    assert found["schedstat"].available == (Path("/proc/self/schedstat").read_text().split()[0] != "0")


def test_it_imports_nothing_heavy() -> None:
    code = ("import sys; from aaco.collectors import capabilities; capabilities.examine();"
            "print(sorted({'numpy', 'pyarrow', 'onnxruntime', 'onnx', 'pydantic'} & sys.modules.keys()))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(("name", "said"), [
    ("libc.so.6", []),
    ("libcuda_none.so", ["libcuda_none.so: cannot open shared object file: No such file or directory"])])
def test_what_the_runtime_warns_of_is_nothing_that_a_provider_lacks(tmp_path, monkeypatch, name, said) -> None:
    """Mutation: all that it prints: a machine whose devices it cannot list has no provider then."""
    (tmp_path / "onnxruntime.py").write_text(
        "import sys\nprint('[W:onnxruntime] GPU device discovery failed', file=sys.stderr)\n"
        "def preload_dlls(): print('Failed to load libcudnn.so.9', end='')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert capabilities._missing_libraries(Host(), Path(name)) == said


@pytest.mark.parametrize(("script", "available", "said"), [
    ("#!/bin/sh\necho 'rocprofv3 1.2.3 (build x)'\n", True, "1.2.3 at "),
    ("#!/bin/sh\necho 'version: 9.1' >&2\n", True, "9.1 at "),
    ("#!/bin/sh\nprintf '\\000\\377\\033[31m?\\n'\n", True, "version not recognised at "),
    ("#!/bin/sh\nexit 0\n", True, "version not recognised at "),
    ("#!/bin/sh\necho 'libhip.so.6: cannot open' >&2; exit 127\n", False, "exits with 127: libhip.so.6: cannot open"),
    ("#!/bin/sh\nprintf '\\033]0;x\\007boom\\n'; exit 1\n", False, "exits with 1: ]0;xboom"),
    ("#!/bin/sh\nkill -ABRT $$\n", False, "was killed by signal 6"),
    ("#!/bin/sh\nsleep 60\n", False, "gave no answer in 0.5 s"),
    ("#!/bin/sh\nyes\n", False, "printed more than 1 MiB"),
    ("\x7fELF", False, "format error"),
    ("#!/no/such/interpreter\n", False, "No such file or directory"),
])
def test_a_tool(only: Path, monkeypatch: pytest.MonkeyPatch, script: str, available: bool, said: str) -> None:
    monkeypatch.setattr(capabilities, "TOOL_TIMEOUT_S", 0.5 if said == "gave no answer in 0.5 s" else 60)
    hosts.tool(only, "rocprofv3", script)
    found = examined()["rocprofv3"]
    assert found.available == available
    assert said in (found.detail if available else found.why_not)


def test_a_missing_tool(only: Path) -> None:
    found = examined()
    for name in ("rocprofv3", "amd-smi", "nsys", "git"):
        assert found[name].why_not == f"{name} is not on PATH"
    assert found["C compiler"].why_not == "none of cc, gcc, clang is on PATH"


def test_a_file_that_may_not_be_run_is_no_tool(only: Path) -> None:
    hosts.tool(only, "ncu", "#!/bin/sh\n").chmod(0o644)
    assert examined()["ncu"].why_not == "ncu is not on PATH"


def test_hanging_tools_are_waited_for_together(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "TOOL_TIMEOUT_S", 1.0)
    names = ("rocprofv3", "rocprof", "amd-smi", "rocm-smi", "ncu", "nsys", "git", "cc", "migraphx-driver")
    for name in names:
        hosts.tool(only, name, "#!/bin/sh\nexec sleep 60\n")
    began = time.monotonic()
    found = examined()
    assert time.monotonic() - began < len(names)  # which they take one after the other, on any machine
    assert found["nsys"].why_not == found["ncu"].why_not.replace("ncu", "nsys") == "nsys gave no answer in 1 s"


def test_one_onnxruntime(tmp_path: Path) -> None:
    hosts.plant(tmp_path, ORT | installed(tmp_path, "onnxruntime-migraphx")
                | {"onnxruntime/capi/libonnxruntime_providers_migraphx.so": ""})
    found = examined(Host(tmp_path, (str(tmp_path),)))
    assert found["ONNX Runtime"].detail == "onnxruntime-migraphx 1.23.0"
    assert found["CPUExecutionProvider"].available
    assert found["MIGraphXExecutionProvider"].why_not == f"{tmp_path}/dev/kfd is missing"
    assert "brings only MIGraphXExecutionProvider, CPUExecutionProvider" in found["CUDAExecutionProvider"].why_not
    hosts.plant(tmp_path, {"dev/kfd": ""})
    assert examined(Host(tmp_path, (str(tmp_path),)))["MIGraphXExecutionProvider"].available


def test_two_onnxruntimes_are_broken(tmp_path: Path) -> None:
    hosts.plant(tmp_path, ORT | installed(tmp_path, "onnxruntime", "onnxruntime-gpu"))
    found = examined(Host(tmp_path, (str(tmp_path),)))["ONNX Runtime"]
    assert found.why_not == ("onnxruntime 1.23.0, onnxruntime-gpu 1.23.0 are all installed "
                             "and overwrite each other's files")


def test_no_onnxruntime(tmp_path: Path) -> None:
    found = examined(Host(tmp_path, (str(tmp_path),)))
    assert {found[name].why_not for name in ("ONNX Runtime", "CPUExecutionProvider", "CUDAExecutionProvider")} == {
        "the module onnxruntime is not installed"}


def test_an_unprivileged_server(tmp_path: Path) -> None:
    found = examined(Host(hosts.server(tmp_path)))
    assert {name: item.why_not for name, item in found.items() if item.group in ("kernel", "quiet")} == {
        "perf events": "perf_event_paranoid is 4 and this process has no CAP_PERFMON",
        "switch records": "perf_event_paranoid is 4 and this process has no CAP_PERFMON",
        "hardware counters": f"{tmp_path}/sys/bus/event_source/devices: no processor event source",
        "BPF": "this process has neither CAP_BPF with CAP_PERFMON nor CAP_SYS_ADMIN",
        "BPF scheduler events": "this process has neither CAP_BPF with CAP_PERFMON nor CAP_SYS_ADMIN",
        "BPF fault latency": "this process has neither CAP_BPF with CAP_PERFMON nor CAP_SYS_ADMIN",
        "BPF GPU events": "this process has neither CAP_BPF with CAP_PERFMON nor CAP_SYS_ADMIN",
        "tracefs": f"{tmp_path}/sys/kernel/tracing: not mounted, or not readable by this user",
        "pressure (PSI)": f"{tmp_path}/proc/pressure/cpu: No such file or directory",
        "schedstat": f"{tmp_path}/proc/self/schedstat: all zero: the kernel keeps no account",
        "/dev/aaco": f"{tmp_path}/dev/aaco: No such file or directory",
        "frequency governor": "", "cgroup v2": f"{tmp_path}/sys/fs/cgroup is not writable by this user",
        "transparent huge pages": "", "NUMA": "", "clock source": "the clock source is hpet: reading the time is slow",
        "bare metal": ""}
    assert found["frequency governor"].detail == "1x powersave, 7x performance"
    assert found["AMD GPU"].detail == "2x MI300X"
    assert found["NUMA"].detail == "2 nodes"


@pytest.mark.parametrize(("capabilities_held", "bpf", "perf"), [
    (1 << 39 | 1 << 38, True, True), (1 << 39, False, False), (1 << 38, False, True), (1 << 21, True, True)])
def test_capability_bits(tmp_path: Path, capabilities_held: int, bpf: bool, perf: bool) -> None:
    host = Host(hosts.server(tmp_path))
    hosts.plant(tmp_path, {"proc/self/status": f"CapEff:\t{capabilities_held:016x}\n", "sys/kernel/btf/vmlinux": ""})
    found = examined(host)
    assert (found["BPF"].available, found["perf events"].available) == (bpf, perf)
    hosts.plant(tmp_path, {"sys/kernel/security/lockdown": "none integrity [confidentiality]\n"})
    assert not examined(host)["BPF"].available


@pytest.mark.parametrize(("level", "detail"), [(2, "own processes"), (-1, "the whole system")])
def test_perf_level(tmp_path: Path, level: int, detail: str) -> None:
    hosts.plant(hosts.server(tmp_path), {"proc/sys/kernel/perf_event_paranoid": f"{level}\n"})
    assert examined(Host(tmp_path))["perf events"].detail == f"perf_event_paranoid {level}: {detail}"


def test_a_plain_folder_is_no_control_group(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup/aaco").mkdir(parents=True)
    assert "not mounted" in examined(Host(tmp_path))["cgroup v2"].why_not


def test_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(sessions=tmp_path / "not" / "yet")["disk space"]
    assert found.available
    assert found.detail.startswith(f"{tmp_path}: ")
    monkeypatch.setattr(capabilities, "SPARE_BYTES", 1 << 80)
    found = examined(sessions=tmp_path)["disk space"]
    assert not found.available
    assert "GiB free" in found.why_not
    assert found.fix.startswith("aaco gc")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_another_user() -> None:
    assert not examined(sessions=Path("/root/x"))["disk space"].available


def test_without_the_drivers_library_no_second_python_is_started_for_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: the probe is started all the same."""
    def missing(name: str) -> None:
        raise OSError(f"{name}: no such file")

    monkeypatch.delenv("AACO_CUPTI", raising=False)
    monkeypatch.setattr(capabilities.ctypes, "CDLL", missing)
    monkeypatch.setattr(capabilities.machine, "ask", lambda *given: pytest.fail("a process was started"))
    with pytest.raises(Absent, match=r"CUPTI needs the driver: libcuda\.so\.1"):
        capabilities._cupti(Host())


def of_group(group: str, **checks: str) -> list[Capability]:
    """Capabilities by name with their fix; "" is one that works."""
    return [Capability(group, name.replace("_", " "), not fix, fix=fix)
            for name, fix in checks.items()]


PLUGGED = "sudo modprobe nvidia"


def test_the_first_line_says_what_works_and_what_to_fix_first():
    """Mutation: the first that is missing, whether or not the machine has such a device."""
    checks = [*of_group("runtime", CPUExecutionProvider="", CUDAExecutionProvider="pip install onnxruntime-gpu"),
              *of_group("amd", amdgpu_driver=NO_DEVICE, ROCm="install ROCm"),
              *of_group("nvidia", nvidia_driver=NO_DEVICE), *of_group("kernel", tracefs="mount it")]
    first = list(overview.lines(checks))
    assert first[0] == "AACO reads traces and runs models on CPU. Fix first: tracefs: mount it."
    assert "amd: no such GPU on this machine" in first and not [line for line in first if "ROCm" in line]
    plugged = [*checks[:-2], *of_group("nvidia", nvidia_driver=PLUGGED), checks[-1]]
    assert next(overview.lines(plugged)).endswith("Fix first: CUDAExecutionProvider: pip install onnxruntime-gpu.")


def test_the_overview_stays_short_however_much_is_missing():
    checks = capabilities.examine()
    all_missing = [replace(check, available=False, why_not="w", fix="f") for check in checks]
    for here in (checks, all_missing):
        assert len(list(overview.lines(here))) <= 30
    assert len(list(overview.full_lines(all_missing))) == 2 * len(checks)
