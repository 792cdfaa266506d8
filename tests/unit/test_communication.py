"""Names of kernels that communicate, as libraries and engines have them, and names that only look like it."""

import pytest

from aaco.analytics.streaming.communication import communicates, flags
from tests import kineto_rows


@pytest.mark.parametrize("name", [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t",
    "ncclDevKernel_Generic_1", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "rccl_main_kernel",
    "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, vllm::RankSignals)",
    "void sglang::cross_device_reduce_2stage<float, 2>", "void aiter::cross_device_reduce_2stage<opus::fp16_t, 8>",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<>()",
    "void quickreduce::allreduce_prototype_twoshot_kernel", "nvshmemi_transfer_rma_blocking",
    "void deep_ep::internode::dispatch<false, 8>(int4*)", "void mscclpp::allreduce7<>",
    "mscclKernel_Sum_float_Simple_false",
    "void two_shot_all_reduce_kernel<float>(float*)", "all_gather_into_tensor_kernel", "void alltoall_kernel<4>()"])
def test_it_communicates(name):
    assert communicates(name)


@pytest.mark.parametrize("name", [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "Cijk_Alik_Bljk_BBS_BH_MT128x128x64",
    "attn_fwd",
    "void at::native::vectorized_gather_kernel<16, long>", "void at::native::index_elementwise_kernel<128, 4>",
    "triton_red_fused_add_all_reduced_mean_0", "void cub::DeviceReduceKernel<>", "broadcast_add_kernel", "", "dispatch",
    "void moe_permute_kernel", "reduce_scatter_free_name"])
def test_it_does_not(name):
    assert not communicates(name)


def test_a_name_of_megabytes_is_looked_at_only_as_far_as_names_go():
    assert not communicates("a" * 5_000_000 + "ncclKernel")
    assert flags(["ncclKernel", "gemm"]).tolist() == [True, False]


@pytest.mark.captures
@pytest.mark.parametrize(("name", "expected"), [
    ("kineto/b200_eager_trace", {"ncclDevKernel_AllGather_RING_LL", "void (anonymous namespace)::multimem_all_reduce"}),
    ("kineto/mi300_Qwen_Qwen1.5-0.5B-Chat__1016005", set()),
    ("h200/torch_scenarios/train_bert4_b32_bf16.trace", set())])
def test_real_traces(name, expected):
    kernels = kineto_rows.read(f"{name}.json.gz")["kernels"]["kernel_name"].to_pylist()
    found = {name for name in set(kernels) if communicates(name)}
    assert len(found) == len(expected) and all(name.startswith(tuple(expected)) for name in found)
