"""What a profiler's own cost leaves of a verdict on the host: launching takes longer, kernels take what they took.

A step that is bound by its kernels can look launch-bound in a trace: to record an operator or a call costs the host
about what launching costs. The factor differs from step to step, so a trace gives only an interval for the host's share
of the unprofiled wall, and a verdict must hold at both of its ends.
"""

from __future__ import annotations

from aaco.analytics.bottleneck import calibration
from aaco.analytics.bottleneck.budget import PROFILED
from aaco.core.readings import Reading


def host_needed_pct(host_pct: Reading, launch_pct: Reading) -> float:
    """Return the host's share of the wall, per cent, at which a verdict on the host holds at both ends.

    With the unprofiled wall 100 - launch + launch / stretch, the host's share of it is the fitted one there.
    """
    needed = calibration.FITTED.host_pct
    if not host_pct.method.startswith(PROFILED) or launch_pct.value is None:
        return needed
    return needed + _added_pct(launch_pct.value) * (1 - needed / 100)


def least_host_pct(host_pct: float, launch_pct: float) -> float:
    """Return the host's share of the unprofiled wall at least, per cent."""
    added = _added_pct(launch_pct)
    return 100 * (host_pct - added) / (100 - added)


def why_undecided(host_pct: Reading, launch_pct: Reading) -> str:
    """Return why a trace that waits for its host has no class; empty if the profiler's cost is not the reason."""
    if host_pct.value is None or launch_pct.value is None:
        return ""
    if not calibration.FITTED.host_pct <= host_pct.value < host_needed_pct(host_pct, launch_pct):
        return ""
    return (f"the device waits for the host {host_pct.value:.0f} % of the trace, but profilers make launching up to "
            f"{calibration.FITTED.launch_stretch:g} times longer: without one it waits "
            f"{least_host_pct(host_pct.value, launch_pct.value):.0f} to {host_pct.value:.0f} %. The time of a step "
            "without the profiler decides it: aaco import TRACE --latency MS")


def _added_pct(launch_pct: float) -> float:
    """Return the share of a profiled wall that the profiler added at most, per cent."""
    return launch_pct * (1 - 1 / calibration.FITTED.launch_stretch)
