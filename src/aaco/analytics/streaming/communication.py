"""Which kernels communicate between devices: by name, as rules that are data, and by the collectives table.

Order does not matter; a name that matches any pattern communicates. Names of NCCL and RCCL are those of their device
code (`ncclDevKernel_*` from NCCL 2.19 on, `ncclKernel_*` before, RCCL keeps both); the custom all-reduce kernels are
those of vLLM, SGLang, AITER and TensorRT-LLM, which move data between peers without a library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from aaco.core.arrays import Flags

PATTERNS = (
    r"nccl(Dev)?Kernel",  # NCCL, RCCL
    r"\brccl",
    r"nvshmem|rocshmem|roc_shmem",
    r"mscclpp|msccl(Kernel|_run)",
    r"cross_device_reduce",  # vLLM and SGLang, CUDA and HIP
    r"(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|alltoall)\w*(_kernel|kernel|_1stage|_2stage|stage)",
    r"(one|two)_?shot_?all_?reduce|allreduce_fusion|quick_?all_?reduce|qr_all_?reduce",
    r"deep_ep::|(inter|intra)node::(dispatch|combine|notify)",  # DeepEP's expert dispatch and combine
    r"symm_mem|multimem_all_reduce",  # PyTorch symmetric memory
)
_COMPILED = re.compile("|".join(f"(?:{pattern})" for pattern in PATTERNS), re.IGNORECASE)
LONGEST = 4096  # letters of a name that are looked at: a hostile name may be megabytes long


def communicates(name: str) -> bool:
    """Return whether a kernel of this name moves data between devices or ranks."""
    return _COMPILED.search(name[:LONGEST]) is not None


def flags(names: Iterable[str]) -> Flags:
    """Return whether each name communicates; index it with a column's numbers."""
    return np.fromiter((communicates(name) for name in names), np.bool_)
