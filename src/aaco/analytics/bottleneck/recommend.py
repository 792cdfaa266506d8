"""Recommend actions: how much of the time each acts on, and how much faster a step can become by it at most.

The ceiling of an action on a device is that of its mechanism: the step's time over what must stay of it
(analytics/advice). Where no floor is known there is no ceiling, and the reason is told. Parts of a run on CPUs sum to
its time exactly, so there the share that an action can remove is its bound (Amdahl 1967).

Actions are ranked by what recorded changes of their kind make likely (analytics/advice/expected.py), else by share x
feasible. Feasible shares are measured if our recordings have the same step with and without the limit
(tests/captures/torch_scenarios), else derived from the action; each says which. An action that cannot gain LEAST_GAIN,
or is expected to gain less, is not offered. `confirm` names the reading that shows the effect, and its direction.

What is already so, what the framework or the device does not have, and what cannot work here is not offered: each
action, and each thing to try, declares on which facts of the workload it depends (analytics/workload).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from aaco.analytics.advice.expected import LEAST_GAIN, Expected
from aaco.analytics.advice.floors import NO_FLOORS, Floors
from aaco.core.advice import FactCondition, FactValues, Step, fact_is, fact_is_not, offered, why_not
from aaco.core.readings import Reading
from aaco.tracelake.document_schemas.answers import Confirmation, ExpectedGain, NotOffered, Recommended

LEAST_PCT = 1.0  # of the wall; an action that can gain less is not worth a line
NOTHING = frozenset({"none"})  # the value of a fact that is about something that the workload does not have
EFFORTS = ("low", "medium", "high")
Values = Mapping[str, float]


@dataclass(frozen=True)
class KnownAction:
    """An action that helps against a limit.

    share: the limit's share of the wall, per cent, from readings. feasible: the part of it that the action can
    remove. Both raise KeyError if a reading that they need is absent. attempts: what to try, for each framework and
    device. applies_if, already_done_if: facts without which, or with which, it is not offered. mechanism: the kind of
    change (analytics/advice/mechanisms) whose floor bounds it; empty of actions on runs on CPUs.
    """

    name: str
    title: str
    share: Callable[[Values], float]
    feasible: Callable[[Values], float]
    why_feasible: str
    effort: str
    attempts: tuple[Step, ...]
    confirm: str
    direction: str = "down"
    applies_if: tuple[FactCondition, ...] = ()
    already_done_if: tuple[FactCondition, ...] = ()
    mechanism: str = ""

    def why_not(self, facts: FactValues | None) -> str:
        """Return why the action is not offered in a workload with these facts; empty if it is."""
        if reason := why_not(facts, self.applies_if, self.already_done_if):
            return reason
        if offered(self.attempts, facts):
            return ""
        return next(step.why_not(facts) for step in self.attempts)


@dataclass(frozen=True)
class Withheld:
    """An action that could gain something by the readings and is not offered, and why.

    by_gain: whether its ceiling, or what is expected of it, speaks against it; else a fact of the workload does.
    """

    name: str
    title: str
    gain_pct: float
    why: str
    by_gain: bool = False

    def entry(self) -> NotOffered:
        """Return the entry of not_offered in bottleneck.json."""
        return NotOffered(action=self.name, title=self.title, gain_pct=self.gain_pct, because=self.why)


@dataclass(frozen=True)
class Recommendation:
    """An action with its possible gain in this session. ceiling, ceiling_of, floor_ms: as in `Recommended`."""

    name: str
    title: str
    share_pct: float
    feasible_ratio: float
    why_feasible: str
    effort: str
    attempt: str
    confirm_metric: str
    confirm_direction: str
    targets: tuple[str, ...] = ()  # nodes or kernels that it acts on, those that take most first
    mechanism: str = ""
    ceiling: float | None = None
    ceiling_of: str = ""
    floor_ms: float | None = None
    why_no_ceiling: str = ""
    expected: Expected | None = None

    @property
    def gain_pct(self) -> float:
        """The share of the wall that it removes: as recorded changes make likely, else an estimate under the ceiling;
        of a run on CPUs the bound."""
        if self.expected:
            return 100 * (1 - 1 / self.expected.factor)
        estimated = self.share_pct * self.feasible_ratio
        return min(estimated, 100 * (1 - 1 / self.ceiling)) if self.ceiling else estimated

    @property
    def speedup(self) -> float | None:
        """How many times faster the session can become, at most; None if that is not known."""
        if self.mechanism:
            return self.ceiling
        return None if self.gain_pct >= 100 else 1 / (1 - self.gain_pct / 100)

    def entry(self) -> Recommended:
        """Return the entry of optimization_priority in bottleneck.json."""
        return Recommended(
            action=self.name, title=self.title, share_pct=self.share_pct, feasible_ratio=self.feasible_ratio,
            why_feasible=self.why_feasible, gain_pct=self.gain_pct, speedup_at_most=self.speedup, effort=self.effort,
            attempt=self.attempt, confirm=Confirmation(metric=self.confirm_metric, direction=self.confirm_direction),
            targets=list(self.targets) or None, ceiling_of=self.ceiling_of or None, floor_ms=self.floor_ms,
            why_no_ceiling=self.why_no_ceiling or None,
            expected=ExpectedGain(**asdict(self.expected)) if self.expected else None)


# Actions on nodes of a run on CPUs, by the side of the nodes.
NODES_OF = {"int8_nodes": "compute", "fuse_nodes": "memory"}
MOST_TARGETS = 5


def with_targets(recommendations: tuple[Recommendation, ...], cpu_budget: Mapping[str, Any]
                 ) -> tuple[Recommendation, ...]:
    """Return the recommendations with the nodes that they act on. cpu_budget: content of cpu_budget.json."""
    by_side: dict[str, list[str]] = {}
    for node in cpu_budget["largest"]:
        by_side.setdefault(node["side"], []).append(node["name"])
    return tuple(replace(advice, targets=tuple(by_side.get(NODES_OF.get(advice.name, ""), ())[:MOST_TARGETS]))
                 for advice in recommendations)


def ranked(readings: Mapping[str, Reading], facts: FactValues | None = None, floors: Floors | None = None
           ) -> tuple[Recommendation, ...]:
    """Return the actions that gain something in this session, the largest gain first; of equal gains the least
    effort. facts: of the workload; None if nobody looked for them, and then nothing is left out for them. floors: of
    the session; the kernels that a mechanism acts on are known by it.
    """
    useful = [advice for action in ACTIONS
              if not action.why_not(facts) and (advice := _gaining(action, readings, facts, floors))]
    return tuple(sorted(useful, key=_rank))


def bounded(recommendations: tuple[Recommendation, ...], floors: Floors | None
            ) -> tuple[tuple[Recommendation, ...], tuple[Withheld, ...]]:
    """Return the recommendations with their ceilings, ranked anew, and those that have nothing to gain.

    floors: of the session; None if nobody looked for them.
    """
    under = [advice if not advice.mechanism else _under_floor(advice, floors) for advice in recommendations]
    useful = [advice for advice in under if not _why_useless(advice)]
    spent = [Withheld(advice.name, advice.title, advice.gain_pct, reason, by_gain=True) for advice in under
             if (reason := _why_useless(advice))]
    return tuple(sorted(useful, key=_rank)), tuple(spent)


def _why_useless(advice: Recommendation) -> str:
    """Return why an action is not worth a try; empty if it is, or if nothing says what it can gain."""
    if advice.ceiling is not None and advice.ceiling < LEAST_GAIN:
        return (f"nothing to gain: {advice.floor_ms:.3f} ms of {advice.ceiling_of} must stay, at most "
                f"{advice.ceiling:.2f} x faster")
    if advice.expected and advice.expected.factor < LEAST_GAIN:
        return (f"{advice.expected.factor:.2f} x expected ({advice.expected.low:.2f} to {advice.expected.high:.2f}, "
                f"{advice.expected.pairs} recorded changes)")
    return ""


def _under_floor(advice: Recommendation, floors: Floors | None) -> Recommendation:
    if floors is None:
        return replace(advice, why_no_ceiling=NO_FLOORS)
    floor, ceiling = floors.under(advice.mechanism), floors.ceiling(advice.mechanism)
    likely = replace(advice, expected=floors.expected.get(advice.mechanism),
                     targets=tuple(target.name for target in floor.targets[:MOST_TARGETS]))
    if ceiling is None or floor.floor_ns is None:
        return replace(likely, why_no_ceiling=floor.why_absent or "what must stay of the step is too little to tell")
    return replace(likely, ceiling=ceiling, ceiling_of=floors.step.of, floor_ms=floor.floor_ns / 1e6)


def _rank(advice: Recommendation) -> tuple[float, int, str]:
    return -advice.gain_pct, EFFORTS.index(advice.effort), advice.name


def withheld(readings: Mapping[str, Reading], facts: FactValues | None, floors: Floors | None = None
             ) -> tuple[Withheld, ...]:
    """Return the actions that gain something by the readings and that a fact speaks against, the largest first.

    An action on what the workload does not have, such as attention, is none of them.
    """
    found = [Withheld(action.name, action.title, advice.gain_pct, reason) for action in ACTIONS
             if (reason := action.why_not(facts)) and not _has_nothing_to_act_on(action, facts)
             and (advice := _gaining(action, readings, facts, floors))]
    return tuple(sorted(found, key=lambda entry: (-entry.gain_pct, entry.name)))


def _has_nothing_to_act_on(action: KnownAction, facts: FactValues | None) -> bool:
    known: FactValues = facts or {}
    return any(known.get(condition.fact) == NOTHING and not condition.holds(known) for condition in action.applies_if)


def _gaining(action: KnownAction, readings: Mapping[str, Reading], facts: FactValues | None, floors: Floors | None
             ) -> Recommendation | None:
    """Return the action's gain in this session; None if its limit was not measured, or the gain is not worth a line."""
    values = {name: reading.value for name, reading in readings.items() if reading.value is not None}
    values |= {ACTS_ON + name: share for name, share in (floors.acts_on_pct() if floors else {}).items()}
    try:
        share, feasible = action.share(values), action.feasible(values)
    except KeyError:
        return None
    advice = Recommendation(action.name, action.title, min(100.0, max(0.0, share)), min(1.0, max(0.0, feasible)),
                            action.why_feasible, action.effort, "; ".join(offered(action.attempts, facts)),
                            action.confirm, action.direction, mechanism=action.mechanism)
    return advice if advice.gain_pct >= LEAST_PCT else None


def _of_metric(name: str) -> Callable[[Values], float]:
    return lambda values: values[name]


def _of_targets(mechanism: str, otherwise: str = "") -> Callable[[Values], float]:
    """Return the share of what a mechanism acts on; where that is not known, of the limit that is named."""
    return lambda values: values[ACTS_ON + mechanism if ACTS_ON + mechanism in values else otherwise]


def _always(share: float) -> Callable[[Values], float]:
    return lambda values: share


def _allocating(values: Values) -> float:
    return min(values["host_pause_pct"], values["allocation_call_pct"])


def _not_allocating(values: Values) -> float:
    return values["host_pause_pct"] - min(values["host_pause_pct"], values.get("allocation_call_pct", 0.0))


def _launching_between_waits(values: Values) -> float:
    """Return the time of launches. A graph holds no wait: raise KeyError where more time goes to those."""
    if values.get("sync_limited_pct", 0.0) > values["launch_tax_pct"]:
        raise KeyError("sync_limited_pct")
    return values["launch_tax_pct"]


def _overlapped(values: Values) -> float:
    """Return the part of transfers that can overlap with the device's work, limited by its length."""
    transfer = values["transfer_limited_pct"]
    return min(1.0, values["device_limited_pct"] / transfer) if transfer else 0.0


def _pinned(values: Values) -> float:
    return values["pageable_copy_pct"] / 100 * PINNING


def _surplus_threads(values: Values) -> float:
    """Return all of the waits where there are more threads than CPUs, and none where they fit."""
    return float(values["threads_per_cpu"] > 1)


def _fitting_threads(values: Values) -> float:
    return float(values["threads_per_cpu"] <= 1)


def _nodes_and_overhead(values: Values) -> float:
    return values["node_memory_pct"] + values["runtime_overhead_pct"]


def _levels_left(values: Values) -> float:
    return float(values["graph_levels_left"] > 0)


def _larger_batch(values: Values) -> float:
    return values["batch_is_free"] * (1 - 1 / BATCH)


def _narrowed(values: Values) -> float:
    """Return the part of the products that 8-bit integers save, by the machine's measured roofs."""
    return values["int8_saving_pct"] / values["node_compute_pct"] if values["node_compute_pct"] else 0.0


def _of_others(values: Values) -> float:
    return values["contended_pct"] - values.get("quota_pct", 0.0)


ACTS_ON = "acts_on_pct of "  # a mechanism: the share of a step that its targets take, among the values of readings
BATCH = 8  # samples that share the runtime's overhead
PINNING = 1 - 9.0 / 55.4  # rates of pageable and pinned copies to an H200 over PCIe 5 x16, 256 MiB
MEASURED = "measured on our recordings: "
PYTORCH, ORT = fact_is("framework", "pytorch"), fact_is("framework", "onnxruntime")
VLLM, SGLANG = fact_is("framework", "vllm"), fact_is("framework", "sglang")
OWN_CODE = fact_is_not("framework", "vllm", "sglang", "tensorrt_llm")  # a program that its user can edit
NO_FRAMEWORK = fact_is_not("framework", "pytorch", "onnxruntime", "vllm", "sglang", "jax", "tensorflow", "migraphx",
                           "tensorrt", "tensorrt_llm")
AMD, NVIDIA = fact_is("vendor", "amd"), fact_is("vendor", "nvidia")
TRAINING = fact_is("phase", "training")
COMPILED = fact_is("execution", "compiled")
NOT_SERVING = fact_is_not("phase", "serving")
NARROW = fact_is("product_type", "fp16", "bf16", "fp8", "fp4", "int8", "int4")
EIGHT_BITS = fact_is("product_type", "fp8", "fp4", "int8", "int4")
ACTIONS = (
    KnownAction("device_graph", "Launch once for many kernels", _launching_between_waits, _always(0.9),
                MEASURED + "a device graph took away 83 to 87 % of six launch-bound steps", "low", (
                    Step('torch.compile(model, mode="reduce-overhead"), torch.cuda.CUDAGraph', (PYTORCH, OWN_CODE)),
                    Step("ONNX Runtime: enable_cuda_graph=1", (ORT, NVIDIA)),
                    Step("vLLM: without --enforce-eager", (VLLM,)),
                    Step("SGLang: without --disable-cuda-graph", (SGLANG,)),
                    Step("hipStreamBeginCapture, then hipGraphLaunch", (AMD, NO_FRAMEWORK)),
                    Step("cudaStreamBeginCapture, then cudaGraphLaunch", (NVIDIA, NO_FRAMEWORK))),
                "launch_tax_pct", applies_if=(fact_is("graph_capture", "possible"),),
                already_done_if=(fact_is("device_graph", "replayed", "captured"),), mechanism="graph"),
    KnownAction("move_host_work", "Take the host's own work out of the step", _not_allocating, _always(0.9),
                MEASURED + "without it 97 to 99 % of five host-bound steps were gone", "medium", (
                    Step("DataLoader(num_workers=4, prefetch_factor=4)",
                         (fact_is("data_loader", "single_process"), NOT_SERVING)),
                    Step("more workers of the DataLoader, or a larger prefetch_factor",
                         (fact_is("data_loader", "workers"), NOT_SERVING)),
                    Step("py-spy record -p PID finds it in a Python program", (
                        fact_is("framework", "pytorch", "jax", "tensorflow", "vllm", "sglang", "onnxruntime"),)),
                    Step("perf record -g -p PID finds it", (NO_FRAMEWORK,))), "host_pause_pct", mechanism="host_work"),
    KnownAction("keep_memory", "Keep device memory instead of asking for it in each step", _allocating, _always(0.89),
                MEASURED + "the allocator's cache took away 89 % of such a step", "low", (
                    Step("no torch.cuda.empty_cache() in the loop", (PYTORCH,)),
                    Step("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", (PYTORCH, NVIDIA)),
                    Step("preallocate, and reuse what was allocated")), "allocation_call_pct", mechanism="host_work"),
    KnownAction("remove_waits", "Take the host's waits out of the loop", _of_metric("removable_wait_pct"), _always(0.9),
                "a wait that is not made costs nothing; one in ten is assumed to be needed", "medium", (
                    Step("no .item(), .cpu(), print or boolean indexing per operation", (PYTORCH,)),
                    Step("outputs bound to the device: session.io_binding()", (ORT,)),
                    Step("no hipDeviceSynchronize or hipStreamSynchronize per operation", (AMD, NO_FRAMEWORK)),
                    Step("no cudaDeviceSynchronize or cudaStreamSynchronize per operation", (NVIDIA, NO_FRAMEWORK)),
                    Step("read results once per step")),
                "sync_limited_pct", already_done_if=(fact_is("host_waits", "none"),), mechanism="remove_syncs"),
    KnownAction("have_the_device", "Have the device to yourself", _of_metric("shared_device_limited_pct"), _always(1.0),
                "time in which the device did another process's work; alone there is none", "medium", (
                    Step("nvidia-smi pmon -c 5 says who else computes on it; another device, MIG, or MPS", (NVIDIA,)),
                    Step("amd-smi process says who else computes on it; another device, or a partition", (AMD,))),
                "shared_device_limited_pct", mechanism="co_tenant"),
    KnownAction("pin_memory", "Page-lock the host's memory", _of_metric("transfer_limited_pct"), _pinned,
                "pinned copies run at 55 GB/s where pageable ones reach 9 (H200, PCIe 5)", "low", (
                    Step("DataLoader(pin_memory=True)", (fact_is("data_loader", "single_process", "workers"),)),
                    Step("tensor.pin_memory(), .to(device, non_blocking=True)", (PYTORCH,)),
                    Step("ONNX Runtime: session.io_binding() with inputs that lie on the device", (ORT,)),
                    Step("OrtValue.ortvalue_from_numpy(x, 'cuda', 0)", (ORT, NVIDIA)),
                    Step("hipHostMalloc for the host's side", (AMD, NO_FRAMEWORK)),
                    Step("cudaMallocHost for the host's side", (NVIDIA, NO_FRAMEWORK))),
                "pageable_copy_pct", already_done_if=(fact_is("copies", "pinned", "none"),), mechanism="pinned_copies"),
    KnownAction("overlap_transfers", "Copy while computing", _of_metric("transfer_limited_pct"), _overlapped,
                "a copy can hide behind the device's work, as long as that lasts", "medium", (
                    Step("a copy stream of its own, the next batch during this step"),
                    Step("non_blocking=True", (PYTORCH,)),
                    Step("ONNX Runtime: fill the OrtValue of the next inference during this one, and bind outputs on "
                         "the device (io_binding)", (ORT,))), "transfer_limited_pct", mechanism="prefetching"),
    KnownAction("fusion", "Fuse kernels that only pass over memory", _of_metric("memory_limited_pct"), _always(0.5),
                "two passes over the same data become one: half of the traffic; longer chains gain more", "low", (
                    Step("torch.compile(model)", (PYTORCH, OWN_CODE), (COMPILED,)),
                    Step("ONNX Runtime: onnxruntime.transformers.optimizer", (ORT,)),
                    Step("the CUDA provider's fuse_conv_bias=1", (ORT, NVIDIA)),
                    Step("the CUDA provider's prefer_nhwc=1", (ORT, NVIDIA, fact_is("layout", "nchw")))),
                "memory_limited_pct", mechanism="compile"),
    KnownAction("fuse_attention", "Fuse attention that is written out",
                _of_targets("attention_fusion", "memory_limited_pct"), _always(0.5),
                "the scores need not be written and read", "low",
                (Step("F.scaled_dot_product_attention in place of products and softmax", (PYTORCH, OWN_CODE)),),
                "memory_limited_pct", applies_if=(PYTORCH, fact_is("attention", "written_out")),
                already_done_if=(fact_is("attention", "fused"),), mechanism="attention_fusion"),
    KnownAction("fuse_norms", "Fuse norms that are written out", _of_targets("pointwise_fusion", "memory_limited_pct"),
                _always(0.5), "one pass over the data in place of several", "low",
                (Step("F.layer_norm, F.group_norm or F.rms_norm in place of their formulas", (PYTORCH, OWN_CODE)),),
                "memory_limited_pct", applies_if=(PYTORCH, fact_is("norms", "written_out")),
                already_done_if=(fact_is("norms", "fused"),), mechanism="pointwise_fusion"),
    KnownAction("fuse_optimizer", "Update all weights in one kernel",
                _of_targets("fused_optimizer", "memory_limited_pct"), _always(0.5),
                "the weights are read and written once", "low",
                (Step("fused=True for the optimizer", (PYTORCH, OWN_CODE)),), "memory_limited_pct",
                applies_if=(PYTORCH, fact_is("optimizer", "loop", "foreach")),
                already_done_if=(fact_is("optimizer", "fused"),), mechanism="fused_optimizer"),
    KnownAction("channels_last", "Keep images in channels_last order", _of_targets("channels_last"), _always(0.5),
                "convolutions read that order without a conversion", "low",
                (Step("model.to(memory_format=torch.channels_last), and the inputs too", (PYTORCH, OWN_CODE)),),
                "memory_limited_pct", applies_if=(PYTORCH, fact_is("layout", "nchw")),
                already_done_if=(fact_is("layout", "nhwc"),), mechanism="channels_last"),
    KnownAction("keep_activations", "Keep activations instead of computing them again",
                _of_targets("checkpointing_off"), _always(0.8), "what is kept is not computed a second time", "low",
                (Step("no torch.utils.checkpoint where memory allows; else every second layer", (PYTORCH, OWN_CODE)),),
                "compute_limited_pct", applies_if=(PYTORCH, TRAINING), mechanism="checkpointing_off"),
    KnownAction("last_logits", "Compute logits of the last position only", _of_targets("less_work"), _always(0.8),
                "the next token needs no other position's", "low",
                (Step("logits_to_keep=1 of Hugging Face models; hidden[:, -1:] before the head", (PYTORCH, OWN_CODE)),),
                "compute_limited_pct", applies_if=(PYTORCH, fact_is("phase", "inference")), mechanism="less_work"),
    KnownAction("allow_tf32", "Let fp32 products use TF32", _of_targets("tf32", "compute_limited_pct"), _always(0.5),
                "the matrix units compute fp32 products in TF32, with 10 bits of mantissa; check the accuracy", "low",
                (Step('torch.set_float32_matmul_precision("high")', (PYTORCH, NVIDIA, OWN_CODE)),),
                "compute_limited_pct", applies_if=(PYTORCH, NVIDIA, fact_is("product_type", "fp32")),
                already_done_if=(fact_is("product_type", "tf32"), NARROW), mechanism="tf32"),
    KnownAction("narrower_types", "Compute in a narrower type",
                _of_targets("narrower_types", "compute_limited_pct"), _always(0.5),
                "half the width doubles the matrix rate (data sheets, METHODS section 5)", "medium", (
                    Step("torch.autocast(dtype=torch.bfloat16) for fp32", (PYTORCH, OWN_CODE)),
                    Step("--dtype bfloat16", (fact_is("framework", "vllm", "sglang"),)),
                    Step("ONNX Runtime: onnxconverter_common.float16.convert_float_to_float16", (ORT,)),
                    Step("fp16 or bf16 operands for the matrix units", (NO_FRAMEWORK,))),
                "compute_limited_pct", applies_if=(fact_is("product_type", "fp64", "fp32", "tf32"),),
                already_done_if=(NARROW,), mechanism="narrower_types"),
    KnownAction("eight_bit_types", "Compute in eight bits", _of_metric("compute_limited_pct"), _always(0.5),
                "eight bits double the matrix rate of sixteen (data sheets, METHODS section 5); check the accuracy",
                "high", (
                    Step("torchao's float8 for linear layers", (PYTORCH, OWN_CODE, fact_is("product_kind", "gemm"))),
                    Step("--quantization fp8", (fact_is("framework", "vllm", "sglang"),)),
                    Step("fp8 operands for the matrix units", (NO_FRAMEWORK,))), "compute_limited_pct",
                applies_if=(fact_is("eight_bit_units", "yes"), fact_is("product_type", "fp16", "bf16")),
                already_done_if=(EIGHT_BITS,), mechanism="eight_bit_types"),
    KnownAction("more_in_flight", "Give the device more independent reads at once",
                _of_metric("memory_latency_limited_pct"), _always(0.5),
                "twice the reads in flight halve the wait, until bandwidth is reached (Little's law)", "high",
                (Step("larger batches, several queries per launch, more blocks; sort indices"),),
                "memory_latency_limited_pct", mechanism="sorted_reads"),
    KnownAction("overlap_communication", "Communicate while computing", _of_metric("exposed_communication_pct"),
                _always(0.5), "half of it is assumed to have work to hide behind", "medium", (
                    Step("DDP bucket_cap_mb, FSDP backward_prefetch", (PYTORCH, TRAINING)),
                    Step("NCCL on a stream of its own", (NVIDIA,)), Step("RCCL on a stream of its own", (AMD,))),
                "exposed_communication_pct", mechanism="overlap_communication"),
    KnownAction("quiet_cpus", "Keep other work off the run's CPUs", _of_others, _always(1.0),
                "what others took comes back when they are gone", "low",
                (Step("aaco run --lab, or taskset -c; see top; --noise repeat measures until enough is clean"),),
                "contended_pct"),
    KnownAction("raise_quota", "Raise the CPU quota of the run's control group", _of_metric("quota_pct"), _always(1.0),
                "without the quota no thread is kept from running by it", "low",
                (Step("cpu.max of its cgroup; docker run --cpus; Kubernetes resources.limits.cpu"),), "quota_pct"),
    KnownAction("fit_threads", "Use no more threads than CPUs", _of_metric("thread_wait_pct"), _surplus_threads,
                "threads that each have a CPU do not wait for one; a bound", "low",
                (Step("intra_op_threads in configs/backends.yaml: the CPUs that an affinity or a quota leaves, which "
                      "ONNX Runtime does not count; aaco compare MODEL MODEL --option-b intra_op_threads=N"),),
                "thread_wait_pct"),
    KnownAction("compare_threads", "Compare thread counts", _of_metric("thread_wait_pct"), _fitting_threads,
                "fewer threads wait less, but what the others computed is left to them: a bound", "low",
                (Step("aaco compare MODEL MODEL --option-b intra_op_threads=1, then 2, 4, .."),), "thread_wait_pct"),
    KnownAction("graph_level", "Raise the level of graph optimisation", _nodes_and_overhead, _levels_left,
                "fusion takes away nodes and passes between them; what it can join is not known before: a bound", "low",
                (Step("aaco compare MODEL MODEL --option-b graph_optimization=all"),), "runtime_overhead_pct"),
    KnownAction("fuse_nodes", "Join nodes that could be one", _of_metric("node_fusible_pct"), _always(1.0),
                "tensors between them are not written and read again, and their overhead goes: a bound", "medium",
                (Step("onnxruntime.transformers.optimizer, fused operators on export; the report lists which nodes"),),
                "node_memory_pct"),
    KnownAction("larger_batch", "Raise the batch", _of_metric("runtime_overhead_pct"), _larger_batch,
                "eight samples share the overhead of one", "low", (Step("aaco run MODEL --batch 8"),),
                "runtime_overhead_pct"),
    KnownAction("int8_nodes", "Compute products in 8-bit integers", _of_metric("node_compute_pct"), _narrowed,
                "the measured int8 and fp32 roofs of this machine; only of what computes in fp32",
                "medium", (
                    Step("onnxruntime.quantization.quantize_static or quantize_dynamic; check the accuracy"),),
                "node_compute_pct"),
)
