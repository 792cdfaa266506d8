"""Record labelled PyTorch scenarios on a GPU: per plant a Kineto trace and the latencies without a profiler.

`python -m benchmarks.scenarios_torch OUT [--only REGEX]` writes into OUT, per scenario, NAME.trace.json.gz (a few steps
under torch.profiler) and NAME.lat.csv (ms per step, not profiled), and manifest.json with the labels. A scenario that
cannot run here is in the manifest with the reason. Needs PyTorch and a GPU alone; about two minutes on an H200.
`--device cpu --shrink 64` tries the code without a GPU; those recordings are of no use.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import multiprocessing
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from benchmarks import planted_models as models
from benchmarks import planted_torch as planted
from benchmarks.planted_torch import BF16, GRAPH, Made, Plant, Scale, Step

PROFILED_STEPS = 3
MOST_STEPS = 200
SECONDS = 0.7  # of latencies per scenario
PLANTS = (
    Plant("launch_tiny_multiplies", "tiny_elementwise", "launch_bound", planted.tiny_multiplies),
    Plant("launch_tiny_mlp", "tiny_mlp", "launch_bound", planted.tiny_mlp),
    Plant("launch_optimizer_loop", "optimizer_loop", "launch_bound", planted.optimizer_loop),
    Plant("launch_rnn_loop", "rnn_loop", "launch_bound", planted.rnn_loop),
    Plant("launch_small_decode", "small_decode", "launch_bound", planted.small_decode),
    Plant("launch_small_cnn", "small_cnn", "launch_bound", planted.small_cnn),
    Plant("compute_gemm_bf16_4096", "gemm", "compute_bound", planted.gemm(4096, 8, BF16)),
    Plant("compute_gemm_fp32_4096", "gemm", "compute_bound", planted.gemm(4096, 3, torch.float32)),
    Plant("compute_gemm_fp16_8192", "gemm", "compute_bound", planted.gemm(8192, 3, torch.float16)),
    Plant("compute_gemm_fp8_8192", "gemm", "compute_bound", planted.gemm_fp8),
    Plant("compute_batched_gemm", "batched_gemm", "compute_bound", planted.batched_gemm),
    Plant("compute_conv_stack", "conv_stack", "compute_bound", planted.conv_stack),
    Plant("compute_mlp_training", "mlp_training", "compute_bound", planted.mlp_training),
    Plant("compute_prefill_attention", "prefill_attention", "compute_bound", planted.prefill_attention),
    Plant("compute_transformer_block", "transformer_block", "compute_bound", planted.transformer_block),
    Plant("memory_copy", "copy", "memory_bound", planted.copy),
    Plant("memory_reduction", "reduction", "memory_bound", planted.reduction),
    Plant("memory_softmax", "softmax", "memory_bound", planted.softmax),
    Plant("memory_layer_norm", "layer_norm", "memory_bound", planted.layer_norm),
    Plant("memory_transpose", "transpose", "memory_bound", planted.transpose),
    Plant("memory_matrix_vector", "large_decode", "memory_bound", planted.matrix_vector),
    Plant("memory_small_batch_decode", "large_decode", "memory_bound", planted.small_batch_decode),
    Plant("memory_embedding", "embedding", "memory_bound", planted.embedding),
    Plant("memory_adam", "adam", "memory_bound", planted.fused_adam),
    Plant("memory_key_value_read", "key_value_read", "memory_bound", planted.key_value_read),
    Plant("latency_chase_1", "chase", "memory_latency_bound", planted.chase(1)),
    Plant("latency_chase_264", "chase", "memory_latency_bound", planted.chase(264)),
    Plant("latency_binary_search", "binary_search", "memory_latency_bound", planted.binary_search),
    Plant("latency_scattered_reads", "scattered_reads", "memory_latency_bound", planted.scattered_reads, trusted=False),
    Plant("cpu_busy_3ms", "python_busy", "cpu_bound", planted.busy(3)),
    Plant("cpu_busy_12ms", "python_busy", "cpu_bound", planted.busy(12)),
    Plant("cpu_late_loader", "late_loader", "cpu_bound", planted.late_loader),
    Plant("cpu_image_input", "image_input", "cpu_bound", planted.image_input),
    Plant("cpu_text_input", "text_input", "cpu_bound", planted.text_input),
    Plant("cpu_allocation_churn", "allocation_churn", "cpu_bound", planted.allocation_churn,
          condition="allocator_churn"),
    Plant("cpu_contended_small_cnn", "small_cnn", "cpu_bound", planted.small_cnn, condition="contended"),
    Plant("transfer_upload_pinned", "upload", "transfer_bound", planted.upload(True)),
    Plant("transfer_upload_pageable", "upload", "transfer_bound", planted.upload(False)),
    Plant("transfer_download_pinned", "download", "transfer_bound", planted.download(True)),
    Plant("transfer_download_pageable", "download", "transfer_bound", planted.download(False)),
    Plant("transfer_weight_streaming", "weight_streaming", "transfer_bound", planted.weight_streaming),
    Plant("transfer_batch_upload", "batch_upload", "transfer_bound", planted.batch_upload),
    Plant("sync_item_loop", "item_loop", "sync_bound", planted.item_loop),
    Plant("sync_explicit", "explicit_sync", "sync_bound", planted.explicit_sync),
    Plant("sync_boolean_masks", "boolean_masks", "sync_bound", planted.boolean_masks),
    Plant("sync_stopping_test", "stopping_test", "sync_bound", planted.stopping_test),
    Plant("sync_tiny_explicit", "explicit_sync", "sync_bound", planted.tiny_explicit_sync),
    Plant("sync_event_wait", "event_wait", "sync_bound", planted.event_wait),
    Plant("sync_read_element", "read_element", "sync_bound", planted.read_element),
    Plant("sync_greedy_decode", "greedy_decode", "sync_bound", planted.greedy_decode),
    Plant("cpu_python_thread", "python_thread", "cpu_bound", planted.python_thread, condition="interpreter lock"),
    Plant("sync_stream_wait", "stream_wait", "sync_bound", planted.stream_wait),
    Plant("sync_list_reads", "list_reads", "sync_bound", planted.list_reads),
    Plant("sync_status_reads", "status_reads", "sync_bound", planted.status_reads),
    Plant("sync_element_by_element", "element_by_element", "sync_bound", planted.element_by_element),
    Plant("launch_tiny_with_few_waits", "tiny_elementwise", "launch_bound", planted.tiny_with_few_waits),
    Plant("launch_layers_then_read", "layers_then_read", "launch_bound", planted.layers_then_read),
    Plant("launch_small_norms", "small_norms", "launch_bound", planted.small_norms),
    Plant("cpu_work_between_reads", "work_between_reads", "cpu_bound", planted.work_between_reads(1000, 6)),
    Plant("cpu_short_work_between_reads", "work_between_reads", "cpu_bound", planted.work_between_reads(150, 20)),
    Plant("cpu_json_input", "json_input", "cpu_bound", planted.json_input),
    Plant("compute_waited_products", "gemm", "compute_bound", planted.waited_products),
    Plant("compute_wide_conv", "wide_conv", "compute_bound", planted.wide_conv),
    Plant("memory_waited_passes", "elementwise", "memory_bound", planted.waited_passes),
    Plant("memory_gelu_passes", "gelu", "memory_bound", planted.gelu_passes),
    Plant("transfer_checkpoint", "download", "transfer_bound", planted.checkpoint),
    Plant("compute_vision_transformer", "vision_transformer", "compute_bound", models.network("vit_b_16", 96, 224)),
    Plant("compute_long_encoder", "encoder", "compute_bound", models.encoder(6, 2048, 4, 2048)),
    Plant("compute_convolutions_fp32", "convolutions_fp32", "compute_bound", models.convolutions_fp32),
    Plant("memory_graphed_decode", "graphed_decode", "memory_bound", models.graphed_decode),
    Plant("memory_root_mean_squares", "root_mean_squares", "memory_bound", models.root_mean_squares),
    Plant("memory_momentum", "momentum", "memory_bound", models.momentum),
    Plant("launch_resnet18_one_image", "resnet18_one_image", "launch_bound", models.network("resnet18", 1, 64)),
    Plant("launch_efficientnet_one_image", "efficientnet_one_image", "launch_bound",
          models.network("efficientnet_b0", 1, 96)),
    Plant("launch_short_encoder", "encoder", "launch_bound", models.encoder(8, 256, 1, 16)),
    Plant("launch_boxes", "boxes", "launch_bound", models.boxes),
    Plant("sync_read_after_every_layer", "read_after_every_layer", "sync_bound", models.read_after_every_layer),
    Plant("sync_norm_of_every_gradient", "norm_of_every_gradient", "sync_bound", models.norm_of_every_gradient),
    Plant("cpu_sort_on_the_host", "sort_on_the_host", "cpu_bound", models.sort_on_the_host),
    Plant("cpu_words_on_the_host", "words_on_the_host", "cpu_bound", models.words_on_the_host),
    Plant("cpu_unpacking_on_the_host", "unpacking_on_the_host", "cpu_bound", models.unpacking_on_the_host),
    Plant("transfer_activations_to_the_host", "activations_to_the_host", "transfer_bound",
          models.activations_to_the_host),
    Plant("transfer_pictures_to_the_device", "pictures_to_the_device", "transfer_bound",
          models.pictures_to_the_device),
    Plant("balanced_half_and_half", "half_and_half", "balanced", planted.half_and_half, trusted=False),
)
CANNOT = (RuntimeError, AttributeError, ImportError, TypeError, ValueError, OSError)


def main() -> int:
    """Record every plant; 1 where none could be recorded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scenarios_torch", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="plants whose name matches this regular expression")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shrink", type=int, default=1, help="divide every size by this")
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA or ROCm device: torch.cuda.is_available() is False")
    chosen.out.mkdir(parents=True, exist_ok=True)
    at, rows = Scale(chosen.device, chosen.shrink), []
    for plant in PLANTS:
        if re.search(chosen.only, plant.name):
            rows.append(_row(plant, at, chosen.out))
            print(json.dumps({key: rows[-1].get(key) for key in ("name", "p50_ms", "relieved_p50_ms", "busy_ratio",
                                                                 "trace_kb", "failed")}), flush=True)
            document = {"machine": machine(at.device), "scenarios": rows}
            (chosen.out / "manifest.json").write_text(json.dumps(document, indent=1) + "\n")
    return int(not any("failed" not in row for row in rows))


def _row(plant: Plant, at: Scale, out: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": plant.name, "workload": plant.workload, "label": plant.label,
                           "trusted": plant.trusted, "condition": plant.condition or None}
    torch.manual_seed(1)
    try:
        with torch.no_grad() if "training" not in plant.name else nullcontext():
            made = plant.make(at)
            with _hogs() if plant.condition == "contended" else nullcontext():
                row |= _record(plant, made, at, out)
            if plant.condition == "contended":
                row |= {"relieved_p50_ms": statistics.median(_latencies(made.step, at)),
                        "how_relieved": "without the other processes on its CPU"}
    except CANNOT as error:
        row["failed"] = f"{type(error).__name__}: {error}"[:300]
    gc.collect()
    if at.device == "cuda":
        torch.cuda.empty_cache()
    return row


def _record(plant: Plant, made: Made, at: Scale, out: Path) -> dict[str, Any]:
    """Latencies first: a process that was profiled launches more slowly afterwards."""
    latencies = _latencies(made.step, at)
    (out / f"{plant.name}.lat.csv").write_text("ms\n" + "".join(f"{one:.4f}\n" for one in latencies))
    relieved, how = made.relieved, made.how_relieved
    if plant.label == "launch_bound" and at.device == "cuda":
        relieved, how = planted.graphed(made.captured or made.step), GRAPH
    found = {"p50_ms": statistics.median(latencies), "n": len(latencies), **made.facts}
    if relieved is not None:
        found |= {"relieved_p50_ms": statistics.median(_latencies(relieved, at)), "how_relieved": how}
    trace = out / f"{plant.name}.trace.json.gz"
    device_ms = _profile(made.step, at, trace)
    return found | {"device_ms_per_step": device_ms, "busy_ratio": device_ms / found["p50_ms"],
                    "steps": PROFILED_STEPS, "trace_kb": round(trace.stat().st_size / 1000)}


def _latencies(step: Step, at: Scale) -> list[float]:
    """Milliseconds of single steps, each until the device is done."""
    for _ in range(5):
        step()
    _wait(at)
    found: list[float] = []
    until = time.perf_counter() + SECONDS
    while (len(found) < MOST_STEPS and time.perf_counter() < until) or len(found) < 10:
        began = time.perf_counter()
        step()
        _wait(at)
        found.append(1000 * (time.perf_counter() - began))
    return found


def _profile(step: Step, at: Scale, path: Path) -> float:
    """Write the trace of a few steps; gives the device's time in kernels and copies per step, ms."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if at.device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    plan = torch.profiler.schedule(wait=0, warmup=2, active=PROFILED_STEPS, repeat=1)
    raw = path.with_suffix("")
    with torch.profiler.profile(activities=activities, schedule=plan, record_shapes=True,
                                on_trace_ready=lambda done: done.export_chrome_trace(str(raw))) as profiler:
        for _ in range(PROFILED_STEPS + 2):
            step()
            _wait(at)
            profiler.step()
    text = raw.read_bytes()
    raw.unlink()
    path.write_bytes(gzip.compress(text, 9, mtime=0))
    events = json.loads(text)["traceEvents"]
    work = sum(one["dur"] for one in events if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    return work / 1000 / PROFILED_STEPS


@contextmanager
def _hogs() -> Iterator[None]:
    """Two processes that never sleep, on the one CPU that this process is confined to."""
    before = os.sched_getaffinity(0)
    spawn = multiprocessing.get_context("spawn")
    one = min(before)
    processes = [spawn.Process(target=_spin, args=(one,), daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    try:
        time.sleep(3)  # until they have started
        os.sched_setaffinity(0, {one})
        yield
    finally:
        os.sched_setaffinity(0, before)
        for process in processes:
            process.terminate()
            process.join()


def _spin(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


def _wait(at: Scale) -> None:
    if at.device == "cuda":
        torch.cuda.synchronize()


def machine(device: str = "cuda") -> dict[str, Any]:
    """The device and the software that recorded."""
    on_gpu = device == "cuda"
    return {"device": torch.cuda.get_device_name() if on_gpu else "cpu", "torch": torch.__version__,
            "cuda": torch.version.cuda, "hip": torch.version.hip, "python": platform.python_version()}


if __name__ == "__main__":
    sys.exit(main())
