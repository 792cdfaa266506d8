"""More samples at once, the same samples in all: weights are read and updated once, kernels are few and full.

Nothing of D is sure to stay but arithmetic and bytes of each sample.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import ACTS_ON, NOT_SERVING, OWN_CODE, PYTORCH, Action, Values, of_launches
from aaco.analytics.advice.least import PRODUCTS, memory_roofs, own_rate, product_roofs
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.responses import unchanged
from aaco.analytics.advice.work import COPY, OPTIMIZER, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

MOST_SAMPLES = 16.0  # times as many as before: more were never recorded


def _least_ns(work: StepWork) -> Reals:
    products = work.of_families(*PRODUCTS)
    once = work.operated(lambda operator: operator.phase == OPTIMIZER)
    roofs = np.where(products, product_roofs(work, own_rate(work), with_bytes=False),
                     memory_roofs(work, ~products & ~work.of_families(COPY)))
    return np.where(once | work.of_families(COPY), 0.0, roofs)


LARGER_BATCH = Mechanism("larger_batch", "Raise the batch",
                         "per sample: FLOPs of products / peak + bytes of the rest / bandwidth", _least_ns,
                         respond=lambda work, least: unchanged(work), most_samples=MOST_SAMPLES)


def _waiting(values: Values) -> float:
    """Return the time that the device waits for the host; only a step without a profiler shows it.

    More samples are copied as long each: raise KeyError where more time goes to copies.
    """
    if values.get("transfer_limited_pct", 0.0) > values["host_limited_pct"]:
        raise KeyError("transfer_limited_pct")
    return min(values[ACTS_ON + "graph"], of_launches(values))


ACTIONS = (Action(
    "larger_device_batch", "Raise the batch", _waiting,
    "the device waits for the host", "low",
    (Step("batch_size of the DataLoader", (fact_is("data_loader", "single_process", "workers"),)),
     Step("more samples in a step", (PYTORCH, OWN_CODE))),
    "gpu_active_ratio", "up", applies_if=(PYTORCH, NOT_SERVING),
    accuracy="training: the learning rate follows the batch", memory="activations grow with the batch",
    mechanism="larger_batch", at_most=of_launches),)
