"""Waits of the host taken out: the device works on, and its kernels stay.

A change that also regroups the kernels (a loop over experts that becomes one product) is two mechanisms.
"""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import own_time

REMOVE_SYNCS = Mechanism("remove_syncs", "Take the host's waits out of the step", "D", own_time)
