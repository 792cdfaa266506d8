"""TF32 for products of float32 on the vector units: the same tensors, the matrix units' rate.

Two kinds stay as they are: products of a matrix with one vector, as their kernels use no matrix units (cuBLAS's gemv),
and fused attention, which chooses its units by itself (PyTorch's memory-efficient attention asks for no precision).

AMD's gfx942 has such units, which hipBLASLt uses where PyTorch allows TF32 (pytorch/pytorch#144145), at first only with
HIPBLASLT_ALLOW_TF32=1 (until #162998). Its convolutions (MIOpen) stay in float32.
"""

from __future__ import annotations

from aaco.analytics.advice.action import AMD, NARROW, NVIDIA, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import product_names, product_roofs
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange
from aaco.analytics.advice.responses import retyped
from aaco.analytics.advice.work import StepOperator, StepWork, WorkName
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

VECTOR_KERNEL = "gemv"  # of its name


def _is_wide(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    """Return whether an operator's products of matrices are of float32 and not in TF32 yet, by their names first."""
    if all(name.family == "attention" or VECTOR_KERNEL in name.name for name in names):
        return False
    types = {spelt for name in names for spelt in name.types} or set(operator.types)
    return "f32" in types and "tf32" not in types and not types & {"f16", "bf16"}


def _least_ns(work: StepWork) -> Reals:
    rate = work.limits.rates.get("matrix_tf32")
    if rate is None:
        raise Absent("the device's peak of TF32 is not known, or it has none")
    products = product_names(work)
    if not products:
        raise Absent("no product is known")
    if not any(_is_wide(work.operators[number], names) for number, names in products.items()):
        raise NothingToChange("no product computes in float32 outside of TF32")
    return product_roofs(work, lambda operator, names: rate, is_meant=_is_wide)


TF32 = Mechanism("tf32", "Let float32 products use TF32", "D with float32 products at their FLOPs / peak of TF32",
                 _least_ns, respond=retyped, host_stays=True, other_kernels=True)
# The precision of products of matrices says nothing of convolutions and recurrent layers, which cuDNN computes.
BY_CUDNN = fact_is("product_kind", "conv", "recurrent")
ACTIONS = (Action(
    "allow_tf32", "Let fp32 products use TF32", of_targets("tf32", "compute_limited_pct"),
    "kernels compute products in fp32", "low",
    (Step('torch.set_float32_matmul_precision("high")', (PYTORCH, NVIDIA, OWN_CODE), (BY_CUDNN,)),
     Step("torch.backends.cudnn.allow_tf32 = True", (PYTORCH, NVIDIA, OWN_CODE, BY_CUDNN)),
     Step('torch.set_float32_matmul_precision("high"); an older PyTorch also needs HIPBLASLT_ALLOW_TF32=1',
          (PYTORCH, AMD, OWN_CODE), (BY_CUDNN,))),
    "compute_limited_pct", applies_if=(PYTORCH, fact_is("tf32_units", "yes"), fact_is("product_type", "fp32")),
    already_done_if=(fact_is("product_type", "tf32"), NARROW),
    accuracy="10 bits of mantissa in place of 23: check the outputs",
    mechanism="tf32", of_limit="arithmetic limits the device, and products compute in fp32",
    or_confirm=("memory_limited_pct",)),)
