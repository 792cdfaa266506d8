"""Collective communication: NCCL and RCCL, and the single-node reductions that frameworks bring themselves."""

from aaco.analytics.kernels.families.terms import KernelLibrary

LIBRARY = KernelLibrary(
    "nccl", r"nccl(?:Dev|Kernel|Symk|Sym)|rccl|mscclKernel|msccl|deep_ep::|nvshmem|c10d::|(?:at::native::|\(anonymous "
            r"namespace\)::|vllm::|sglang::|flashinfer::\w*::|trtllm::|tensorrt_llm::kernels::)*(?:cross_device_reduce|"
            r"multimem_|one_?shot_?all_?reduce|two_?shot_?all_?reduce|allreduce_fusion|lamport)", rules=(
        ("collective", r"."),
    ))
