"""The operators table priced and summed; what `aaco ops` and the report say of it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from msgspec.structs import replace

from aaco.analytics.costs.operator_work import document, summed
from aaco.analytics.costs.torch.priced import NO_OPERATOR, NOTHING, TOO_MUCH, priced
from aaco.analytics.metrics import operators as metrics
from aaco.core.readings import Absent
from aaco.core.tables import OPERATORS
from aaco.report.sections.operators import lines

BF16 = '["c10::BFloat16","c10::BFloat16"]'


def table(*rows):
    """Rows of (operator, shapes, dtypes, calls, kernels, device_ns)."""
    columns = list(zip(*rows, strict=True))
    names = ("operator", "shapes", "dtypes", "calls", "kernels", "device_ns")
    return OPERATORS.build(operator_id=range(len(rows)), **dict(zip(names, columns, strict=True)),
                           inputs=['["",""]'] * len(rows), module=["Net/Linear"] * len(rows))


@pytest.fixture
def operators():
    return priced(table(("aten::mm", "[[64,32],[32,16]]", BF16, 3, 3, 1000),
                        ("aten::mm", "[[64,32],[32,16]]", BF16, 1, 0, 0),
                        ("aten::frobnicate", "[[4],[4]]", BF16, 1, 1, 500),
                        ("aten::mul", "[[8],[8]]", '["float","longint"]', 2, 2, 100),
                        (None, None, None, None, 4, 400)))


def test_a_row_costs_its_calls_times_one(operators):
    """Mutation: forgetting the calls."""
    assert operators["flops"].to_pylist() == [3 * 2 * 64 * 32 * 16, None, None, 16, None]
    assert operators["bytes"].to_pylist()[0] == 3 * 2 * (64 * 32 + 32 * 16 + 64 * 16)
    assert operators["bytes"].to_pylist()[3] == 2 * 8 * (4 + 8 + 4)


def test_a_row_without_a_cost_says_why(operators):
    """An operator that launched nothing itself has its work in the one inside it. Mutation: pricing it too."""
    why = operators["why_no_cost"].to_pylist()
    assert why == [None, NOTHING, "what aten::frobnicate costs is not modelled", None, NO_OPERATOR]


def test_hostile_rows_have_no_cost():
    huge = f"[[{2**26},{2**26}],[{2**26},{2**26}]]"
    rows = [("aten::mm", huge, BF16, 2**40, 1, 1), ("aten::mm", "[" * 10_000, BF16, 1, 1, 1),
            ("aten::mm", "{}", "3", 1, 1, 1), ("aten::mm", '[[1,2],"x"]', BF16, 1, 1, 1)]
    found = priced(table(*rows))
    assert found["flops"].null_count == 4 and found["why_no_cost"][0].as_py() == TOO_MUCH


def test_groups_sum_what_they_have_in_common(operators):
    """Work per second is over the time of the rows whose work is known. Mutation: over all time of the group."""
    by_module, = summed(operators, "module")
    assert (by_module.device_ns, by_module.known_ns, by_module.kernels) == (2000, 1100, 10)
    flops = 3 * 2 * 64 * 32 * 16 + 16
    assert by_module.flops == flops and by_module.flops_per_s == pytest.approx(flops / 1100e-9)
    calls = summed(operators, "call")
    assert [group.names[0] for group in calls] == ["aten::mm", "aten::frobnicate", None, "aten::mul"]
    assert calls[0].share == 0.5 and calls[0].calls == 4 and sum(group.share for group in calls) == 1
    assert calls[1].flops_per_s is None and "not modelled" in calls[1].why


def test_the_document_has_null_for_what_is_not_known(operators):
    found = document(summed(operators), "call", 2)
    assert found["others"] == 2 and found["rows"][1]["flops"] is None and found["rows"][1]["flops_per_s"] is None
    assert found["rows"][0]["shapes"] == "[[64,32],[32,16]]"
    json.dumps(found, allow_nan=False)


def test_the_table_for_a_terminal(operators):
    shown = "\n".join(lines(summed(operators), "call", 10))
    assert "aten::mm [64,32] [32,16]   " in shown and shown.count("[64,32]") == 1 and "not modelled" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_reason_of_all_rows_stands_once_below_them(operators):
    """A trace without shapes said so in every row. Mutation: the reason in each row."""
    unknown = [replace(group, known_ns=0, why="the capture has no shapes") for group in summed(operators)]
    shown = list(lines(unknown, "operator", 10))
    assert [line for line in shown if "known" in line] == ["work not known of any: the capture has no shapes"]


def test_the_metrics(operators):
    assert metrics.modelled_time_pct(operators) == pytest.approx(100 * 1100 / 2000)
    assert metrics.operator_flops_per_s(operators) == pytest.approx((3 * 2 * 64 * 32 * 16 + 16) / 1100e-9)
    assert metrics.operator_intensity(operators) == pytest.approx(
        (3 * 2 * 64 * 32 * 16 + 16) / (3 * 2 * 3584 + 2 * 8 * 16))
    with pytest.raises(Absent, match="not modelled"):
        metrics.modelled_time_pct(operators.slice(2, 1))


def test_why_no_work_is_known_is_told_of_the_time_and_not_of_the_number():
    """Mutation: the most frequent reason is that of the operators that only call others, with no time at all."""
    table = pa.table({"flops": pa.nulls(4, pa.int64()), "bytes": pa.nulls(4, pa.int64()), "device_ns": [0, 0, 0, 900],
                      "why_no_cost": ["it launched nothing itself"] * 3 + ["the capture has no shapes"]})
    with pytest.raises(Absent, match="most of the time is: the capture has no shapes"):
        metrics.operator_flops_per_s(table)
