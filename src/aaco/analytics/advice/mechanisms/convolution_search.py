"""The fastest of MIOpen's kernels for each convolution: its roof, with what a kernel needs around it.

PyTorch has MIOpen search quickly by default, and exhaustively with torch.backends.cudnn.benchmark; MIOpen keeps the
outcome in the user's database (pytorch/pytorch#145294, since PyTorch 2.7; before, benchmark was on by default).
MIOPEN_FIND_ENFORCE=3 tunes each shape that no database has, in any version; without, a model chooses, and aims at nine
tenths of the best (MIOpen's documentation, "Tuning performance databases").
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import AMD, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import FAST_CONVOLUTION, is_convolution, own_rate, product_names, product_roofs
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.near_roof import MOST_OF_PEAK, at_best, refuse_if_near
from aaco.analytics.advice.work import StepOperator, StepWork, WorkName
from aaco.core.advice import Step
from aaco.core.arrays import Reals

MIOPEN = "miopen"
BEST = MOST_OF_PEAK / FAST_CONVOLUTION  # of a roof with the fewest multiplications; most kernels take all of them


def _is_of_miopen(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    """Return whether MIOpen convolves: by the operator's name, for it calls other libraries' kernels, too."""
    if not is_convolution(operator, names):
        return False
    return MIOPEN in operator.name or any(name.library == MIOPEN for name in names)


def _least_ns(work: StepWork) -> Reals:
    if not any(_is_of_miopen(work.operators[number], names) for number, names in product_names(work).items()):
        raise NothingToChange("nothing that is known convolves by MIOpen")
    least = product_roofs(work, own_rate(work), is_meant=_is_of_miopen)
    refuse_if_near(work, least, BEST)
    return least


def _searched(work: StepWork, least: Reals) -> Response:
    return Response(at_best(work, least, BEST), np.ones(len(least)))


CONVOLUTION_SEARCH = Mechanism("convolution_search", "Let MIOpen search its fastest convolutions",
                               "D with MIOpen's convolutions at their roof", _least_ns, respond=_searched,
                               host_stays=True, other_kernels=True)
ACTIONS = (Action(
    "search_convolutions", "Let MIOpen search its fastest convolutions", of_targets("convolution_search"),
    "kernels convolve by MIOpen; a trace does not tell whether it has searched", "low", (
        Step("torch.backends.cudnn.benchmark = True (PyTorch 2.7 and newer), or MIOPEN_FIND_ENFORCE=3: the first call "
             "of each shape takes minutes, and MIOpen keeps what it found", (PYTORCH, OWN_CODE)),),
    "operator_flops_per_s", "up", applies_if=(AMD, PYTORCH),
    accuracy="sums in another order: last digits differ", memory="workspace of the kernel that is chosen",
    mechanism="convolution_search"),)
