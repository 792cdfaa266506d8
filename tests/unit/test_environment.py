"""The lockbox: complete, comparable, and free of secrets wherever one is planted."""

from __future__ import annotations

import json
import os
import random
import string
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from aaco.collectors.inventory import environment
from aaco.collectors.inventory.environment import FactDifference
from aaco.collectors.inventory.machine import Host
from aaco.core.readings import Absent
from aaco.core.redaction import REDACTED, redact_variable
from tests.fakes import hosts

# Made up, and joined here so that no scanner takes this file for a leak.
SECRETS = ("ghp" + "_x9AbC8dEfGh7IjKlMnOpQrStUvWxYz012345", "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYEXAMPLEKEY",
           "AKIA" + "IOSFODNN7EXAMPLE", "https://alice:s3cr3t@" + "example.org/simple",
           "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0.abc", "0f4c1e9a7b3d5f60", "hf" + "_AbCdEfGhIjKlMnOpQrStUv",
           "xoxb" + "-123456789012-abcdef", "JBSWY3DPEHPK3PXP", "https://example.org/a/b?sig=1")
WORD = "hunter2"  # a password like any other word: only its name gives it away
PLAIN = (("OMP_NUM_THREADS", "8"), ("OMP_PLACES", "{0}:{8}:{16}"), ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
         ("LD_PRELOAD", "libtcmalloc_minimal.so.4"), ("ROCM_PATH", "/opt/rocm-6.2.0"),
         ("NCCL_IB_HCA", "mlx5_0,mlx5_bond_0"),
         ("CUDA_VISIBLE_DEVICES", "GPU-8f3c1a2b-1111-2222-3333-444455556666"), ("GOMP_CPU_AFFINITY", "0-15 32-47"),
         ("ROCR_VISIBLE_DEVICES", "GPU-1a2b3c4d5e6f7a8b"), ("NCCL_SOCKET_IFNAME", "^docker0,lo"),
         ("MALLOC_CONF", "background_thread:true,metadata_thp:auto,dirty_decay_ms:30000"),
         ("ROCBLAS_TENSILE_LIBPATH", "/opt/rocm/lib/rocblas/library"), ("KMP_HW_SUBSET", "0xffff0000ffff0000"),
         ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=128"), ("OMP_DISPLAY_ENV", ""),
         ("AACO_SESSION_DIR", "/data/llama-3-70b-instruct/onnx"))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A fake AMD server without any tool on PATH but git."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to("/usr/bin/git")
    for name in [name for name in os.environ if name in environment.VARIABLES
                 or name.startswith(environment.VARIABLE_FAMILIES)]:
        monkeypatch.delenv(name)
    return Host(hosts.server(tmp_path))


def captured(host: Host) -> dict[str, Any]:
    return environment.capture(host.root, host)


def test_fake_server(server: Host) -> None:
    found = environment.flatten(captured(server))
    expected = {
        "os.name": "Ubuntu 24.04.1 LTS", "kernel.release": "6.8.0-45-generic",
        "cpu.model": "AMD EPYC 9654 96-Core Processor",
        "cpu.sockets": 2, "cpu.cores": 4, "cpu.threads": 8, "cpu.smt": "on", "cpu.boost": True,
        "cpu.frequency.governors.performance": 7, "cpu.frequency.governors.powersave": 1,
        "cpu.flags": ["avx", "avx2", "avx512_bf16", "avx512f", "f16c", "fma", "sme", "sse4_2"],
        "cpu.caches.l1_data_bytes": 32768, "kernel.parameters": ["isolcpus=2-3", "amdgpu.noretry=0"],
        "kernel.parameters_left_out": 4, "memory.transparent_huge_pages": "madvise", "memory.huge_pages.2048kB": 3,
        "memory.total_bytes": 1056000000 * 1024, "memory.swap_bytes": 8192, "numa.nodes.node1.cpus": "4-7",
        "virtualization.hypervisor": False, "cgroup.version": 2, "cgroup.cpus": 4.0, "cgroup.memory_bytes": 1 << 30,
        "process.affinity": "0-1,4", "load.average": [0.5, 0.25, 0.12], "gpu.amd.1.arch": "gfx942",
        "gpu.amd.0.vram_bytes": 192 << 30, "gpu.amdgpu_driver": "6.8.5", "gpu.rocm": "6.2.0-66", "clock.source": "hpet",
    }
    assert {key: found.get(key) for key in expected} == expected


def test_every_absent_fact_has_a_reason_and_no_other(tmp_path: Path, server: Host) -> None:
    for host in (Host(), server, Host(tmp_path / "nothing")):
        found = environment.capture(tmp_path, host)
        reasons = found.pop("why_absent")
        assert all(reasons.values())
        for key in environment.FACTS:
            value: Any = found
            for part in key.split("."):
                value = value[part]
            assert (value is None) == (key in reasons), key
    assert reasons["cpu.model"].endswith("No such file or directory")


def test_this_host_agrees_with_other_tools() -> None:
    found = environment.capture(Path.cwd())
    assert found["kernel"]["release"] == os.uname().release
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert found["onnxruntime"]["distributions"] == {"onnxruntime": metadata.version("onnxruntime")}
    assert found["onnxruntime"]["providers"] == ["CPUExecutionProvider"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_no_name_of_the_host_or_the_user(server: Host) -> None:
    text = json.dumps(captured(server)) + json.dumps(environment.capture(Path.cwd()))
    assert os.uname().nodename not in text.split('"')
    assert "0123456789abcdef0123456789abcdef" not in text


@pytest.mark.parametrize("name", [
    "AACO_TOKEN", "AACO_API_KEY", "NCCL_NET_KEY", "OMP_PASSWORD", "MIOPEN_SECRET_PATH", "HSA_AUTH",
    "ORT_CUDA_CREDENTIALS", "ROCBLAS_COOKIE", "MALLOC_PRIVATE", "AACO_WEBHOOK", "NCCL_COMM_ID"])
def test_a_name_that_sounds_secret_is_redacted(name: str) -> None:
    assert environment.variables({name: "1"}) == {name: REDACTED}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", ["{}", "level=1,{}", "--opt {}", "a:{}:b", "token={}", "/opt/x/{}"])
def test_a_value_that_looks_secret_is_redacted(secret: str, form: str) -> None:
    names = ("AACO_LABEL", "NCCL_DEBUG_FILE", "OMP_PLACES", "CUDA_VISIBLE_DEVICES", "ROCM_PATH")
    value = form.format(secret)
    assert set(environment.variables(dict.fromkeys(names, value)).values()) == {REDACTED}
    kept, left_out = environment.kernel_parameters(f'quiet amdgpu.x="{value}" isolcpus={secret} psi=1')
    assert kept == [f"amdgpu.x={REDACTED}", f"isolcpus={REDACTED}", "psi=1"]
    assert left_out == 1


def test_a_value_that_names_its_secret_is_redacted() -> None:
    for value in (f"--password={WORD}", f"api-key: {WORD}", f"--token {WORD}"):
        assert redact_variable("AACO_OPTIONS", value) == REDACTED


@pytest.mark.parametrize(("name", "value"), PLAIN)
def test_a_plain_value_is_kept(name: str, value: str) -> None:
    assert environment.variables({name: value}) == {name: value}


@pytest.mark.parametrize(("alphabet", "length"), [
    (string.hexdigits[:16], 32), (string.ascii_letters + string.digits, 20), (string.ascii_letters + string.digits, 40),
    (string.ascii_letters + string.digits + "+/", 40), (string.ascii_letters + string.digits + "-_", 43)])
def test_random_keys_are_recognised(alphabet: str, length: int) -> None:
    draw = random.Random(7)
    keys = ["".join(draw.choices(alphabet, k=length)) for _ in range(2000)]
    missed = [key for key in keys if redact_variable("AACO_LABEL", key) != REDACTED]
    assert len(missed) <= 10, missed[:3]


def test_other_variables_stay_out() -> None:
    others = {"PATH": "/bin", "HOME": "/root", "AWS_SECRET_ACCESS_KEY": "x", "PYTHONPATH": "/x", "ORT_DATABASE": "y",
              "http_proxy": "http://u:p@h", "HOSTNAME": "n", "XOMP_NUM_THREADS": "1"}
    assert environment.variables(others) == {}


def test_preload_loses_its_folders_and_home_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    kept = environment.variables({"LD_PRELOAD": "/home/alice/lib/libx.so /usr/lib/liby.so:libz.so",
                                  "MIOPEN_USER_DB_PATH": "/home/alice/.config/miopen"})
    assert kept == {"LD_PRELOAD": "libx.so:liby.so:libz.so", "MIOPEN_USER_DB_PATH": "~/.config/miopen"}


def test_command_line_keeps_the_order_and_hides_what_init_gets() -> None:
    line = 'hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=512 rd.luks.key="a b" psi=1 -- mitigations=off token=x'
    kept, left_out = environment.kernel_parameters(line)
    assert kept == ["hugepagesz=1G", "hugepages=16", "hugepagesz=2M", "hugepages=512", "psi=1"]
    assert left_out == 3
    assert environment.kernel_parameters("numa-balancing=disable nvidia.NVreg_EnableMSI=1")[0] == [
        "numa-balancing=disable", "nvidia.NVreg_EnableMSI=1"]


def test_secrets_nowhere_in_the_document(server: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, secret in enumerate((*SECRETS, WORD)):
        for name in (f"AACO_TOKEN_{number}", f"SECRET_{number}", f"NCCL_KEY{number}", f"GIT_PASSWORD_{number}"):
            monkeypatch.setenv(name, secret)
    line = " ".join(f"password{number}={secret} nvidia.key={secret}" for number, secret in enumerate((*SECRETS, WORD)))
    hosts.plant(server.root, {"proc/cmdline": line})
    repository = git_repository(server.root / "repository")
    git(repository, "remote", "add", "origin", "https://bob:" + SECRETS[0] + "@example.org/x.git")
    text = json.dumps(environment.capture(repository, server))
    assert [secret for secret in (*SECRETS, WORD, "example.org") if secret in text] == []


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["/usr/bin/git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def git_repository(folder: Path) -> Path:
    hosts.plant(folder, {"a.txt": "1\n"})
    git(folder, "init", "-b", "trunk")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    return folder


def test_git(tmp_path: Path) -> None:
    folder = git_repository(tmp_path / "repository")
    clean = environment.git_state(folder)
    head = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert clean == {"commit": head.stdout.strip(), "branch": "trunk", "dirty": False}
    hosts.plant(folder, {"untracked.txt": ""})
    assert not environment.git_state(folder)["dirty"]
    hosts.plant(folder, {"a.txt": "2\n"})
    assert environment.git_state(folder)["dirty"]
    git(folder, "checkout", "--detach")
    assert environment.git_state(folder)["branch"] is None


def test_git_before_the_first_commit_and_outside(tmp_path: Path) -> None:
    git(hosts.plant(tmp_path / "new", {"a": ""}), "init", "-b", "trunk")
    assert environment.git_state(tmp_path / "new") == {"commit": None, "branch": "trunk", "dirty": False}
    with pytest.raises(Absent, match="not a git repository"):
        environment.git_state(tmp_path)


@pytest.mark.parametrize(("quota", "cpus"), [("-1", None), ("150000", 1.5)])
def test_limits_of_control_groups_version_1(tmp_path: Path, quota: str, cpus: float | None) -> None:
    hosts.plant(tmp_path, {
        "proc/self/cgroup": "4:cpu:/\n5:memory:/\n",
        "proc/self/mountinfo": "33 31 0:30 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
                               "34 31 0:31 / /cg/mem rw - cgroup cgroup rw,memory\n",
        "cg/cpu/cpu.cfs_quota_us": quota, "cg/cpu/cpu.cfs_period_us": "100000",
        "cg/mem/memory.limit_in_bytes": "9223372036854771712"})
    found = environment.capture(tmp_path, Host(tmp_path))
    assert found["cgroup"] == {"version": 1, "cpus": cpus, "memory_bytes": None}
    assert found["why_absent"]["cgroup.memory_bytes"] == "no limit is set"


def test_digest_ignores_what_always_changes(server: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = captured(server)
    hosts.plant(server.root, {"proc/loadavg": "9 9 9 1/1 1\n", "etc/machine-id": "another", "proc/meminfo":
                              hosts.MEMINFO.replace("1056000000", "1056000400")})
    monkeypatch.setenv("AACO_SESSION_DIR", "/elsewhere")
    after = captured(server) | {"captured_utc": "later", "git": {"commit": "c0ffee"}, "machine": {"id": "x", "card": 1}}
    assert environment.digest(json.loads(json.dumps(after))) == environment.digest(before)


@pytest.mark.parametrize(("file", "content"), [
    ("sys/devices/system/cpu/cpufreq/policy3/scaling_governor", "schedutil"), ("proc/cmdline", "isolcpus=2"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"), ("proc/sys/kernel/osrelease", "6.9"),
    ("sys/fs/cgroup/pod/cpu.max", "200000 100000"), ("opt/rocm/.info/version", "7.0"),
    ("sys/devices/system/cpu/cpufreq/boost", "0")])
def test_digest_sees_what_matters(server: Host, file: str, content: str) -> None:
    before = captured(server)
    hosts.plant(server.root, {file: content})
    after = captured(server)
    assert environment.digest(after) != environment.digest(before)
    assert environment.diff(before, after)


def test_digest_sees_variables_and_packages(server: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = captured(server)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert environment.digest(captured(server)) != environment.digest(before)
    assert environment.digest(before | {"packages": {}}) != environment.digest(before)


def test_diff() -> None:
    a = {"captured_utc": "1", "load": {"average": [1]}, "cpu": {"smt": "on"}, "gpu": {"amd": [{"model": "a"}]},
         "packages": {"numpy": "1", "gone": "2"}, "python": {"version": "3"}, "cgroup": {"cpus": None}}
    b = {"captured_utc": "2", "load": {"average": [2]}, "cpu": {"smt": "off"}, "gpu": {"amd": [{"model": "b"}]},
         "packages": {"numpy": "1"}, "python": {"version": "3"}}
    assert environment.diff(a, b) == [FactDifference("cpu.smt", "on", "off"),
                                      FactDifference("gpu.amd.0.model", "a", "b"),
                                      FactDifference("packages.gone", "2", None)]
    assert environment.diff(a, a) == []


def test_several_onnxruntimes_and_their_providers(tmp_path: Path) -> None:
    hosts.plant(tmp_path, {"onnxruntime/__init__.py": "raise SystemError('imported')\n",
                           "onnxruntime/capi/libonnxruntime_providers_cuda.so": "",
                           "onnxruntime/capi/libonnxruntime_providers_shared.so": "",
                           "onnxruntime/capi/onnxruntime_pybind11_state.so": ""})
    for name in ("onnxruntime", "onnxruntime_gpu"):
        hosts.plant(tmp_path, {f"{name}-1.23.0.dist-info/METADATA":
                               f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.23.0\n"})
    found = environment.onnxruntime(Host(python_path=(str(tmp_path),)))
    assert found == {"distributions": {"onnxruntime": "1.23.0", "onnxruntime-gpu": "1.23.0"},
                     "providers": ["CUDAExecutionProvider", "CPUExecutionProvider"]}
    with pytest.raises(Absent):
        environment.onnxruntime(Host(python_path=(str(tmp_path / "none"),)))
