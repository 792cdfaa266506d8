"""Real traces of two ranks: what is said of their collectives, held against what the device's own events said."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

RECORDED = Path(__file__).parents[1] / "captures/torch_ranks_h100"
STEPS, BYTES = 12, 64 << 20


@pytest.fixture
def collectives(aaco):
    def imported(case):
        aaco.inside("import", *(RECORDED / f"{case}_rank{rank}.json.gz" for rank in range(2)), "--as", case, "--quiet")
        return json.loads((aaco.latest / "metrics/collectives.json").read_text())
    return imported


def truth(case):
    """All-reduce of steps 1 to 11 in ns by device events: of each rank, the median."""
    read = (json.loads((RECORDED / f"truth_rank{rank}.json").read_text()) for rank in range(2))
    return [median(one["all_reduce_ms"][case][1:]) * 1e6 for one in read]


@pytest.mark.parametrize("case", ["even", "late"])
def test_latency_and_bandwidth_are_those_of_the_faster_rank(collectives, case):
    """Mutations: latency from the first rank's start instead of the last's; bus bandwidth without 2 (n - 1) / n."""
    (found,) = collectives(case)["operations"]
    assert (found["operation"], found["count"], found["group_size"], found["bytes"]) == ("allreduce", STEPS, 2, BYTES)
    assert found["latency_p50_ns"] == pytest.approx(min(truth(case)), rel=0.05)
    assert found["bus_bytes_per_s"] == pytest.approx(BYTES / min(truth(case)) * 1e9, rel=0.05)


def test_the_straggler_is_the_rank_that_was_made_late(aaco, collectives):
    """By as much as its device spun, which the spin's own kernel tells. Mutation: straggler = the first to start."""
    found = collectives("late")
    assert [one["last"] for one in found["participants"]] == [0, STEPS]
    spun = json.loads(aaco.inside("sql", "select median(dur_ns) from kernels where kernel_name like '%spin%'",
                                  "--format", "json").stdout)["rows"][0][0]
    assert found["operations"][0]["start_skew_p50_ns"] == pytest.approx(spun, rel=0.02)
    waited = truth("late")[0] - truth("late")[1]
    assert found["operations"][0]["start_skew_p50_ns"] == pytest.approx(waited, rel=0.02)


@pytest.mark.parametrize("case", ["even", "late", "overlap"])
def test_nothing_speaks_against_real_traces(aaco, collectives, case):
    """An all-reduce that waits a second for its peer is no error of units. Mutation: see test_truth."""
    collectives(case)
    check = json.loads(aaco.inside("check", "--json").stdout)
    assert all(one["trusted"] for one in check["captures"])


def test_communication_beside_compute_is_not_exposed(aaco, collectives):
    """Mutation: communication counted whole, whether or not kernels run beside it."""
    def exposed(case):
        collectives(case)
        devices = json.loads((aaco.latest / "metrics/timeline.json").read_text())["devices"]
        return [one["exposed_communication_ns"] / one["communication_ns"] for one in devices]
    assert min(exposed("late")) > 0.95
    assert max(exposed("overlap")) < 0.25
