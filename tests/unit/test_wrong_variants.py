"""The planted proposals: what their text shows is refused without a GPU, and the others are left for the replays."""

from __future__ import annotations

from collections import Counter

import pytest

from aaco.optimize.kernels.edit_proof import check_edited
from aaco.optimize.kernels.source import find_kernel
from aaco.optimize.kernels.variants import Refused
from benchmarks.gpu import _wrong_variants as planted

pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
CAPTURED = {kernel.name: 256 for kernel in planted.PLANTED}


def test_there_are_300_of_every_kind():
    every = list(planted.variants(CAPTURED))
    assert len(every) >= 300 and len({(one.kernel, one.text) for one in every}) == len(every)
    assert Counter(one.kind for one in every).keys() >= {
        "edges", "race", "out of bounds", "stale", "second stream", "memoised", "skips", "NaN", "less exact",
        "signature", "attribute", "outside", "macro tricks", "captured shape only"}


@pytest.mark.parametrize("kernel", planted.PLANTED, ids=lambda kernel: f"{kernel.path.name}-{kernel.name}")
def test_what_the_text_shows_is_refused_for_the_named_reason_and_nothing_else(kernel):
    """Mutations of source.py: the signature, the text behind the kernel, or directives are not compared."""
    before = find_kernel(kernel.text.encode(), kernel.name)
    for variant in planted.of_text(kernel):
        with pytest.raises(Refused) as refused:
            check_edited(before, variant.text)
        assert refused.value.reason in variant.reasons, (variant.name, refused.value)
    for variant in (*planted.of_device(kernel), *planted.of_shape(kernel, 256)):
        check_edited(before, variant.text)
