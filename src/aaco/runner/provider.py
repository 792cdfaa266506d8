"""ONNX Runtime sessions on exactly the provider that was asked for, or an error; never a silent fallback.

ONNX Runtime itself falls back to the CPU with a warning when a provider is missing or fails to start, so the providers
it reports after loading, and the nodes it assigned, are compared with the request.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from aaco.core.errors import Missing, ModelError, UsageError
from aaco.runner.job import Job

CPU = "CPUExecutionProvider"
LEVELS = {
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
# pybind11 gives each status code a class of its own, without a common base.
FAILURES = (
    ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph, ort_errors.InvalidProtobuf,
    ort_errors.NoModel, ort_errors.NoSuchFile, ort_errors.NotImplemented, ort_errors.RuntimeException,
    ort_errors.EPFail, ort_errors.EngineError, RuntimeError,
)


def open_session(job: Job, level: str = "all", profile_prefix: str = "", dump: str = "") -> ort.InferenceSession:
    """A session on job.provider. Raises Missing when that provider does not run here, ModelError for a bad model."""
    if job.provider not in ort.get_available_providers():
        raise Missing(f"{job.provider} is not in this ONNX Runtime ({ort.__version__} has "
                      f"{', '.join(ort.get_available_providers())})", job.install)
    try:
        session = ort.InferenceSession(job.model, _options(job, level, profile_prefix, dump),
                                       providers=[job.provider], provider_options=[job.provider_options],
                                       enable_fallback=False)
    except FAILURES as error:
        raise _explain(job, error) from error
    if job.provider not in session.get_providers():
        raise Missing(f"{job.provider} did not start: ONNX Runtime fell back to {', '.join(session.get_providers())}",
                      job.install)
    _refuse_empty_assignment(job, session)
    return session


def dump_graph(job: Job, level: str, path: str) -> None:
    """Write the graph as optimised at this level; nothing is run. Raises ModelError where ONNX Runtime refuses."""
    open_session(job, level=level, dump=path)


def bind(session: ort.InferenceSession, job: Job) -> Callable[[], object]:
    """A call without arguments that runs one inference from host memory to host memory through IO binding."""
    binding = session.io_binding()
    with np.load(job.inputs, allow_pickle=False) as arrays:
        tensors = {name: np.ascontiguousarray(arrays[name]) for name in arrays.files}
    for name, tensor in tensors.items():
        binding.bind_cpu_input(name, tensor)
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def run() -> None:
        try:
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()
        except FAILURES as error:
            raise UsageError(f"{job.model}: the inference failed: {_brief(error)}",
                             f"check --inputs and --shape: the model takes {_signature(session)}") from error

    return run


def describe(session: ort.InferenceSession) -> dict[str, Any]:
    """What really runs: version, providers with their options, and the node assignment by ONNX Runtime itself."""
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
    for name, value in job.session_options.items():
        setattr(options, name, value)
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


def _explain(job: Job, error: Exception) -> Missing | ModelError:
    text = _brief(error)
    if isinstance(error, ort_errors.EPFail) or job.provider.removesuffix("ExecutionProvider").lower() in text.lower():
        return Missing(f"{job.provider} failed to start: {text}", job.install)
    return ModelError(f"{job.model}: ONNX Runtime {ort.__version__} cannot load it: {text}",
                      "export it with an opset and operators that this ONNX Runtime supports")


def _signature(session: ort.InferenceSession) -> str:
    return ", ".join(f"{item.name} {item.type}{item.shape}" for item in session.get_inputs())


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 400 else text[:400] + " ..."
