"""Which kernels are worth optimising: planted figures with known gates."""

from __future__ import annotations

from typing import get_args

import pytest

from aaco.analytics.bottleneck.kernel_classes import CLASSES
from aaco.analytics.kernels.candidates import ABOVE, NO_WORK, NOT_CLASSIFIED, candidates
from aaco.core.config import Config, KernelClass, Optimize
from aaco.core.errors import UsageError
from aaco.report.sections import kernel_candidates as shown


def on_path(name="k", fraction=0.5, headroom=0.6):
    return {"kernel_name": name, "path": 0, "calls": 3, "path_ns": 300, "fraction": fraction, "headroom": headroom}


def classified(name="k", label="memory_latency", by="counters", **shares):
    return {"kernel_name": name, "class": label, "by": by, **shares}


def judge(row=None, facts=None, gates=None, **not_placed):
    (one,) = candidates([row or on_path()], [facts] if facts else [], not_placed, gates or Optimize())
    return one


def test_a_kernel_that_passes_every_gate():
    """Mutation: the ceiling of a kernel that takes no time at all."""
    one = judge(facts=classified())
    assert not one.refused
    assert one.priority == pytest.approx(0.3)
    assert one.speedup_at_most == pytest.approx(1 / (0.5 + 0.5 * 0.4))


@pytest.mark.parametrize(("row", "label", "gates"), [
    (on_path(headroom=0.09, fraction=0.9), "memory_latency", ["headroom"]),
    (on_path(headroom=0.9, fraction=0.19), "memory_latency", ["path_share"]),
    (on_path(headroom=0.2, fraction=0.21), "memory_latency", ["priority"]),
    (on_path(), "compute_throughput", ["class"]),
    (on_path(headroom=0.01, fraction=0.01), "tiny", ["headroom", "path_share", "priority", "class"])])
def test_each_gate_refuses_by_its_name(row, label, gates):
    """Mutation: a gate left out."""
    assert list(judge(row, classified(label=label)).refused) == gates


def test_what_is_not_known_passes_no_gate():
    """And has no priority and no ceiling. Mutations: 0 or 1 for an unknown headroom; an unknown class accepted."""
    one = judge(on_path(headroom=None))
    assert one.refused == {"headroom": NO_WORK, "class": NOT_CLASSIFIED}
    assert (one.priority, one.speedup_at_most, one.headroom_by) == (None, None, None)
    assert judge(on_path(headroom=None), k="the peak is not known").refused["headroom"] == "the peak is not known"


def test_shapes_tell_the_headroom_that_counters_do_not():
    """Of the nearer roof; counters come first. Mutations: of the farther roof; a share by name taken for one by
    shapes."""
    shapes = classified(by="shapes", compute_share=0.3, memory_share=0.2)
    one = judge(on_path(headroom=None), shapes)
    assert (one.headroom, one.headroom_by) == (pytest.approx(0.7), "shapes")
    assert judge(on_path(), shapes).headroom_by == "counters"
    assert judge(on_path(headroom=None), classified(compute_share=0.3)).headroom is None


def test_a_kernel_above_its_roof_has_no_headroom():
    one = judge(on_path(headroom=None), classified(by="shapes", memory_share=1.2))
    assert (one.headroom, one.refused["headroom"]) == (None, ABOVE)


def test_settings_move_the_gates():
    gates = Config.from_dict({"optimize": {"min_headroom": 0.7, "classes": ["compute_throughput"]}}).optimize
    assert list(judge(facts=classified(), gates=gates).refused) == ["headroom", "class"]
    assert not judge(on_path(headroom=0.8), classified(label="compute_throughput"), gates).refused


@pytest.mark.parametrize("section", [{"min_headroom": 1.5}, {"min_priority": float("nan")}, {"classes": ["fast"]}])
def test_settings_that_are_no_gates_are_refused(section):
    with pytest.raises(UsageError, match="optimize"):
        Config.from_dict({"optimize": section})


def test_the_classes_are_those_of_the_analysis():
    assert get_args(KernelClass) == CLASSES


def test_those_worth_the_effort_come_first_then_the_larger_priority():
    """Mutation: in the order of the path."""
    rows = [on_path("refused", 0.9, 0.9), on_path("small", 0.3), on_path("large", 0.5), on_path("unknown", 0.99, None)]
    found = candidates(rows, [classified(row["kernel_name"]) for row in rows[1:]], {}, Optimize())
    assert [one.kernel_name for one in found] == ["large", "small", "refused", "unknown"]


def test_a_narrow_terminal_holds_every_line():
    rows = [on_path("a_kernel_with_a_long_name_" * 4, 0.19, 0.05), on_path("other", 0.5, None)]
    found = candidates(rows, [classified(row["kernel_name"], "compute_throughput") for row in rows], {}, Optimize())
    assert max(map(len, shown.lines(found, 10, 80))) <= 80
