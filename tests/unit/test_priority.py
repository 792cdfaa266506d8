"""The mission's priority of a kernel: score, gates, and what Amdahl's law leaves."""

import pytest

from aaco.analytics.kernels.priority import COLUMNS, headrooms, priority
from aaco.core.tables import KERNEL_ROOFLINE


def test_a_kernel_worth_the_effort():
    """Mutation: headroom + fraction."""
    found = priority(0.5, 0.4)
    assert found.score == pytest.approx(0.2)
    assert found.ceiling == pytest.approx(1 / 0.8)
    assert not found.refusals()


@pytest.mark.parametrize(("headroom", "fraction", "refused"), [
    (0.09, 0.9, "headroom 0.090"), (0.9, 0.19, "fraction of the critical path"), (0.2, 0.21, "headroom x fraction")])
def test_each_gate_refuses_alone(headroom, fraction, refused):
    """Mutation: one gate's number changed."""
    (why,) = priority(headroom, fraction).refusals().values()
    assert refused in why


def test_gates_are_included():
    assert not priority(0.25, 0.20).refusals()
    assert not priority(0.10, 0.5).refusals()


def test_all_of_the_path_gained_has_no_ceiling():
    assert priority(1.0, 1.0).ceiling is None


@pytest.mark.parametrize(("headroom", "fraction"), [(1.2, 0.5), (0.5, -0.1), (float("nan"), 0.5)])
def test_what_is_no_share_is_refused(headroom, fraction):
    with pytest.raises(ValueError, match="no shares"):
        priority(headroom, fraction)


def placed(*rows):
    return KERNEL_ROOFLINE.build(**{name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)},
                                 kernel_id=list(range(len(rows)))).select(COLUMNS)


def test_headroom_is_what_is_left_to_the_roof():
    """Weighted by time; the measured roof first. Mutations: a mean over executions; the theoretical roof first."""
    table = placed(("gemm", 300, 0.5, 0.6), ("gemm", 100, 0.1, 0.2), ("copy", 50, 0.4, None), ("none", 10, None, None),
                   ("wrong", 10, 1.3, None))
    assert headrooms(table) == pytest.approx({"gemm": 0.5, "copy": 0.6})
