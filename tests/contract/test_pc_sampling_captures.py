"""profiler.pc_sampling against csv and a Counter, over every recorded file."""

import csv
from collections import Counter

import pytest

from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprofv3 import pc_sampling
from tests.parsed import gather, rows

pytestmark = pytest.mark.captures


@pytest.mark.parametrize(("name", "samples"), [
    ("pc_sampling_host_trap", 79), ("pc_sampling_host_trap_debug", 21), ("pc_sampling_stochastic_debug", 97)])
def test_every_sample_by_instruction_and_reason(captures, name, samples):
    path = captures / f"rocprofv3-csv/rocm_systems_docs/{name}.csv"
    assert registry.recognise(path) is pc_sampling
    tables, facts = gather(pc_sampling.parse(path))
    with path.open(newline="") as file:
        raw = list(csv.DictReader(file))
    expected = Counter((int(row["Dispatch_Id"]), row["Instruction"], row["Instruction_Comment"] or None, reason(row))
                       for row in raw)
    found = rows(tables["wave_instructions"], "dispatch_id", "instruction", "source_line", "stall_reason", "samples")
    assert {row[:4]: row[4] for row in found} == expected and len(found) == len(expected)
    assert facts.records == {"sample": samples} and not facts.left_out and len(raw) == samples
    if "Wave_Count" in raw[0]:
        waves = tables["wave_instructions"]["active_waves"].to_pylist()
        assert sum(waves) == sum(int(row["Wave_Count"]) for row in raw)


def reason(row):
    if row.get("Wave_Issued_Instruction") != "0":
        return None
    return row["Stall_Reason"].split("_REASON_")[1].lower()
