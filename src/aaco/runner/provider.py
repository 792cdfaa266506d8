"""ONNX Runtime sessions on exactly the requested provider, or an error; never a silent fallback.

ONNX Runtime itself falls back to the CPU with a warning if a provider is missing or fails to start, so the providers it
reports after loading, and the nodes it assigned, are compared with the request.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from msgspec import Struct
from msgspec.structs import replace
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from aaco.core.errors import AacoError, Missing, ModelError, UsageError
from aaco.core.providers import CPU, MEMORY, ON_CUDA
from aaco.runner.job import Job
from aaco.tracelake.outputs import Produced

NO_TENSOR = "it is no tensor"
IN_DEVICE = "it stays in the device's memory, and numpy has no such type"
# ONNX Runtime's arena and device allocators, cudaMalloc and hipMalloc, operator new.
NO_ROOM = re.compile(r"allocate memory|out of memory|bad_?alloc", re.IGNORECASE)
BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
OFFERED = "basic"
LEVELS = {  # each does more than the one before
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    OFFERED: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
EXECUTION_MODES = {"sequential": ort.ExecutionMode.ORT_SEQUENTIAL, "parallel": ort.ExecutionMode.ORT_PARALLEL}
# pybind11 gives each status code a class of its own, without a common base.
FAILURES = (
    ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph, ort_errors.InvalidProtobuf,
    ort_errors.NoModel, ort_errors.NoSuchFile, ort_errors.NotImplemented, ort_errors.RuntimeException,
    ort_errors.EPFail, ort_errors.EngineError, RuntimeError, MemoryError,
)


def open_session(job: Job, level: str = "", profile_prefix: str = "", dump: str = "") -> ort.InferenceSession:
    """Return a session on job.provider, its graph optimised to `level`, by default to the job's level.

    Raise Missing if that provider does not run here, ModelError for a bad model.
    """
    if job.provider not in ort.get_available_providers():
        raise Missing(f"{job.provider} is not in this ONNX Runtime ({ort.__version__} has "
                      f"{', '.join(ort.get_available_providers())})", job.install)
    if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
        raise Missing(f"ONNX Runtime {ort.__version__} cannot say which provider takes which node", job.install)
    if job.provider in ON_CUDA:
        ort.preload_dlls()
    model = Path(job.named).read_bytes() if job.named else job.model
    try:
        session = ort.InferenceSession(model, _options(job, level or job.level, profile_prefix, dump),
                                       providers=[job.provider], provider_options=[job.provider_options],
                                       enable_fallback=False)
    except FAILURES as error:
        raise _explain(job, error) from error
    if job.provider not in session.get_providers():
        raise Missing(f"{job.provider} did not start: {_why_not(job.provider, session)}", _repair_hint(job))
    _refuse_empty_assignment(job, session)
    return session


def dump_graph(job: Job, level: str, path: str) -> None:
    """Write the graph as optimised at this level, but no further than the job's; run nothing.

    Raise ModelError if ONNX Runtime refuses.
    """
    order = list(LEVELS)
    open_session(job, level=order[min(order.index(level), order.index(job.level))], dump=path)


def dump_offered(job: Job, path: str) -> None:
    """Write the graph that providers are offered: after the optimisations that ONNX Runtime makes for all of them.

    It compiles subgraphs only after that, so the CPU provider, which compiles none, can write it for any other; names
    of nodes are then those of the assignment. Raise ModelError if the CPU provider misses an operator.
    """
    open_session(replace(job, provider=CPU, provider_options={}), level=OFFERED, dump=path)


class BoundModel(Struct, frozen=True):
    """A model with its inputs: `run` makes one inference, `produced` returns the outputs of the last one.

    `vary` moves every element of every input by one place, so that the next inference has other inputs of the same
    values: what was remembered of the last one is of no use. Text stays as it is.
    """

    run: Callable[[], object]
    produced: Callable[[], list[Produced]]
    vary: Callable[[], None]


def bind(session: ort.InferenceSession, job: Job) -> BoundModel:
    """Return calls without arguments: one inference, and the outputs of the last one.

    From host memory to host memory, or, for a job with resident data, within the device's. Through IO binding, which
    takes half the time of a plain call; text cannot be bound. Raise UsageError for resident text.
    """
    kinds = {item.name: item.type for item in session.get_inputs()}
    with np.load(job.inputs, allow_pickle=False) as arrays:
        tensors = {name: np.ascontiguousarray(arrays[name]) for name in arrays.files}
    if "tensor(string)" in kinds.values():
        if job.resident:
            raise UsageError(f"{job.model} takes text, which no device holds", "--io host")
        return _bind_plain(session, job, tensors)
    values = {name: _make_value(tensor, kinds[name]) for name, tensor in tensors.items()}
    binding = session.io_binding()

    def vary() -> None:
        _roll(tensors)
        if job.resident:  # their device has the values of before
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)

    return BoundModel(_explain_failures(session, job, _bind_inputs(session, binding, job, values)),
                      lambda: [_fetch_output(item.name, item.type, value) for item, value in
                               zip(session.get_outputs(), binding.get_outputs(), strict=True)], vary)


def _roll(tensors: dict[str, np.ndarray]) -> None:
    """Move the elements of each array by one place, in its own memory, which ONNX Runtime's values share."""
    for tensor in tensors.values():
        tensor[...] = np.roll(tensor, 1)


def _bind_plain(session: ort.InferenceSession, job: Job, tensors: dict[str, np.ndarray]) -> BoundModel:
    """Return calls without binding; they keep only the last outputs."""
    last: list[Any] = []

    def run() -> None:
        last[:] = session.run(None, tensors)

    return BoundModel(_explain_failures(session, job, run), lambda: [
        _as_array(item.name, item.type, np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else
        Produced(item.name, item.type, None, NO_TENSOR)
        for item, value in zip(session.get_outputs(), last, strict=True)], lambda: _roll(
            {name: tensor for name, tensor in tensors.items() if tensor.dtype.kind != "U"}))


def _fetch_output(name: str, kind: str, value: ort.OrtValue) -> Produced:
    """Return an output on the host. bfloat16 is widened to float32, which numpy has and which holds it exactly."""
    if not value.is_tensor():
        return Produced(name, kind, None, NO_TENSOR)
    if kind == "tensor(bfloat16)":
        if value.device_name() != "cpu":  # its address is none of the host's
            return Produced(name, "bfloat16", None, IN_DEVICE)
        raw = np.frombuffer(ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()), np.uint16)
        wide = (raw.astype(np.uint32) << 16).view(np.float32)
        return Produced(name, "bfloat16", wide.reshape(value.shape()))
    if kind.startswith("tensor(float8") or "int4" in kind or "uint4" in kind:
        return Produced(name, kind, None, "numpy has no such type")
    return _as_array(name, kind, value.numpy())


def _as_array(name: str, kind: str, array: np.ndarray) -> Produced:
    return Produced(name, "str", array.astype(str)) if kind == "tensor(string)" else Produced(
        name, array.dtype.name, array)


def _bind_inputs(session: ort.InferenceSession, binding: ort.IOBinding, job: Job,
                 values: dict[str, ort.OrtValue]) -> Callable[[], object]:
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    device = session.get_provider_options().get(job.provider, {}).get("device_id", "0")
    for output in session.get_outputs():
        if job.resident:
            binding.bind_output(output.name, MEMORY[job.provider], int(device))
        else:
            binding.bind_output(output.name)
    # Binding is when an input is copied to its device (IOBinding::BindInput): there, each inference binds again, unless
    # its data is resident. On the CPU nothing is copied, so the values must outlive the binding, which does not own
    # them.
    copied = job.provider != CPU and not job.resident

    def run() -> None:
        if copied:
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


def _make_value(tensor: np.ndarray, kind: str) -> ort.OrtValue:
    if kind == "tensor(bfloat16)":  # numpy has no such type: its files bring it back as two bytes without a meaning
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(tensor.view(np.uint16), BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(tensor)


def _explain_failures(session: ort.InferenceSession, job: Job, infer: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        try:
            infer()
        except FAILURES as error:
            fix = "ask for less at once: --batch, --shape" if NO_ROOM.search(str(error)) else \
                f"check --inputs and --shape: the model takes {_signature(session)}"
            raise UsageError(f"{job.model}: the inference failed: {_shorten(error)}", fix) from error

    return run


def describe(session: ort.InferenceSession) -> dict[str, Any]:
    """Return the real state: version, providers with their options, and the node assignment by ONNX Runtime itself."""
    return {
        "onnxruntime": ort.__version__,
        "build": ort.get_build_info(),
        "providers": session.get_providers(),
        "provider_options": session.get_provider_options(),
        "assignment": [{"provider": part.ep_name, "nodes": [node.name for node in part.get_nodes()]}
                       for part in session.get_provider_graph_assignment_info()],
        "inputs": [{"name": item.name, "type": item.type, "shape": item.shape} for item in session.get_inputs()],
        "outputs": [{"name": item.name, "type": item.type, "shape": item.shape} for item in session.get_outputs()],
    }


def _options(job: Job, level: str, profile_prefix: str, dump: str) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4  # failures come back as exceptions; its log would only repeat them on stderr
    options.graph_optimization_level = LEVELS[level]
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for name, value in (job.session_options | job.entries).items():
        if "." in name:
            options.add_session_config_entry(name, value)
        else:
            setattr(options, name, EXECUTION_MODES[value] if name == "execution_mode" else value)
    for library in job.custom_ops:
        try:
            options.register_custom_ops_library(library)
        except FAILURES as error:
            raise UsageError(f"--custom-op {library}: ONNX Runtime {ort.__version__} cannot register it: "
                             f"{_shorten(error)}", "build it for this ONNX Runtime and this machine") from error
    if job.named:  # read as bytes, so that external data is still searched next to the model itself
        options.add_session_config_entry("session.model_external_initializers_file_folder_path",
                                         str(Path(job.model).parent))
    if profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    if dump:
        options.optimized_model_filepath = dump
        # Weights go to a file of their own, so that a graph above protobuf's 2 GB still serialises.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name",
                                         Path(dump).name + ".data")
    return options


def _refuse_empty_assignment(job: Job, session: ort.InferenceSession) -> None:
    used = {part.ep_name for part in session.get_provider_graph_assignment_info() if part.get_nodes()}
    if used and job.provider not in used:
        raise Missing(f"{job.provider} started but took no node of {job.model}: all run on {', '.join(sorted(used))}",
                      "the provider supports none of the model's operators; choose another backend")


def _explain(job: Job, error: Exception) -> AacoError:
    text = _shorten(error).replace(job.model, "the model")
    if "compiled nodes" in text:
        return ModelError(f"{job.provider} compiles subgraphs, and ONNX Runtime writes no graph that holds them",
                          "the nodes of each subgraph are in the provider assignment")
    if "Unknown provider option" in text:
        return UsageError(f"{job.provider} refuses its options: {text}", "correct its options in configs/backends.yaml")
    blamed = job.provider.removesuffix("ExecutionProvider").lower()
    if isinstance(error, ort_errors.EPFail) or (job.provider != CPU and blamed in text.lower()):
        return Missing(f"{job.provider} failed to start: {text}", _repair_hint(job))
    unregistered = " is not a registered function/op" in text
    return ModelError(f"{job.model}: ONNX Runtime {ort.__version__} cannot load it: {text}",
                      "register the library that has the operator: --custom-op LIB" if unregistered else
                      "export it with an opset and operators that this ONNX Runtime supports")


def _why_not(provider: str, session: ort.InferenceSession) -> str:
    """Return the dynamic linker's message on the provider's library; ONNX Runtime only logs it, and continues without.
    """
    name = provider.removesuffix("ExecutionProvider").lower()
    library = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{name}.so"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return f"ONNX Runtime fell back to {', '.join(session.get_providers())}"


def _repair_hint(job: Job) -> str:
    return f"aaco doctor  # shows what {job.provider} needs and this machine lacks; its library is installed"


def _signature(session: ort.InferenceSession) -> str:
    return ", ".join(f"{item.name} {item.type}{item.shape}" for item in session.get_inputs())


def _shorten(error: Exception) -> str:
    """Return the message on one line, without the place in ONNX Runtime's source that some begin with."""
    text = re.sub(r"^/\S+\.(cc|h):\d+ .*?\) ", "", " ".join(str(error).split()))
    return text if len(text) <= 400 else text[:400] + " ..."
