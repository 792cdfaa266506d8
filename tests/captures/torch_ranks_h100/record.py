"""Records two ranks with a known straggler: PyTorch profiler traces, one per rank, and what device events say.

    python3 record.py OUT      on a machine with two NVIDIA GPUs, PyTorch and NCCL

Every step: a matrix product, then an all-reduce over both ranks. In `late`, rank 1's device spins before each
all-reduce, so rank 0 waits in it; in `overlap`, the all-reduce runs beside matrix products on another stream.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

STEPS = 12
BYTES = 64 << 20
SPIN_CYCLES = 4_000_000  # about 2 ms at 1,980 MHz
CASES = ("even", "late", "overlap")


def step(case, rank, message, left, right):
    """One step; returns its device events around the all-reduce."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.profiler.record_function(f"step_{case}"):
        product = left @ right
        if case == "late" and rank == 1:
            torch.cuda._sleep(SPIN_CYCLES)
        begin.record()
        work = dist.all_reduce(message, async_op=True)
        if case == "overlap":
            for _ in range(4):
                product = left @ right
        work.wait()
        end.record()
        message.mul_(0.5)
    return begin, end, product


def run(rank, out):
    """One rank, all cases."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)
    message = torch.rand(BYTES // 4, device="cuda")
    left, right = (torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    truth = {}
    for case in CASES:
        for _ in range(5):
            step(case, rank, message, left, right)
        torch.cuda.synchronize()
        dist.barrier()
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            events = [step(case, rank, message, left, right)[:2] for _ in range(STEPS)]
            torch.cuda.synchronize()
        profiler.export_chrome_trace(str(Path(out, f"{case}_rank{rank}.json.gz")))
        truth[case] = [begin.elapsed_time(end) for begin, end in events]
    Path(out, f"truth_rank{rank}.json").write_text(json.dumps(
        {"all_reduce_ms": truth, "bytes": BYTES, "steps": STEPS, "spin_cycles": SPIN_CYCLES,
         "gpu": torch.cuda.get_device_name(rank), "torch": torch.__version__, "nccl": list(torch.cuda.nccl.version())}))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, (sys.argv[1],), nprocs=2)
