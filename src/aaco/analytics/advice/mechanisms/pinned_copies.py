"""Page-locked memory at the host's side of copies: pageable copies at the rate of the link.

Of those copies D has no more in it than that, for the host feeds them: what is left is D itself.
"""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.work import HOST_COPIES, StepWork
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent


def _pageable(work: StepWork) -> Flags:
    return work.named(lambda name: name.copy in HOST_COPIES and name.pinned is False)


def _least_ns(work: StepWork) -> Reals:
    if not _pageable(work).any():
        raise Absent("no copy is from or to pageable memory")
    if work.limits.link_bytes_per_s is None:
        raise Absent("the rate of the link to the host is not known")
    return own_time(work)


PINNED_COPIES = Mechanism("pinned_copies", "Page-lock the host's memory", "D: pageable copies at their bytes / link",
                          _least_ns, _pageable)
