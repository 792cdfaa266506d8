"""The fastest of AMD's kernels for each product: hipBLASLt and rocBLAS have hundreds, and choose by a model of them.

A product keeps its type, and takes no less time than at its roof. Kernels of other origin stay: TunableOp and the files
of hipBLASLt reach calls of the two libraries only, not a kernel that Triton or Composable Kernel made.

Sources: PyTorch, aten/src/ATen/cuda/tunable/README.md and torch/cuda/tunable.py (TunableOp, ROCm only, off by default;
its file names the versions that it is of, and others reject it); hipBLASLt's documentation, "Using hipBLASLt offline
tuning" (a file is of one release and one architecture; a printed call asks for the kernel that it had, so --algo_method
all is to be said).
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import AMD, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import own_rate, product_names, product_roofs
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.near_roof import at_best, refuse_if_near
from aaco.analytics.advice.work import StepOperator, StepWork, WorkName
from aaco.core.advice import Step, fact_is, fact_is_not
from aaco.core.arrays import Reals

TENSILE = "tensile"  # the generator of both libraries' kernels


def _is_of_a_library(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    """Return whether hipBLASLt or rocBLAS computes an operator's products. MIOpen, which calls rocBLAS for some
    convolutions, chooses by itself.
    """
    return "conv" not in operator.name and any(name.library == TENSILE for name in names)


def _least_ns(work: StepWork) -> Reals:
    if not any(_is_of_a_library(work.operators[number], names) for number, names in product_names(work).items()):
        raise NothingToChange("no known product is a kernel of hipBLASLt or rocBLAS")
    least = product_roofs(work, own_rate(work), is_meant=_is_of_a_library)
    refuse_if_near(work, least)
    return least


def _tuned(work: StepWork, least: Reals) -> Response:
    return Response(at_best(work, least), np.ones(len(least)))


PRODUCT_TUNING = Mechanism("product_tuning", "Tune the choice of kernels for products",
                           "D with products of hipBLASLt and rocBLAS at their roof", _least_ns, respond=_tuned,
                           host_stays=True, other_kernels=True)
# AITER calls hipBLASLt with a choice of its own, which neither reaches: for all products of SGLang
# (srt/layers/quantization/unquant.py, tgemm), and for those of vLLM on gfx950 (vllm/_aiter_ops.py, is_tgemm_enabled).
NOT_BY_AITER = fact_is_not("aiter", "used")
ACTIONS = (Action(
    "tune_products", "Tune hipBLASLt's and rocBLAS's choice of kernels", of_targets("product_tuning"),
    "kernels of hipBLASLt or rocBLAS compute products; a trace does not tell whether they were tuned", "medium", (
        Step("one run with PYTORCH_TUNABLEOP_ENABLED=1 times the kernels for its shapes into tunableop_results0.csv; "
             "later runs read that with PYTORCH_TUNABLEOP_TUNING=0, too", (PYTORCH,)),
        Step("or each hipblaslt-bench that HIPBLASLT_LOG_MASK=32 prints, with --algo_method all and "
             "HIPBLASLT_TUNING_FILE=FILE; later runs with HIPBLASLT_TUNING_OVERRIDE_FILE=FILE",
             (PYTORCH, fact_is("blas_library", "hipblaslt")))),
    "operator_flops_per_s", "up",
    applies_if=(AMD, PYTORCH, fact_is("blas_library", "hipblaslt", "rocblas"), NOT_BY_AITER),
    accuracy="sums in another order: last digits differ (PYTORCH_TUNABLEOP_NUMERICAL_CHECK=1 compares)",
    memory="workspace of the kernels that split sums; copies of operands while it tunes", mechanism="product_tuning"),)
