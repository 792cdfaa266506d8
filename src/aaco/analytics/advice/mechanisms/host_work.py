"""Work of the host that leaves the step: less of it, or other processes do it. The device's kernels and copies stay.

Work that moves to the device makes the step's device work longer, never shorter.
"""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import own_time

HOST_WORK = Mechanism("host_work", "Take the host's own work out of the step", "D", own_time)
