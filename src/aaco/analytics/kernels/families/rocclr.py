"""What the runtimes run themselves: copies and fills that the driver does with a kernel, and waits."""

from aaco.analytics.kernels.families.terms import KernelLibrary

LIBRARY = KernelLibrary(
    "rocclr", r"__amd_rocclr_|Memcpy |Memset |memcpy|memset|Copy(?:Host|Device)To|FillBuffer|CopyBuffer", rules=(
        ("copy", r"[Cc]opy|Memcpy|memcpy"),
        ("fill", r"[Ff]ill|[Mm]emset|initHeap"),
    ))
