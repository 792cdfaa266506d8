"""Page-locked memory at the host's side of copies: pageable copies at the rate of the link."""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

HOST = ("h2d", "d2h")


def _least_ns(work: StepWork) -> Reals:
    pageable = work.named(lambda name: name.copy in HOST and name.pinned is False)
    link = work.limits.link_bytes_per_s
    if not pageable.any():
        raise Absent("no copy is from or to pageable memory")
    if link is None:
        raise Absent("the rate of the link to the host is not known")
    return np.where(pageable, np.minimum(own_time(work), 1e9 * work.copied / link), own_time(work))


PINNED_COPIES = Mechanism("pinned_copies", "Page-lock the host's memory", "D - pageable copies + their bytes / link",
                          _least_ns)
