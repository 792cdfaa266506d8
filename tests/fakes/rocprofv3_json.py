"""Writes JSON as rocprofv3 does, for tests: in the shape of rocprofiler-sdk's serialisation, with made-up records."""

from __future__ import annotations

import json
from typing import Any

KINDS = ["NONE", "HIP_RUNTIME_API_EXT", "HSA_CORE_API", "MARKER_CORE_RANGE_API", "RCCL_API", "KERNEL_DISPATCH",
         "MEMORY_COPY", "MEMORY_ALLOCATION", "SCRATCH_MEMORY"]
OPERATIONS = {"HIP_RUNTIME_API_EXT": ["hipLaunchKernel"], "HSA_CORE_API": ["hsa_init"],
              "MARKER_CORE_RANGE_API": ["roctxRangePushA"], "RCCL_API": ["ncclAllReduce"],
              "MEMORY_COPY": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_DEVICE"],
              "MEMORY_ALLOCATION": ["MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_VMEM_FREE"],
              "SCRATCH_MEMORY": ["SCRATCH_MEMORY_ALLOC"]}
CPU, GPU_0, GPU_1 = 100, 101, 102


def event(kind: str, operation: int, start: Any, end: Any, stack: int = 0, external: int = 0,
          **more: Any) -> dict[str, Any]:
    """A record of any kind."""
    return {"size": 64, "kind": KINDS.index(kind), "operation": operation, "thread_id": 77,
            "correlation_id": {"internal": stack, "external": external}, "start_timestamp": start,
            "end_timestamp": end, **more}


def dispatch(number: int, start: Any, end: Any, kernel: int = 5, agent: int = GPU_0, **more: Any) -> dict[str, Any]:
    """A dispatch of the trace."""
    info = {"agent_id": {"handle": agent}, "queue_id": {"handle": 2}, "kernel_id": kernel, "dispatch_id": number,
            "private_segment_size": 8, "group_segment_size": 512, "workgroup_size": {"x": 64, "y": 2, "z": 1},
            "grid_size": {"x": 640, "y": 4, "z": 1}}
    return event("KERNEL_DISPATCH", 0, start, end, number + 10, dispatch_info=info, stream_id={"handle": 3}) | more


def counted(record: dict[str, Any], values: list[tuple[int, Any]]) -> dict[str, Any]:
    """The counters of a dispatch."""
    return {"thread_id": record["thread_id"], "dispatch_data": record, "stream_id": record["stream_id"],
            "records": [{"counter_id": {"handle": handle}, "value": value} for handle, value in values]}


def sample(index: int, dispatch_id: int = 1, **more: Any) -> dict[str, Any]:
    """A program-counter sample."""
    return {"record": {"pc": {"code_object_id": 2, "code_object_offset": 64 * index}, "dispatch_id": dispatch_id,
                       "corr_id": {"internal": dispatch_id + 10, "external": 0}, "exec_mask": 15, **more},
            "inst_index": index}


def process(pid: int = 4242, **records: list[Any]) -> dict[str, Any]:
    """One process: its names, and the records by array; those of counters under counter_collection."""
    def agent(handle: int, kind: int, index: int) -> dict[str, Any]:
        return {"id": {"handle": handle}, "type": kind, "logical_node_type_id": index, "name": "gfx942",
                "product_name": "AMD Instinct MI300X", "gfx_target_version": 90402, "cu_count": 304}

    counters = records.pop("counter_collection", [])
    return {
        "metadata": {"node": {"hostname": "host-a"}, "pid": pid, "init_time": 1, "fini_time": 9, "command": ["./run"],
                     "config": {"output": "x"}},
        "agents": [agent(CPU, 1, 0), agent(GPU_0, 2, 0), agent(GPU_1, 2, 1)],
        "counters": [{"id": {"handle": 31}, "name": "SQ_WAVES"}, {"id": {"handle": 32}, "name": "L2_hit"}],
        "strings": {"callback_records": [], "buffer_records": [
            {"kind": kind, "operations": OPERATIONS.get(kind, [])} for kind in KINDS],
            "marker_api": [{"key": 20, "value": "step 1"}],
            "pc_sample_instructions": ["s_nop 0", "v_add_f32 v0, v1, v2"], "pc_sample_comments": ["", "a.cpp:7"]},
        "code_objects": [], "kernel_symbols": [
            {"kernel_id": 5, "kernel_name": "gemm.kd", "formatted_kernel_name": "gemm", "arch_vgpr_count": 32,
             "accum_vgpr_count": 4, "sgpr_count": 96},
            {"kernel_id": 6, "kernel_name": "_Z4fillv.kd", "formatted_kernel_name": "",
             "demangled_kernel_name": "fill() [clone .kd]"}],
        "host_functions": [], "summary": [],
        "callback_records": {"counter_collection": counters}, "buffer_records": records}


def example(pid: int = 4242, base: int = 1000) -> dict[str, Any]:
    """A process with something of everything."""
    return process(
        pid,
        counter_collection=[counted(dispatch(1, base + 100, base + 133), [(31, 3), (31, 4.0), (32, 0.5), (31, None)])],
        kernel_dispatch=[dispatch(1, base + 100, base + 133), dispatch(2, base + 200, base + 201, 6, GPU_1)],
        hip_api=[event("HIP_RUNTIME_API_EXT", 0, base, base + 50, 11, external=9, retval="0", args=[
            {"type": "dim3", "name": "grid", "value": "{1,2,3}"}, {"type": "int", "name": "n", "value": "7"}]),
            event("HIP_RUNTIME_API_EXT", 0, base + 60, base + 70, 12)],
        hsa_api=[event("HSA_CORE_API", 0, base, base + 5, 13)],
        marker_api=[event("MARKER_CORE_RANGE_API", 0, base, base + 500, 20)],
        rccl_api=[event("RCCL_API", 0, base, base + 300, 14)],
        memory_copy=[event("MEMORY_COPY", 1, base + 10, base + 20, 13, src_agent_id={"handle": CPU},
                           dst_agent_id={"handle": GPU_0}, bytes=4096),
                     event("MEMORY_COPY", 2, base + 30, base + 45, 14, src_agent_id={"handle": GPU_1},
                           dst_agent_id={"handle": GPU_0}, bytes=64)],
        memory_allocation=[event("MEMORY_ALLOCATION", 0, base + 5, base + 15, 12, agent_id={"handle": GPU_0},
                                 address="0x00001000", allocation_size=1 << 20)],
        scratch_memory=[event("SCRATCH_MEMORY", 0, base + 7, base + 17, 0, agent_id={"handle": GPU_1},
                              allocation_size=512)],
        pc_sample_stochastic=[
            sample(0, wave_issued=1, inst_type="ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_NO_INST", wave_cnt=8,
                   snapshot={"stall_reason": "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_NONE"}),
            *[sample(1, wave_issued=0, inst_type="", wave_cnt=4, snapshot={
                "stall_reason": "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_WAITCNT"})] * 2],
        ompt=[{"kind": 3}])


def write(path: Any, *processes: dict[str, Any], indent: int | None = 0) -> Any:
    """The file."""
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}, indent=indent))
    return path
