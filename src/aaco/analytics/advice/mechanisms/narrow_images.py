"""16 bits and images in channels_last order together: matrix units convolve 16 bits in that order only, so that
narrow images in another one are converted around each convolution (NVIDIA, Convolutional Layers User's Guide).
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from aaco.analytics.advice.action import AMD, INFERENCE, NARROW, OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.channels_last import CHANNELS_LAST, FOR_MIOPEN
from aaco.analytics.advice.mechanisms.narrower_types import NARROWER_TYPES
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Reals

PARTS = (NARROWER_TYPES, CHANNELS_LAST)


def _least_ns(work: StepWork) -> Reals:
    leasts: list[Reals] = [part.least_ns(work) for part in PARTS]
    return np.minimum(*leasts)


def _narrowed(work: StepWork, least: Reals) -> Response:
    """Return the step with what either of the two leaves of each kernel."""
    narrow, ordered = (part.respond(work, part.least_ns(work)) for part in PARTS if part.respond)
    return replace(narrow, device_ns=np.minimum(narrow.device_ns, ordered.device_ns),
                   left=np.minimum(narrow.left, ordered.left))


NARROW_IMAGES = Mechanism("narrow_images", "Compute in 16 bits with images in channels_last order",
                          "the least of narrower types and of channels_last order, kernel by kernel", _least_ns,
                          respond=_narrowed, host_stays=True, fewer_bytes=True, other_kernels=True,
                          parts=tuple(part.name for part in PARTS))
ACTIONS = (Action(
    "narrow_images", "Compute in 16 bits with images in channels_last order", of_targets("narrow_images"),
    "kernels compute or move 32 bits, or convert images", "medium",
    (Step("model.to(torch.bfloat16, memory_format=torch.channels_last), and the inputs too",
          (PYTORCH, OWN_CODE, INFERENCE)),
     Step("model.to(memory_format=torch.channels_last), the inputs too, and torch.autocast(dtype=torch.bfloat16)",
          (PYTORCH, OWN_CODE, TRAINING)),
     Step(FOR_MIOPEN, (PYTORCH, OWN_CODE, AMD))),
    "memory_limited_pct",
    applies_if=(PYTORCH, fact_is("product_kind", "conv"), fact_is("product_type", "fp32", "tf32"),
                fact_is("layout", "nchw")),
    already_done_if=(NARROW,), accuracy="8 bits of mantissa (bf16): check the outputs", mechanism="narrow_images",
    surpasses="narrower_types"),)
