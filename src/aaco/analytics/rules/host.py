"""The host keeps the device waiting: it launches too slowly, does something else, or waits itself."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.advice.action import LLAMA_GRAPHS, MORE_REQUESTS, OWN_CODE, PYTORCH
from aaco.analytics.bottleneck import stretch
from aaco.analytics.rules import roof
from aaco.core.advice import Step, fact_is, fact_is_not
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = "docs/concepts/diagnosis.md"


@rule(label="launch_bound", source=SOURCE, advice=(
    Step("launch once for many kernels: a device graph (torch.cuda.CUDAGraph, torch.compile(mode=\"reduce-overhead\"))",
         (PYTORCH, OWN_CODE, fact_is("vendor", "amd", "nvidia"), fact_is("graph_capture", "possible")),
         (fact_is("device_graph", "replayed", "captured"),)),
    Step("launch once for many kernels: enable_cuda_graph=1 of ONNX Runtime's CUDA provider",
         (fact_is("framework", "onnxruntime"), fact_is("vendor", "nvidia"), fact_is("graph_capture", "possible")),
         (fact_is("device_graph", "replayed", "captured"),)),
    *LLAMA_GRAPHS, "let the runtime or compiler fuse more, and look at the nodes it kept apart",
    Step("raise the batch so that each kernel does more", (OWN_CODE,)), *MORE_REQUESTS))
def launch_bound(host_limited_pct: Reading, launch_tax_pct: Reading, host_pause_pct: Reading,
                 sync_limited_pct: Reading, microkernel_pct: Reading, dispatch_overhead_pct: Reading,
                 kernel_amplification_ratio: Reading, profiling_overhead_pct: Reading,
                 runtime_overhead_pct: Reading, shared_device_limited_pct: Reading) -> Iterator[Evidence]:
    """Much of the time passes between many kernels that are too short to hide their own launch."""
    if runtime_overhead_pct.value is not None:
        return  # a run on CPUs launches nothing: overhead_bound speaks of its nodes
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        yield dispatch_overhead_pct.above(20, "much of the run is outside every kernel", 0.4, essential=True)
        yield microkernel_pct.above(30, "many kernels are shorter than a launch", 0.3, essential=True)
        yield profiling_overhead_pct.below(25, "the profiler itself did not make the gaps", 0.2, essential=True)
        yield launch_tax_pct.above(20, "the device waits for launches", 0.2)
        yield kernel_amplification_ratio.above(2, "a node becomes several kernels", 0.1)
        return
    yield from _late(host_limited_pct, launch_tax_pct, launch_tax_pct,
                     (host_pause_pct, sync_limited_pct, shared_device_limited_pct),
                     "more by launching than by pausing or waiting")
    yield microkernel_pct.above(20, "many kernels are shorter than a launch", 0.1)


@rule(label="cpu_bound", source=SOURCE, advice=(
    "move the host's work out of the step",
    Step("load data in worker processes", (fact_is("data_loader", "single_process"),
                                           fact_is_not("phase", "serving"))),
    Step("find it with a profiler of the host: torch.profiler.profile(with_stack=True)",
         (PYTORCH, OWN_CODE)),
    "find it with a profiler of the host: py-spy record, perf record, aaco run --telemetry",
    "keep other processes off its CPUs (aaco run --lab standard)"))
def cpu_bound(host_limited_pct: Reading, host_pause_pct: Reading, launch_tax_pct: Reading, sync_limited_pct:
              Reading, queue_length_mean: Reading, dispatch_overhead_pct: Reading, shared_device_limited_pct: Reading
              ) -> Iterator[Evidence]:
    """The device waits while the host does something else than launch: Python, a data loader, allocations."""
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        return  # a run profiled by its nodes: it has no trace of the device
    yield from _late(host_limited_pct, launch_tax_pct, host_pause_pct,
                     (launch_tax_pct, sync_limited_pct, shared_device_limited_pct),
                     "more by pausing than by launching or waiting")
    yield queue_length_mean.below(2, "the device's queue runs dry", 0.1)


@rule(label="sync_bound", source=SOURCE, advice=(
    Step("take the waits out of the loop: .item(), .cpu(), print of tensors, torch.cuda.synchronize, boolean indexing",
         (PYTORCH, OWN_CODE)),
    Step("take the waits out of the loop: stream and device synchronisation, blocking copies",
         (fact_is_not("framework", "pytorch"), OWN_CODE)),
    Step("read results in batches, or one step late", (OWN_CODE,)),
    Step("read them into pinned memory with non_blocking=True", (PYTORCH, OWN_CODE),
         (fact_is("copies", "pinned"),))))
def sync_bound(host_limited_pct: Reading, sync_limited_pct: Reading, launch_tax_pct: Reading, host_pause_pct:
               Reading, synchronise_call_pct: Reading, dispatch_overhead_pct: Reading,
               shared_device_limited_pct: Reading) -> Iterator[Evidence]:
    """The host waits for the device before it gives it more, so that each of them idles while the other works."""
    if roof.by_nodes(dispatch_overhead_pct, host_limited_pct):
        return  # a run profiled by its nodes: it has no trace of the device
    yield from _late(host_limited_pct, launch_tax_pct, sync_limited_pct,
                     (launch_tax_pct, host_pause_pct, shared_device_limited_pct),
                     "more by waiting than by launching or pausing")
    yield synchronise_call_pct.above(20, "the host is in waiting calls for a good part of its time", 0.1)


def _late(host_pct: Reading, launch_pct: Reading, mine_pct: Reading, others: tuple[Reading, ...], because: str
          ) -> Iterator[Evidence]:
    """Yield the host makes the device wait, also without the profiler's part in it, and most of it in this way."""
    most = max((each.value for each in others if each.value is not None), default=0.0)
    yield host_pct.above(stretch.host_needed_pct(host_pct, launch_pct), "the device waits for the host", 0.45,
                         essential=True)
    yield mine_pct.above(most, because, 0.45, essential=True)


@rule(label="kernel_fragmentation", kind="condition", source=SOURCE,
      advice=("look at the nodes with several kernels in attribution/op_to_kernel_map.parquet",))
def kernel_fragmentation(kernel_amplification_ratio: Reading) -> Iterator[Evidence]:
    """One node of the executed graph takes several kernels."""
    yield kernel_amplification_ratio.above(2, "kernels per executed node", essential=True)


@rule(label="allocator_churn", kind="condition", source=SOURCE, advice=(
    "keep memory: the framework's caching allocator, preallocated buffers",
    Step("no torch.cuda.empty_cache() in the loop", (PYTORCH, OWN_CODE))))
def allocator_churn(allocation_call_pct: Reading) -> Iterator[Evidence]:
    """Much of the host's time goes to asking the driver for memory and giving it back."""
    yield allocation_call_pct.above(10, "the host's time in allocating calls", essential=True)


@rule(label="pageable_copies", kind="condition", source=SOURCE, advice=(
    Step("pin the host's memory: DataLoader(pin_memory=True)", (fact_is("data_loader", "single_process", "workers"),),
         (fact_is("copies", "pinned"),)),
    Step("pin the host's memory: tensor.pin_memory(), then non_blocking=True", (PYTORCH, OWN_CODE),
         (fact_is("copies", "pinned"),)),
    Step("bind inputs that lie on the device: session.io_binding()", (fact_is("framework", "onnxruntime"),))))
def pageable_copies(transfer_limited_pct: Reading, pageable_copy_pct: Reading) -> Iterator[Evidence]:
    """Bytes move between device and pageable memory, through a buffer of the driver, while nothing computes."""
    yield transfer_limited_pct.above(10, "time in which only transfers run", essential=True)
    yield pageable_copy_pct.above(50, "bytes from or to pageable memory", essential=True)
