"""The summary of a serving engine's steps: groups by phase and batch, and where the time of each goes."""

import pyarrow as pa
import pytest

from aaco.analytics.serving.summary import IDLE, IDLE_BEFORE, summary
from aaco.core.tables import SERVING_KERNELS, SERVING_STEPS
from aaco.report.sections.findings import serving


def steps(*rows):
    base = {"source": "annotation", "engine": "vllm", "phase": "decode", "batch": 8, "t_start_ns": 0, "t_end_ns": 1000,
            "kernels": 2, "kernel_ns": 600, "busy_ns": 500, "graph_launches": 1, "graph_launch_ns": 30, "wait_ns": 10,
            "speculative": 0}
    rows = [base | row for row in rows]
    columns = {name: [row.get(name) for row in rows] for row in rows for name in row}
    return SERVING_STEPS.build(step=list(range(len(rows))), **columns)


def summed(table, limits, bytes_per_s=None):
    return summary(table, SERVING_KERNELS.build(), {}, None, bytes_per_s, limits)


def test_the_budget_sums_to_the_time_from_step_to_step():
    """Kernels that overlap share the time with work. Mutation: durations summed as they are."""
    table = steps({"device_start_ns": 2000, "device_end_ns": 2700},
                  {"device_start_ns": 3000, "device_end_ns": 3600, "idle_before_ns": 300})
    group, = summed(table, {0: {"memory_bandwidth": 450, "tiny": 150}, 1: {"memory_bandwidth": 600}}).groups
    assert group.budget == {"memory_bandwidth": 375.0 + 500.0, "tiny": 125.0, IDLE: 200.0 + 100.0, IDLE_BEFORE: 300.0}
    assert sum(group.budget.values()) == 3600 - 2000


def test_steps_are_grouped_by_phase_and_batch_and_medians_leave_out_what_is_not_known():
    table = steps({"scheduled_tokens": 8}, {"scheduled_tokens": 10}, {"phase": "prefill", "batch": 1},
                  {"batch": 16, "scheduled_tokens": None})
    found = summed(table, {})
    assert [(group.phase, group.batch, group.steps, group.tokens) for group in found.groups] == [
        ("decode", 8, 2, 9.0), ("prefill", 1, 1, None), ("decode", 16, 1, None)]
    assert found.steps == 4 and found.traced_ns is None


def test_a_step_that_is_left_out_is_counted_and_in_no_median_unless_all_are():
    """Mutation: all steps of a group."""
    whole = {"device_start_ns": 0, "device_end_ns": 900}
    cut = {"device_start_ns": 0, "device_end_ns": 100, "left_out": "cut"}
    group, = summed(steps(whole, cut, cut), {}).groups
    assert (group.steps, group.left_out, group.why_left_out, group.device_ns) == (3, 2, "cut", 900.0)
    assert "3 steps (2 left out: cut)" in serving.text(group)
    alone, = summed(steps(cut), {}).groups
    assert (alone.steps, alone.left_out, alone.device_ns) == (1, 1, 100.0)


def test_the_least_time_is_what_the_memory_needs():
    table = steps({"moved_bytes": 20_000_000, "weight_bytes": 15_000_000, "kv_bytes": 5_000_000})
    assert summed(table, {}, 5e12).groups[0].least_ns == pytest.approx(4000)
    assert summed(table, {}).groups[0].least_ns is None


def test_the_share_that_is_explained_is_of_all_kernels():
    operators = pa.table({"operator": ["aten::mm", None], "shapes": [None, None], "device_ns": [30, 70]})
    found = summary(steps({}), SERVING_KERNELS.build(), {}, operators, None, {})
    assert (found.traced_ns, found.with_operator_ns, found.with_shapes_ns) == (100, 30, 0)


def test_steps_that_check_tokens_give_no_time_per_token():
    """How many tokens were accepted is not recorded. Mutation: `speculative` is left out of the document."""
    of_both = [list(serving.rows(summed(steps({"speculative": is_so}), {}))) for is_so in (1, 0)]
    texts = [[row.text for row in rows if row.label == "Speculative"] for rows in of_both]
    assert texts == [[serving.SPECULATIVE], []] and "no time per token" in serving.SPECULATIVE
