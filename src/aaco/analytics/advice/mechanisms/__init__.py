"""The kinds of changes that advice knows, a file for each: what its floor is made of, and what it acts on."""

from __future__ import annotations

from collections.abc import Mapping

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.mechanisms import (
    attention_fusion,
    channels_last,
    checkpointing_off,
    co_tenant,
    compile,
    cudnn_benchmark,
    fused_optimizer,
    graph,
    host_work,
    inputs_on_device,
    larger_batch,
    less_work,
    loop_to_batched_op,
    narrower_types,
    overlap_communication,
    pinned_copies,
    pointwise_fusion,
    prefetching,
    remove_syncs,
    sorted_reads,
    straggler,
    tf32,
    throttling,
)

MECHANISMS: Mapping[str, Mechanism] = {mechanism.name: mechanism for mechanism in (
    graph.GRAPH, remove_syncs.REMOVE_SYNCS, tf32.TF32, narrower_types.NARROWER_TYPES, pointwise_fusion.POINTWISE_FUSION,
    attention_fusion.ATTENTION_FUSION, compile.COMPILE, fused_optimizer.FUSED_OPTIMIZER, channels_last.CHANNELS_LAST,
    pinned_copies.PINNED_COPIES, inputs_on_device.INPUTS_ON_DEVICE, larger_batch.LARGER_BATCH,
    checkpointing_off.CHECKPOINTING_OFF, less_work.LESS_WORK, loop_to_batched_op.LOOP_TO_BATCHED_OP,
    sorted_reads.SORTED_READS, cudnn_benchmark.CUDNN_BENCHMARK, host_work.HOST_WORK, prefetching.PREFETCHING,
    overlap_communication.OVERLAP_COMMUNICATION, straggler.STRAGGLER, co_tenant.CO_TENANT, throttling.THROTTLING)}
