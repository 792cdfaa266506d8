"""profiler.pc_sampling against a plain count of the rows."""

import csv
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats.rocprofv3 import pc_sampling, sampling
from aaco.profiler.formats.rocprofv3.sampling import REASONS
from tests.parsed import gather, rows

HOST_TRAP = ("Sample_Timestamp", "Exec_Mask", "Dispatch_Id", "Instruction", "Instruction_Comment", "Correlation_Id")
STOCHASTIC = (*HOST_TRAP, "Wave_Issued_Instruction", "Instruction_Type", "Stall_Reason", "Wave_Count")
KEYS = ("dispatch_id", "correlation_id", "instruction", "source_line", "issued", "issue_type", "stall_reason")
FULL = 18446744073709551615


def write(path, header, samples):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(header)
        writer.writerows(samples)
    return path


def sample(dispatch, text, line, issued=None, kind="VALU", reason="WAITCNT", waves=4):
    first = (390705261841337, FULL, dispatch, text, line, dispatch + 100)
    return first if issued is None else (*first, issued, f"ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_{kind}",
                                         f"ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_{reason}", waves)


def test_stochastic(tmp_path):
    """Mutation: keep the reason beside an instruction that issued; it then splits one finding in two."""
    path = write(tmp_path / "s.csv", STOCHASTIC, [
        sample(1, "v_add_f32 v0, v1, v2", "k.hip:3", 1, "VALU", "OTHER_WAIT"),
        sample(1, "v_add_f32 v0, v1, v2", "k.hip:3", 1, "VALU", "NONE", 6),
        sample(1, "v_add_f32 v0, v1, v2", "k.hip:3", 0, "NO_INST", "ALU_DEPENDENCY"),
        sample(2, "v_add_f32 v0, v1, v2", "k.hip:3", 0, "NO_INST", "ALU_DEPENDENCY")])
    assert pc_sampling.recognises(path)
    tables, facts = gather(pc_sampling.parse(path))
    found = tables["wave_instructions"]
    assert rows(found, *KEYS, "samples", "active_waves") == [
        (1, 101, "v_add_f32 v0, v1, v2", "k.hip:3", True, "valu", None, 2, 10),
        (1, 101, "v_add_f32 v0, v1, v2", "k.hip:3", False, None, "alu_dependency", 1, 4),
        (2, 102, "v_add_f32 v0, v1, v2", "k.hip:3", False, None, "alu_dependency", 1, 4)]
    assert set(found["category"].to_pylist()) == {"valu"}
    assert facts.records == {"sample": 4} and facts.metadata == {"mode": "stochastic"} and not facts.problems


def test_host_trap_knows_no_reason(tmp_path):
    path = write(tmp_path / "s.csv", HOST_TRAP, [sample(1, "s_endpgm", ""), sample(1, "s_endpgm", "")])
    tables, facts = gather(pc_sampling.parse(path))
    assert rows(tables["wave_instructions"], *KEYS, "samples", "active_waves") == [
        (1, 101, "s_endpgm", None, None, None, None, 2, None)]
    assert facts.metadata == {"mode": "host_trap"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["s_nop 0", "v_mov_b32 v0, 1", 'odd "text", here']),
                          st.sampled_from(["", "a.hip:1"]), st.integers(0, 1), st.sampled_from(REASONS),
                          st.integers(0, 9)), max_size=60), st.integers(1, 40))
def test_any_samples_add_up(tmp_path, samples, merge_at):
    """Mutation: take the first of a group's waves instead of their sum."""
    path = write(tmp_path / "s.csv", STOCHASTIC, [
        sample(dispatch, text, line, issued, "VALU" if issued else "NO_INST", reason.upper(), waves)
        for dispatch, text, line, issued, reason, waves in samples])
    expected, waves_of = Counter(), Counter()
    for dispatch, text, line, issued, reason, waves in samples:
        key = (dispatch, dispatch + 100, text, line or None, bool(issued), "valu" if issued else None,
               None if issued else reason)
        expected[key] += 1
        waves_of[key] += waves
    before = sampling.MERGE_AT, pc_sampling.csvstream.BLOCK_BYTES
    sampling.MERGE_AT, pc_sampling.csvstream.BLOCK_BYTES = merge_at, 500
    try:
        tables, facts = gather(pc_sampling.parse(path))
    finally:
        sampling.MERGE_AT, pc_sampling.csvstream.BLOCK_BYTES = before
    found = tables.get("wave_instructions")
    got = [(row[:7], row[7], row[8]) for row in rows(found, *KEYS, "samples", "active_waves")] if found else []
    assert {key: count for key, count, _ in got} == expected and len(got) == len(expected)
    assert {key: waves for key, _, waves in got if waves} == +waves_of
    assert facts.records == {"sample": len(samples)}


def test_more_groups_than_memory_is_meant_to_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "MOST_GROUPS", 10)
    monkeypatch.setattr(sampling, "MERGE_AT", 5)
    monkeypatch.setattr(pc_sampling.csvstream, "BLOCK_BYTES", 1000)
    path = write(tmp_path / "s.csv", HOST_TRAP, [sample(each % 50, "s_nop 0", "") for each in range(500)])
    found = gather(pc_sampling.parse(path))[0]["wave_instructions"]
    total = Counter()
    for dispatch, count in rows(found, "dispatch_id", "samples"):
        total[dispatch] += count
    assert found.num_rows > 50 and set(total.values()) == {10}


def test_broken_rows_are_counted(tmp_path):
    path = write(tmp_path / "s.csv", HOST_TRAP, [sample(1, "s_nop 0", "")])
    path.write_text(path.read_text() + "1,2,3\n")
    _, facts = gather(pc_sampling.parse(path))
    assert facts.records == {"sample": 2} and list(facts.left_out.values()) == [Subtotal(1, 0)]


def test_another_csv_is_a_bad_capture(tmp_path):
    path = write(tmp_path / "s.csv", ("a", "b"), [(1, 2)])
    assert not pc_sampling.recognises(path)
    with pytest.raises(BadCapture, match=r"s\.csv: not PC samples"):
        list(pc_sampling.parse(path))
