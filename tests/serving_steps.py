"""Serving steps as lists of kernel names: planted ones with the layer of each kernel, and our own recordings."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import numpy as np

from aaco.analytics.kernels.families import decode
from tests.third_party import captures

Kernels = list[tuple[str, int]]  # name and layer, -1 outside

NORM = "void vllm::rms_norm_kernel<c10::BFloat16>"
ADD_NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>"
ROPE = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)"
STORE = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(...)"
FULL = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>, false, false>"
SLIDING = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>, true, false>"
COMBINE = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>"
ACTIVATION = "void vllm::act_and_mul_kernel<c10::BFloat16>"
ALL_REDUCE = "void cross_device_reduce_1stage<__hip_bfloat16, 8>"
QUANTIZE = "dynamic_per_token_scaled_fp8_quant_kernel"
EMBEDDING = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>"
COPY = "void at::native::elementwise_kernel_manual_unroll<128, 4, at::native::direct_copy_kernel_cuda>"
ADD = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>"


def gemm(tile: str) -> str:
    """The name of a cuBLAS GEMM of this tile."""
    return f"nvjet_sm90_tst_{tile}_v_bz_TNT"


QKV, OUT, UP, DOWN, HEAD = (gemm(tile) for tile in ("64x8_64x16", "64x8_64x12", "128x8_64x12", "64x8_32x16", "256x8"))
MLP = [UP, ACTIVATION, DOWN]
EXPERTS = [gemm("64x64_64x4"), "void vllm::moe::topkGatingSoftmax<8, 128, 4>",
           "vllm::moe::moe_align_block_size_kernel<int>", "fused_moe_kernel", ACTIVATION, "fused_moe_kernel",
           "vllm::moe::moe_sum_kernel<c10::BFloat16>"]
ATTENTION = [QKV, ROPE, STORE, FULL, COMBINE, OUT]
PREFIX = [EMBEDDING, COPY]
SUFFIX = [HEAD, ARGMAX]


def fused(attention: list[str], feed_forward: list[str]) -> list[str]:
    """A layer whose residual additions are fused with its norms."""
    return [ADD_NORM, *attention, ADD_NORM, *feed_forward]


def step(layers: list[list[str]], prefix: list[str] = PREFIX, suffix: list[str] = SUFFIX) -> Kernels:
    """A step of fused layers: the first norm has nothing to add, and the last layer is followed by the final norm."""
    kernels = [(name, -1) for name in prefix]
    for number, layer in enumerate(layers):
        kernels += [(name, number) for name in layer]
    if kernels[len(prefix)][0] == ADD_NORM:
        kernels[len(prefix)] = (NORM, 0)
    return kernels + [(name, -1) for name in (ADD_NORM, *suffix)]


def mla(feed_forward: list[str]) -> list[str]:
    """A layer with latent attention and tensor parallelism, FP8."""
    attention = [QUANTIZE, gemm("q_a"), NORM, NORM, gemm("q_b"), ROPE, "void vllm::concat_and_cache_mla_kernel<bf16>",
                 gemm("absorb"), "flash_fwd_splitkv_mla_kernel", "flash_fwd_mla_combine_kernel", gemm("v_up"), QUANTIZE,
                 OUT, ALL_REDUCE]
    return fused(attention, [*feed_forward, ALL_REDUCE])


def planted() -> dict[str, list[list[str]]]:
    """The layers of models, by what they are like."""
    delta = [QKV, "causal_conv1d_update_kernel", "fused_recurrent_gated_delta_rule_fwd_kernel",
             "layer_norm_gated_fwd_kernel", OUT]
    mamba = [QKV, "causal_conv1d_update_kernel", "_selective_scan_update_kernel", OUT]
    sliding = [QKV, ROPE, STORE, SLIDING, COMBINE, OUT]
    odd = [*ATTENTION[:-1], gemm("splitK"), "void cublasLt::splitKreduce_kernel<32, 16, int, float>"]
    cross = [ADD_NORM, QKV, STORE, FULL, OUT, ADD_NORM, gemm("q"), SLIDING, OUT, ADD_NORM, *MLP]
    return {
        "dense": [fused(ATTENTION, MLP)] * 32,
        "two layers": [fused(ATTENTION, MLP)] * 2,
        "tensor parallel": [fused([*ATTENTION, ALL_REDUCE], [*MLP, ALL_REDUCE])] * 80,
        "latent attention, three dense layers": [mla(MLP)] * 3 + [mla(EXPERTS)] * 58,
        "latent attention, one dense layer": [mla(MLP)] + [mla(EXPERTS)] * 26,
        "alternating attention": [fused(ATTENTION, MLP), fused(sliding, MLP)] * 12,
        "five to one": ([fused(sliding, MLP)] * 5 + [fused(ATTENTION, MLP)]) * 10 + [fused(sliding, MLP)] * 2,
        "experts in every other layer": [fused(ATTENTION, MLP), fused(ATTENTION, EXPERTS)] * 24,
        "three linear to one full": ([fused(delta, EXPERTS)] * 3 + [fused(ATTENTION, EXPERTS)]) * 12,
        "state space": ([fused(mamba, MLP), fused(mamba, EXPERTS)] * 3
                        + [fused(ATTENTION, MLP), fused(mamba, EXPERTS)]) * 4,
        "other GEMMs in some layers": [fused([gemm(str(k % 7)), *(odd if k % 5 == 2 else ATTENTION)[1:]],
                                             [gemm(str(k % 3)), ACTIVATION, DOWN]) for k in range(40)],
        "all-reduce fused with the norm": [[ALL_REDUCE, QKV, NORM, NORM, *ATTENTION[1:], ALL_REDUCE, *MLP]] * 36,
        "parallel attention": [[NORM, *ATTENTION, UP, ACTIVATION, DOWN, ADD]] * 28,
        "self and cross attention": [cross] * 24,
        "separate additions": [[NORM, *ATTENTION, ADD, NORM, *MLP, ADD]] * 22,
        "norms on both sides": [[NORM, *ATTENTION, ADD_NORM, ADD, NORM, *MLP, ADD_NORM, ADD]] * 26,
        "FP8": [[ADD_NORM, QUANTIZE, *ATTENTION[:-1], QUANTIZE, OUT,
                 ADD_NORM, QUANTIZE, UP, ACTIVATION, QUANTIZE, DOWN]] * 32,
    }


@cache
def family(name: str) -> str:
    """The family of a kernel by its name."""
    return decode(name).family


def families(names: list[str]) -> list[str]:
    """The families of kernels by their names."""
    return [family(name) for name in names]


@cache
def recorded() -> dict[str, list[dict[str, Any]]]:
    """The kernels of the first step of our own recordings, with their module and operator."""
    traces = json.loads((captures() / "serving" / "truth.json").read_text())["traces"]
    return {name: trace["kernels"] for name, trace in traces.items() if "kernels" in trace}


def layer_of(module: str | None) -> int:
    """The number of a layer in the path of a module; -1 without one."""
    return int(module.split(".")[1]) if module and module.startswith("layers.") else -1


@cache
def capture(name: str) -> list[tuple[str, float]]:
    """Name and duration in us of the kernels of a capture of one step, in the order of time."""
    return [(kernel["name"], kernel["dur"]) for kernel in _kernels(_events(f"kineto/{name}.json.gz"))]


def steps_of_trace(path: str) -> list[list[tuple[str, float]]]:
    """Name and duration in us of the kernels of each annotated step, by their launches; all in one without launches."""
    events = _events(path)
    steps = sorted((event["ts"], event["ts"] + event["dur"]) for event in events
                   if event.get("cat") == "user_annotation" and event["name"].startswith(("execute_", "ProfilerStep")))
    launches = {event["args"]["correlation"]: event["ts"] for event in events
                if event.get("cat", "").endswith(("runtime", "driver")) and "correlation" in event.get("args", {})}
    kernels_by_step: dict[int, list[tuple[str, float]]] = {}
    for kernel in _kernels(events):
        launched = launches.get(kernel["args"].get("correlation"), -1.0)
        number = next((number for number, (begin, end) in enumerate(steps) if begin <= launched <= end), -1)
        kernels_by_step.setdefault(number, []).append((kernel["name"], kernel["dur"]))
    return list(kernels_by_step.values())


def _events(path: str) -> list[dict[str, Any]]:
    with gzip.open(captures() / path) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def _kernels(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"])


def right_share(layers: np.ndarray[Any, Any], truth: list[int]) -> float:
    """The share of kernels in the right layer."""
    return float(np.mean(layers == np.array(truth)))
