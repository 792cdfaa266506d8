"""What to do next, by what it can gain: the time that a limit takes, times the part of that which the action can take
away (Amdahl 1967).

An action gains at most attributed x feasible, never more than the time attributed to its limit. Feasible shares are
measured where our recordings have the same step with and without the limit (tests/captures/torch_scenarios), else
bounds from what the action does to the work; each says which. They are upper bounds of what is usual, not promises:
`confirm` says which reading tells, and in which direction it must go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aaco.core.readings import Reading

LEAST_PCT = 1.0  # of the wall; an action that can gain less is not worth a line
EFFORTS = ("low", "medium", "high")
Values = Mapping[str, float]


@dataclass(frozen=True)
class Known:
    """An action that is known to help against a limit.

    attributed: the limit's share of the wall, per cent, from readings; feasible: which part of it the action can take
    away; both raise KeyError where a reading that they need is absent.
    """

    name: str
    title: str
    attributed: Callable[[Values], float]
    feasible: Callable[[Values], float]
    why_feasible: str
    effort: str
    attempt: str
    confirm: str
    direction: str = "down"


@dataclass(frozen=True)
class Recommendation:
    """An action with what it can gain in this session. speedup: Amdahl's 1 / (1 - gain)."""

    name: str
    title: str
    attributed_pct: float
    feasible_ratio: float
    why_feasible: str
    effort: str
    attempt: str
    confirm_metric: str
    confirm_direction: str

    @property
    def gain_pct(self) -> float:
        """Share of the wall that it can take away, at most."""
        return self.attributed_pct * self.feasible_ratio

    @property
    def speedup(self) -> float | None:
        """How many times faster the session becomes, at most; None where nothing would be left."""
        return None if self.gain_pct >= 100 else 1 / (1 - self.gain_pct / 100)

    def document(self) -> dict[str, Any]:
        """One entry of optimization_priority in bottleneck.json."""
        return {"action": self.name, "title": self.title, "attributed_pct": self.attributed_pct,
                "feasible_ratio": self.feasible_ratio, "why_feasible": self.why_feasible, "gain_pct": self.gain_pct,
                "speedup_at_most": self.speedup, "effort": self.effort, "try": self.attempt,
                "confirm": {"metric": self.confirm_metric, "direction": self.confirm_direction}}


def ranked(readings: Mapping[str, Reading]) -> tuple[Recommendation, ...]:
    """What can gain something in this session, the largest gain first; of equal gains the least effort."""
    values = {name: one.value for name, one in readings.items() if one.value is not None}
    found = [made for known in ACTIONS if (made := _of(known, values)) and made.gain_pct >= LEAST_PCT]
    return tuple(sorted(found, key=lambda one: (-one.gain_pct, EFFORTS.index(one.effort), one.name)))


def _of(known: Known, values: Values) -> Recommendation | None:
    """The action in this session; None where what it acts on was not measured."""
    try:
        attributed, feasible = known.attributed(values), known.feasible(values)
    except KeyError:
        return None
    return Recommendation(known.name, known.title, min(100.0, max(0.0, attributed)), min(1.0, max(0.0, feasible)),
                          known.why_feasible, known.effort, known.attempt, known.confirm, known.direction)


def _of_metric(name: str) -> Callable[[Values], float]:
    return lambda values: values[name]


def _always(share: float) -> Callable[[Values], float]:
    return lambda values: share


def _allocating(values: Values) -> float:
    return min(values["host_pause_pct"], values["allocation_call_pct"])


def _not_allocating(values: Values) -> float:
    return values["host_pause_pct"] - min(values["host_pause_pct"], values.get("allocation_call_pct", 0.0))


def _overlapped(values: Values) -> float:
    """Transfers can hide behind the device's work, as long as that lasts."""
    transfer = values["transfer_limited_pct"]
    return min(1.0, values["device_limited_pct"] / transfer) if transfer else 0.0


def _pinned(values: Values) -> float:
    return values["pageable_copy_pct"] / 100 * PINNING


PINNING = 1 - 9.0 / 55.4  # rates of pageable and pinned copies to an H200 over PCIe 5 x16, 256 MiB
MEASURED = "measured on our recordings: "
ACTIONS = (
    Known("device_graph", "Launch once for many kernels", _of_metric("launch_limited_pct"), _always(0.9),
          MEASURED + "a device graph took away 83 to 87 % of six launch-bound steps", "low",
          'torch.compile(model, mode="reduce-overhead"), torch.cuda.CUDAGraph; ONNX Runtime: enable_cuda_graph=1',
          "launch_limited_pct"),
    Known("move_host_work", "Take the host's own work out of the step", _not_allocating, _always(0.9),
          MEASURED + "without it 97 to 99 % of five host-bound steps were gone", "medium",
          "DataLoader(num_workers=4, prefetch_factor=4); py-spy record -p PID to find it", "host_pause_pct"),
    Known("keep_memory", "Keep device memory instead of asking for it in each step", _allocating, _always(0.89),
          MEASURED + "the allocator's cache took away 89 % of such a step", "low",
          "no torch.cuda.empty_cache() in the loop; preallocate; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
          "allocation_call_pct"),
    Known("remove_waits", "Take the host's waits out of the loop", _of_metric("sync_limited_pct"), _always(0.9),
          "a wait that is not made costs nothing; one in ten is assumed to be needed", "medium",
          "no .item(), .cpu(), print or boolean indexing per operation; read results once per step",
          "sync_limited_pct"),
    Known("pin_memory", "Page-lock the host's memory", _of_metric("transfer_limited_pct"), _pinned,
          "pinned copies run at 55 GB/s where pageable ones reach 9 (H200, PCIe 5)", "low",
          "DataLoader(pin_memory=True), tensor.pin_memory(), .to(device, non_blocking=True); ONNX Runtime: "
          "session.io_binding() with inputs that lie on the device, OrtValue.ortvalue_from_numpy(x, 'cuda', 0)",
          "pageable_copy_pct"),
    Known("overlap_transfers", "Copy while computing", _of_metric("transfer_limited_pct"), _overlapped,
          "a copy can hide behind the device's work, as long as that lasts", "medium",
          "a copy stream of its own, the next batch during this step, non_blocking=True; ONNX Runtime: fill the "
          "OrtValue of the next inference during this one, and bind outputs on the device (io_binding)",
          "transfer_limited_pct"),
    Known("fusion", "Fuse kernels that only pass over memory", _of_metric("memory_limited_pct"), _always(0.5),
          "two passes over the same data become one: half of the traffic; longer chains gain more", "low",
          "torch.compile(model); fused optimizers and norms; ONNX Runtime: onnxruntime.transformers.optimizer, and the "
          "CUDA provider's fuse_conv_bias=1 and prefer_nhwc=1", "memory_limited_pct"),
    Known("narrower_types", "Compute in a narrower type", _of_metric("compute_limited_pct"), _always(0.5),
          "half the width doubles the matrix rate (data sheets, METHODS section 5)", "medium",
          "torch.autocast(dtype=torch.bfloat16) for fp32; fp8 or int8 from there, after a check of the accuracy; ONNX "
          "Runtime: onnxconverter_common.float16.convert_float_to_float16",
          "compute_limited_pct"),
    Known("more_in_flight", "Give the device more independent reads at once",
          _of_metric("memory_latency_limited_pct"), _always(0.5),
          "twice the reads in flight halve the wait, until bandwidth is reached (Little's law)", "high",
          "larger batches, several queries per launch, more blocks; sort indices", "memory_latency_limited_pct"),
    Known("overlap_communication", "Communicate while computing", _of_metric("exposed_communication_pct"),
          _always(0.5), "half of it is assumed to have work to hide behind", "medium",
          "DDP bucket_cap_mb, FSDP backward_prefetch, NCCL or RCCL on a stream of its own",
          "exposed_communication_pct"),
)
