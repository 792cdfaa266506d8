"""More samples at once, the same samples in all: weights are read and updated once, and the host calls as often.

Each call of an operator leaves a kernel of the larger step, however few its samples are, and copies between host and
device move as many bytes at least. Of each sample nothing is sure to stay but arithmetic and bytes. Where a step works
on its samples one by one, more samples are more turns, and nothing is gained.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from aaco.analytics.advice.action import ACTS_ON, NOT_SERVING, OWN_CODE, PYTORCH, USUAL, Action, Values, of_launches
from aaco.analytics.advice.gradient_turns import gradient_turns
from aaco.analytics.advice.least import PRODUCTS, memory_roofs, own_rate, product_roofs
from aaco.analytics.advice.loops import loops_over_rows
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange
from aaco.analytics.advice.responses import CONVERSIONS, unchanged
from aaco.analytics.advice.work import COPY, FOR_LISTS, HOST_COPIES, OPTIMIZER, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

MOST_SAMPLES = 16.0  # times as many as before: more were never recorded


def _least_ns(work: StepWork, samples: float) -> Reals:
    """Return the least times per sample. Conversions may be of weights, and lists are of all parameters."""
    if work.once(gradient_turns).apart:
        raise NothingToChange("a step makes the gradients of its samples one by one")
    if work.once(loops_over_rows):
        raise NothingToChange(f"a step works on the {work.single_rows} rows of a batch one by one")
    copies, products = work.of_families(COPY), work.of_families(*PRODUCTS)
    once = work.operated(lambda operator: operator.phase == OPTIMIZER or FOR_LISTS in operator.name)
    conversions = work.of_families(*CONVERSIONS)
    roofs = np.where(products, product_roofs(work, own_rate(work), with_bytes=False),
                     memory_roofs(work, ~products & ~copies & ~conversions))
    shortest = np.minimum(work.sure_ns, work.limits.shortest_ns or 0.0) * work.call_shares / samples
    each = np.where(conversions, shortest, np.maximum(roofs, shortest))
    between = np.where(work.copies(*HOST_COPIES), work.sure_ns, 0.0) / samples
    updates = np.minimum(work.sure_ns, work.one_behind_another_ns) / samples
    return np.where(copies, between, np.where(once, updates, each))


def larger_batch(samples: float) -> Mechanism:
    """Return the change that puts so many times as many samples into a step."""
    return Mechanism("larger_batch", "Raise the batch", "per sample: FLOPs of products / peak + bytes of the rest / "
                     "bandwidth, at least the shortest kernel for each call, updates and copies once for all samples",
                     partial(_least_ns, samples=samples), respond=lambda work, least: unchanged(work),
                     most_samples=samples, host_stays=True, other_kernels=True)


LARGER_BATCH = larger_batch(MOST_SAMPLES)


def _waiting(values: Values) -> float:
    """Return the time that the device waits for the host, which only a step without a profiler shows; else that of
    launches, where recorded changes say what more samples usually gain.

    More samples are copied as long each: raise KeyError where more time goes to copies.
    """
    if values.get("transfer_limited_pct", 0.0) > values["host_limited_pct"]:
        raise KeyError("transfer_limited_pct")
    waits = values["launch_tax_pct"] if USUAL + "larger_batch" in values else values[ACTS_ON + "graph"]
    return min(waits, of_launches(values))


ACTIONS = (Action(
    "larger_device_batch", "Raise the batch", _waiting,
    "the device waits for the host", "low",
    (Step("batch_size of the DataLoader", (fact_is("data_loader", "single_process", "workers"),)),
     Step("more samples in a step", (PYTORCH, OWN_CODE))),
    "gpu_active_ratio", "up", applies_if=(PYTORCH, NOT_SERVING),
    accuracy="training: the learning rate follows the batch", memory="activations grow with the batch",
    mechanism="larger_batch", at_most=of_launches,
    ceiling_takes="is of each sample's arithmetic and bytes"),)
