"""Where kernels ran, in words."""

from __future__ import annotations

HOST, GPU = "host CPU", "GPU"
DISPATCH = "a device; timed is the host's dispatch"


def ran_on(kernels: int, without_device: int, dispatched: int) -> str:
    """Return where so many kernels ran: on GPUs, on the host, on devices that were not traced; empty without kernels.

    dispatched: of those without a device, the ones of which only the host's dispatch was timed.
    """
    return " and ".join([GPU] * (without_device < kernels) + [HOST] * (without_device > dispatched)
                        + [DISPATCH] * (dispatched > 0))
