"""More samples in an inference, as far as its latency is sure to stay within what the user allows."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import Candidate, Inapplicable, unless
from aaco.optimize.situation import Situation

FACTORS = (2, 4, 8)


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield a change for each factor, or why it is not there to try.

    Samples share the overhead of an inference: with n times as many it takes n times as long at most.
    """
    latency, allowed = situation.latency_ms, situation.slo_ms
    for factor in FACTORS:
        expected = factor * (latency or 0.0)
        yield unless(Candidate(f"batch_x{factor}", f"Raise the batch to {factor * situation.batch}",
                            {"batch": str(factor * situation.batch)}, ("larger_batch",), batch_factor=factor),
                     (situation.batch_fixed, "the model, or its inputs, allow no other batch"),
                     (allowed is None, "it makes an inference longer: say how long one may be (--slo)"),
                     (latency is None, "the session has no median latency"),
                     (expected > (allowed or 0.0), f"an inference may take {expected:.3g} ms, beyond the "
                      f"{allowed or 0.0:.3g} ms that are allowed"))
