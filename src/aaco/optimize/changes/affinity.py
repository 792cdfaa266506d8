"""Each thread of the pool bound to a CPU, so that the scheduler moves none.

ONNX Runtime takes one group of CPUs for each thread but the main one, and numbers CPUs from 1
(onnxruntime_session_options_config_keys.h). Without a count of threads it binds them itself, to the machine's cores.
"""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.core.providers import CPU
from aaco.optimize.situation import Situation

SETTING, COUNT = "session.intra_op_thread_affinities", "intra_op_threads"


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield the change, or why it is not there to try."""
    allowed, threads = situation.allowed, situation.threads or 0
    groups = ";".join(str(number + 1) for number in allowed[1:threads])
    itself = situation.settings.get(COUNT, "0") == "0" and situation.has("session.execution_mode", "sequential")
    shared = situation.cores is None or situation.cores < (situation.cpus or 0)
    yield unless(Candidate("bound_threads", "Bind each thread to a CPU", {SETTING: groups, COUNT: str(threads)},
                        ("compare_threads",)),
                 (situation.provider != CPU, f"{situation.provider} does not compute in these threads"),
                 (not threads, "how many threads there are is not known"),
                 (threads == 1, "the main thread, which is the only one, is not bound"),
                 (not allowed, "which CPUs the run may use is not known"),
                 (threads > len(allowed), f"{threads} threads have no CPU each: the run may use {len(allowed)}"),
                 (situation.has(SETTING, groups), ALREADY),
                 (itself, "ONNX Runtime binds them itself where no count of threads is set"),
                 (shared and threads < len(allowed), "which CPUs share a core is not known"))
