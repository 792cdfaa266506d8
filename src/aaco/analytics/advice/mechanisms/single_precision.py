"""float32 in place of float64: products at the rates of float32 and TF32, and half of the bytes for all else.

Arithmetic of float64 may take 64 times as long as that of float32, so only bytes bound what passes over memory.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import ORT, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import memory_roofs, product_names, product_roofs, widest_rate
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange
from aaco.analytics.advice.responses import HALF, retyped
from aaco.analytics.advice.work import StepOperator, StepWork, WorkName
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

DOUBLE = "f64"
RATES = ("vector_f32", "matrix_f32", "matrix_tf32")


def _is_double(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    return DOUBLE in operator.types or any(DOUBLE in name.types for name in names)


def _least_ns(work: StepWork) -> Reals:
    rate = widest_rate(work.limits.rates.get(name) for name in RATES)
    if rate is None:
        raise Absent("the device's peak of float32 is not known")
    doubles = work.operated(lambda operator: DOUBLE in operator.types) | work.named(lambda name: DOUBLE in name.types)
    if not doubles.any():
        raise NothingToChange("nothing computes in float64")
    multiplies = np.isin(work.operator, [*product_names(work)])
    products = product_roofs(work, lambda operator, names: rate, HALF, is_meant=_is_double)
    return np.where(multiplies, products, memory_roofs(work, doubles, HALF))


SINGLE_PRECISION = Mechanism("single_precision", "Compute in float32 in place of float64",
                             "D with products of float64 at their FLOPs / peak of float32 and half of the bytes of "
                             "all else in float64", _least_ns, respond=retyped, host_stays=True, fewer_bytes=True,
                             other_kernels=True)
ACTIONS = (Action(
    "single_precision", "Compute in float32 in place of float64", of_targets("single_precision", "memory_limited_pct"),
    "kernels compute or move 64 bits", "low", (
        Step("tensors of torch.float32: NumPy's arrays are float64 by default, and torch.from_numpy keeps their type",
             (PYTORCH, OWN_CODE)),
        Step("inputs and initializers of float in place of double", (ORT,))),
    "memory_limited_pct", applies_if=(fact_is("element_type", "fp64"),),
    accuracy="24 bits of mantissa in place of 53: check the outputs", mechanism="single_precision",
    or_confirm=("compute_limited_pct",)),)
