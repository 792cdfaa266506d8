"""The primitive libraries of both vendors: rocPRIM and hipCUB, CUB and Thrust."""

from msgspec.structs import replace

from aaco.analytics.kernels.families.terms import KernelLibrary

ROCPRIM = KernelLibrary(
    "rocprim", r"rocprim::|hipcub::|hip_rocprim", rules=(
        ("fill", r"[Ii]nit(?:_|Kernel|$)|init_lookback|init_offset|InitKernel|ScanInit|CompactInit|uninitialized_fill"),
        ("sort", r"[Rr]adix_?[Ss]ort|merge_?sort|block_sort|onesweep|segmented_sort|sort_|Sort|partition|Select|select"
                 r"|Unique|unique|Partition|histogram_sort|nth_element|merge_kernel"),
        ("reduction", r"[Rr]educe|[Ss]can|[Hh]istogram|run_length|adjacent"),
        ("copy", r"copy|batch_memcpy"),
    ), inner=(
        ("copy", r"rocprim::identity<"),
        ("fill", r"uninitialized_fill|__fill"),
        ("sort", r"[Ss]ort|[Uu]nique|[Pp]artition"),
        ("reduction", r"[Rr]educe|[Ss]can"),
        ("elementwise", r"for_each|transform|parallel_for"),
    ))
CUB = replace(ROCPRIM, name="cub", begins=r"(?:at_cuda_detail::)?cub::|thrust::|cuda_cub")
