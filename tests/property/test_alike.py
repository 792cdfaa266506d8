"""analytics.bottleneck.alike against counting every launch by hand."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.bottleneck.alike import COLUMNS, Alike
from aaco.core.tables import KERNELS

AXIS = st.sampled_from([None, 0, 1, 64, 2**40])
ROWS = st.fixed_dictionaries({
    "kernel_name": st.sampled_from(["a", "b", None]), "family": st.sampled_from(["gemm", None]),
    "device_id": st.sampled_from([0, 1, None]), "dur_ns": st.sampled_from([0, 3, 7, None]), "grid_x": AXIS,
    "grid_y": AXIS, "grid_z": AXIS, "occupancy_pct": st.sampled_from([None, 0.0, 12.5, 100.0])})


def table(rows):
    return KERNELS.build(kernel_id=list(range(len(rows))), **{name: [row[name] for row in rows] for name in COLUMNS})


def items(row):
    if row["grid_x"] is None:
        return None
    return float(row["grid_x"]) * max(row["grid_y"] or 1, 1) * max(row["grid_z"] or 1, 1)


def middle(values):
    known = sorted(value for value in values if value is not None)
    return known[(len(known) - 1) // 2] if known else None


@given(st.lists(ROWS, max_size=12), st.integers(0, 12))
def test_names_as_counted_by_hand(rows, cut):
    alike = Alike()
    for part in (rows[:cut], rows[cut:]):
        found = alike.feed(table(part))
        assert [alike.names.known[one] if one >= 0 else None for one in found] == [row["kernel_name"] for row in part]
    by_name, total = defaultdict(list), 0
    for row in rows:
        if row["device_id"] is not None and row["dur_ns"] is not None:
            total += row["dur_ns"]
            if row["kernel_name"]:
                by_name[row["kernel_name"]].append(row)
    wanted = [{"kernel_name": name, "family": "gemm" if any(row["family"] for row in mine) else None,
               "calls": len(mine), "total_ns": sum(row["dur_ns"] for row in mine), "median_ns": 1.0,
               "occupancy_pct": middle(row["occupancy_pct"] for row in mine), "items": middle(map(items, mine))}
              for name, mine in by_name.items()]
    wanted.sort(key=lambda row: (-row["total_ns"], row["kernel_name"]))
    assert alike.rows({"a": 1.0, "b": 1.0}) == wanted
    assert alike.total_ns == total
