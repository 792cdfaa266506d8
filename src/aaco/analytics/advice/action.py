"""An action that advice can offer: what it acts on, where it applies, what to try, what it costs, what confirms it.

An action of a device has a mechanism (mechanism.py), whose floor bounds it. Parts of a run on CPUs sum to its time
exactly, so there the share that an action can remove is its bound (Amdahl 1967).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from aaco.core.advice import FactCondition, FactValues, Step, fact_is, fact_is_not, offered, why_not

EFFORTS = ("low", "medium", "high")
ACTS_ON = "acts_on_pct of "  # a mechanism: the share of a step that its targets take, among the values of readings
HOST_BOUND = 0.9  # a step with less device work than this share of its time waits for the host
BUSY, COMPUTES = "device_busy_pct of a step", "host_computes_pct of a step"
USUAL = "usual gain of "  # a mechanism: of a step that was only profiled, among the values of readings
LEAST_PCT = 1.0  # of the wall; an action that can gain less is not worth a line
Values = Mapping[str, float]
ALL = "all of it: a bound"

PYTORCH, ORT = fact_is("framework", "pytorch"), fact_is("framework", "onnxruntime")
VLLM, SGLANG = fact_is("framework", "vllm"), fact_is("framework", "sglang")
ENGINE, LLAMA_CPP = fact_is("framework", "vllm", "sglang"), fact_is("framework", "llama.cpp")
OWN_CODE = fact_is_not("framework", "vllm", "sglang", "tensorrt_llm", "llama.cpp")  # a program that its user can edit
NO_FRAMEWORK = fact_is_not("framework", "pytorch", "onnxruntime", "vllm", "sglang", "jax", "tensorflow", "migraphx",
                           "tensorrt", "tensorrt_llm", "llama.cpp")
NO_PYTHON = fact_is_not("framework", "pytorch", "onnxruntime", "vllm", "sglang", "jax", "tensorflow")
AMD, NVIDIA = fact_is("vendor", "amd"), fact_is("vendor", "nvidia")
TRAINING, INFERENCE = fact_is("phase", "training"), fact_is("phase", "inference")
NOT_SERVING = fact_is_not("phase", "serving")
NARROW = fact_is("product_type", "fp16", "bf16", "fp8", "fp4", "int8", "int4")

MORE_REQUESTS = (Step("more requests at once: --max-num-seqs of vLLM", (VLLM,)),
                 Step("more requests at once: --max-running-requests of SGLang", (SGLANG,)),
                 Step("more sequences at once: --parallel of llama-server", (LLAMA_CPP,)))
# llama.cpp has graphs of its own. ggml/CMakeLists.txt builds them by default, for HIP since April 2026; the variable
# turns them off on both (ggml-cuda/common.cuh, is_enabled).
LLAMA_GRAPHS = tuple(
    Step(f"llama.cpp: built with -D{option}=ON, and run without GGML_CUDA_DISABLE_GRAPHS",
         (LLAMA_CPP, vendor, fact_is("graph_capture", "possible", "too_short")),
         (fact_is("device_graph", "replayed", "captured"),))
    for option, vendor in (("GGML_CUDA_GRAPHS", NVIDIA), ("GGML_HIP_GRAPHS", AMD)))


def everything(values: Values) -> float:
    """Return that all of the share can go."""
    return 1.0


def everything_pct(values: Values) -> float:
    """Return that nothing says how much of the wall can go at most, per cent."""
    return 100.0


class Action(Struct, frozen=True):
    """An action that helps against a limit.

    share: the limit's share of the wall, per cent, from readings and floors. feasible: the part of it that the action
    can remove, for the reason in why_feasible. Both raise KeyError if a value that they need is absent. evidence: what
    happens in that share of the time, in words. at_most: the share of the wall that it removes at most, where a reading
    says so; KeyError where it is absent. attempts: what to try, for each framework and device. applies_if,
    already_done_if: facts without which, or with which, it is not offered. accuracy, memory: what it costs there; empty
    where nothing. mechanism: the kind of change whose floor bounds it; empty of actions on runs on CPUs. of_limit: what
    happens in the share where it is not what a step's work shows, and a reading of a limit stands in; empty else.
    ceiling_takes: what its ceiling counts on besides the share and the host's time; empty where nothing. surpasses: the
    name of an action that leaves the device no less to do, and comes after it where both are worth a try. combines: the
    names of actions that it is together; it is offered where it gains more than each of them, by LEAST_GAIN.
    confirm: the metric that shows the effect, going in a direction. or_confirm: others; of all, the one with the
    largest value in this session does, for what is 0 cannot go down.
    """

    name: str
    title: str
    share: Callable[[Values], float]
    evidence: str
    effort: str
    attempts: tuple[Step, ...]
    confirm: str
    direction: str = "down"
    applies_if: tuple[FactCondition, ...] = ()
    already_done_if: tuple[FactCondition, ...] = ()
    feasible: Callable[[Values], float] = everything
    why_feasible: str = ALL
    accuracy: str = ""
    memory: str = ""
    mechanism: str = ""
    at_most: Callable[[Values], float] = everything_pct
    of_limit: str = ""
    or_confirm: tuple[str, ...] = ()
    ceiling_takes: str = ""
    surpasses: str = ""
    combines: tuple[str, ...] = ()

    def why_not(self, facts: FactValues | None) -> str:
        """Return why the action is not offered in a workload with these facts; empty if it is."""
        if reason := why_not(facts, self.applies_if, self.already_done_if):
            return reason
        if offered(self.attempts, facts):
            return ""
        return next(step.why_not(facts) for step in self.attempts)

    def confirmed_by(self, values: Values) -> str:
        """Return the metric that confirms the action in a session with these readings."""
        return max((self.confirm, *self.or_confirm), key=lambda name: values.get(name, -math.inf))


def of_metric(name: str) -> Callable[[Values], float]:
    """Return the share that a reading says."""
    return lambda values: values[name]


def of_launches(values: Values) -> float:
    """Return the share of the wall that fewer launches can take away: where the host's own work takes longer than its
    launches, no more than those, for that work is as long in a graph and for each sample of a batch.
    """
    launches = values.get("launch_tax_pct", 100.0)
    return launches if _own_work_pct(values) > max(launches, LEAST_PCT) else 100.0


def of_own_work(values: Values) -> float:
    """Return the time of the host's own work, no more than the device is idle in a step without a profiler. KeyError
    where nothing says how long it is.
    """
    own = values["host_pause_pct"] if not values.get(COMPUTES) else _own_work_pct(values)
    own -= min(own, values.get("allocation_call_pct", 0.0))
    return min(own, values.get(ACTS_ON + "host_work", own))


def _own_work_pct(values: Values) -> float:
    """Return the time of the host's own work: its pauses, or what it computes on tensors of its own."""
    return max(values.get("host_pause_pct", 0.0), values.get(COMPUTES, 0.0))


def of_targets(mechanism: str, otherwise: str = "") -> Callable[[Values], float]:
    """Return the share of what a mechanism acts on; where that is not known, of the reading that is named, and nothing
    of a step that waits for the host: shorter kernels do not shorten that.
    """
    return lambda values: (values[ACTS_ON + mechanism] if ACTS_ON + mechanism in values
                           else values[otherwise] * (not _waits_for_host(values)))


def _waits_for_host(values: Values) -> bool:
    """Return whether a step without a profiler waits for the host: the device's own work leaves time, and it is not
    copies that the host feeds, which count as no more than their bytes / link there.
    """
    left_pct = 100 - values.get(BUSY, 100.0)
    return left_pct - values.get("transfer_limited_pct", 0.0) > 100 * (1 - HOST_BOUND)
