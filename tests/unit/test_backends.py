"""The choice of `--backend auto`: by priority, by what is installed, and by the devices of a planted machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from aaco.collectors import capabilities
from aaco.core.config import resolve
from aaco.core.errors import Missing, UsageError
from aaco.core.host import Host
from aaco.core.machine import Gpu
from aaco.runner import registry
from aaco.steps import choose_backend, run
from tests.fakes import hosts

CAPI = "onnxruntime/capi/"
CPU = {"onnxruntime/__init__.py": "", f"{CAPI}onnxruntime_pybind11_state.so": ""}
H200 = Gpu("NVIDIA", "NVIDIA H200", None, None, None)


def planted(root: Path, *stems: str, gpus: int = 0, kfd: bool = True) -> Host:
    """A machine with AMD GPUs, and an ONNX Runtime with the libraries of these providers."""
    hosts.plant(root, CPU | {f"{CAPI}libonnxruntime_providers_{stem}.so": "" for stem in stems})
    if gpus:
        hosts.amd_gpus(root, gpus)
        hosts.plant(root, {"dev/kfd": ""} if kfd else {})
    return Host(root, (str(root),))


def nvidia(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setitem(choose_backend.DEVICES, "CUDAExecutionProvider", lambda host: (H200,) * gpus)
    monkeypatch.setitem(choose_backend.DEVICES, "TensorrtExecutionProvider", lambda host: (H200,) * gpus)
    monkeypatch.setattr(capabilities, "_libcuda", lambda host: "libcuda.so.1 loads")
    questions = tuple(capabilities.HostCheck("", name, capabilities._provider(name, needs), "") for name, needs in (
        ("CPUExecutionProvider", None), ("MIGraphXExecutionProvider", capabilities._device("dev/kfd")),
        ("CUDAExecutionProvider", capabilities._libcuda), ("TensorrtExecutionProvider", capabilities._libcuda)))
    monkeypatch.setattr(capabilities, "QUESTIONS", questions)


def test_the_device_that_is_there_comes_before_the_processor(tmp_path):
    """Mutation: entries in another order than that of priority."""
    name, why = choose_backend.choose(registry.backends(), planted(tmp_path, "migraphx", gpus=2))
    assert name == "migraphx" and why.startswith("the first by priority that is here (")
    assert "MI300X" in why and "dev/kfd is accessible" in why
    assert choose_backend.unused(registry.backends(), "cpu", planted(tmp_path, "migraphx", gpus=2)) == "migraphx"
    assert choose_backend.unused(registry.backends(), "migraphx", planted(tmp_path, "migraphx", gpus=2)) == ""


@pytest.mark.parametrize(("stems", "gpus", "kfd", "says"), [
    ((), 2, True, "not migraphx, tensorrt, cuda, openvino: the installed ONNX Runtime brings only CPU"),
    (("migraphx",), 0, True, "dev/kfd is missing"), (("migraphx",), 2, False, "dev/kfd is missing")])
def test_what_is_not_here_is_passed_over_and_told(tmp_path, stems, gpus, kfd, says):
    """Mutation: a provider without its device taken."""
    host = planted(tmp_path, *stems, gpus=gpus, kfd=kfd)
    name, why = choose_backend.choose(registry.backends(), host)
    assert name == "cpu" and says in why
    assert choose_backend.unused(registry.backends(), "cpu", host) == ""


def test_a_named_backend_needs_its_provider_before_anything_is_measured(tmp_path):
    """Mutations: taken without its library; a provider of somebody's own refused unseen."""
    entries, host = registry.backends(), planted(tmp_path, "migraphx")
    choose_backend.refuse_missing(entries["cpu"], host)
    choose_backend.refuse_missing(entries["migraphx"], host)
    choose_backend.refuse_missing(registry.BackendEntry(name="mine", provider="MyExecutionProvider"), host)
    with pytest.raises(Missing, match="CUDAExecutionProvider is not in the installed ONNX Runtime") as refused:
        choose_backend.refuse_missing(entries["cuda"], host)
    assert "aaco[cuda]" in refused.value.fix


@pytest.mark.parametrize("asked", [{"device_id": 1}, {"options": {"device_id": 1}}])
def test_a_device_of_another_number_is_not_there(tmp_path, asked):
    """Mutation: the number among the provider's own options overlooked."""
    entries = {"second": registry.BackendEntry(name="second", provider="MIGraphXExecutionProvider", **asked)}
    assert choose_backend.choose(entries, planted(tmp_path / "two", "migraphx", gpus=2))[0] == "second"
    with pytest.raises(Missing, match=r"no backend is here: not second: device 1 is not there, of 1"):
        choose_backend.choose(entries, planted(tmp_path / "one", "migraphx", gpus=1))


@pytest.mark.parametrize(("hides", "says"), [
    ({"CUDA_VISIBLE_DEVICES": ""}, "device 0 is not there, of 0 by CUDA_VISIBLE_DEVICES"),
    ({"CUDA_VISIBLE_DEVICES": "-1,0"}, "device 0 is not there, of 0 by CUDA_VISIBLE_DEVICES"),
    ({"CUDA_VISIBLE_DEVICES": "1"}, "device 0 of 1 by CUDA_VISIBLE_DEVICES"), ({"HIP_VISIBLE_DEVICES": ""}, "H200")])
def test_a_device_that_is_hidden_is_not_there(tmp_path, monkeypatch, hides, says):
    """Mutation: devices counted that the process will not see."""
    nvidia(monkeypatch, 2)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in hides.items():
        monkeypatch.setenv(name, value)
    name, why = choose_backend.choose(registry.backends(), planted(tmp_path, "cuda"))
    assert says in why and name == ("cpu" if "not there" in says else "cuda")


def test_cuda_where_the_wheel_has_tensorrt_but_the_machine_has_not(tmp_path, monkeypatch):
    nvidia(monkeypatch, 1)
    monkeypatch.setattr(capabilities, "_missing_libraries", lambda host, library: (
        ["libnvinfer.so.10: cannot open"] if library and "tensorrt" in library.name else []))
    name, why = choose_backend.choose(registry.backends(), planted(tmp_path, "cuda", "tensorrt"))
    assert name == "cuda" and "(H200; " in why and "not tensorrt: libnvinfer.so.10: cannot open" in why
    nvidia(monkeypatch, 0)
    name, why = choose_backend.choose(registry.backends(), planted(tmp_path, "cuda", "tensorrt"))
    assert name == "cpu" and "not cuda: device 0 is not there, of 0" in why


def test_tensorrt_where_its_library_loads(tmp_path, monkeypatch):
    nvidia(monkeypatch, 1)
    assert choose_backend.choose(registry.backends(), planted(tmp_path, "cuda", "tensorrt"))[0] == "tensorrt"


def test_a_retired_backend_or_an_unknown_provider_is_not_chosen(tmp_path):
    entries = {"old": registry.BackendEntry(name="old", provider="CPUExecutionProvider", retired="gone"),
               "odd": registry.BackendEntry(name="odd", provider="OddExecutionProvider")}
    with pytest.raises(Missing, match="not odd: what OddExecutionProvider needs is not known here"):
        choose_backend.choose(entries, planted(tmp_path))


def test_the_plan_says_what_auto_is_and_why(monkeypatch):
    """Mutation: `auto` kept in the plan; the reason left out."""
    told = Told()
    plan = run.complete_plan(resolve(environment={}), "gpt2-tiny", {"backend": "auto"}, told)
    assert plan.backend == "cpu" and plan.backend_why.startswith("the first by priority")
    assert told.steps == [f"backend cpu: {plan.backend_why}"]
    monkeypatch.setattr(choose_backend, "unused", lambda entries, default: "cuda")
    plan = run.complete_plan(resolve(environment={}), "gpt2-tiny", {"backend": None}, told)
    assert (plan.backend, plan.backend_why) == ("cpu", "")
    assert told.steps[1:] == ["backend cpu, by default; cuda would run here: --backend cuda, or auto"]
    run.complete_plan(resolve(environment={}), "gpt2-tiny", {"backend": "cpu"}, told)
    assert len(told.steps) == 2


def test_no_backend_is_named_auto(tmp_path):
    (tmp_path / "b.yaml").write_text("backends: {auto: {provider: CPUExecutionProvider}}\n")
    with pytest.raises(UsageError, match="no backend can be named auto"):
        registry.backends([tmp_path / "b.yaml"])


class Told:
    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)
