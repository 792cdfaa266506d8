"""profiler.att against the files themselves, read by json and added up in plain integers."""

import csv
import json
from collections import Counter

import pytest

from aaco.profiler.formats import registry
from aaco.profiler.formats.att import att, att_stats
from aaco.profiler.formats.code_object import isa
from tests.parsed import gather, rows

FOLDERS = (
    "att/gfx950_aiter_mxfp4_BM32-BN128_orig/ui_output_agent_34975_dispatch_20",
    "att/gfx942_aiter_mla_legacy_rocprofv2/att/flash_fwd_splitkv_mla_kernel_v1_ui",
    "att/gfx942_aiter_mla_legacy_rocprofv2/att/vectorized_elementwise_kernel_v0_ui",
    "pcsampling_viewer",
)
pytestmark = pytest.mark.captures
STATES = ("empty", "idle", "exec", "wait", "stall")


@pytest.fixture(scope="module", params=FOLDERS)
def capture(request, captures):
    folder = captures / request.param
    assert registry.recognise(folder / "code.json") is att
    return folder, *gather(att.parse(folder / "code.json"))


def load(path):
    return json.loads(path.read_text())


def listed(folder):
    """Place and file of every wave that the index lists."""
    return [(int(engine), int(simd), int(slot), int(wave), *entry)
            for engine, simds in (load(folder / "filenames.json")["wave_filenames"] or {}).items()
            for simd, slots in simds.items() for slot, waves in slots.items() for wave, entry in waves.items()]


def test_every_instruction_with_its_counts(capture):
    folder, tables, facts = capture
    old = facts.tool == "rocprofv2"
    code = [(at, row) for at, row in enumerate(load(folder / "code.json")["code"]) if not row[0].startswith(";")]
    found = tables["wave_instructions"]
    assert facts.records["instruction"] == len(code)
    if folder.name == "pcsampling_viewer":
        return
    assert rows(found, "instruction", "source_line", "hits", "latency_cycles") == [
        (row[0], row[3] or None, row[6], row[7]) for _, row in code]
    assert found["instruction_id"].to_pylist() == [at if old else row[2] for at, row in code]
    assert found["vaddr"].to_pylist() == [None if old else row[5] for _, row in code]


def test_the_summary_says_the_same_as_the_listing(captures):
    folder = captures / FOLDERS[0]
    listing = gather(att.parse(folder / "code.json"))[0]["wave_instructions"]
    tables, facts = gather(att_stats.parse(folder / "att_output.csv"))
    columns = ("code_object", "vaddr", "instruction", "category", "kernel_name", "source_line", "hits",
               "latency_cycles")
    assert sorted(rows(tables["wave_instructions"], *columns), key=str) == sorted(rows(listing, *columns), key=str)
    assert facts.records == {"instruction": 961, "label": 1}
    assert not att_stats.recognises(folder / "att_output.csv")


def test_a_summary_alone(captures):
    path = captures / "att/gfx942_aiter_mla_legacy_rocprofv2/att_output_flash_fwd_splitkv_mla_kernel_v1.csv"
    tables, facts = gather(att_stats.parse(path))
    with path.open(newline="") as file:
        raw = [row for row in csv.DictReader(file) if not row["Instruction"].startswith(";")]
    assert rows(tables["wave_instructions"], "vaddr", "instruction", "hits", "latency_cycles") == [
        (int(row["Addr"], 16), row["Instruction"], int(row["Hitcount"]), int(row["Cycles"])) for row in raw]
    assert facts.records == {"instruction": len(raw), "label": 2} and facts.problems == ()
    listing = gather(att.parse(captures / FOLDERS[1] / "code.json"))[0]["wave_instructions"]
    same = ("instruction", "hits", "latency_cycles")
    assert rows(listing, *same) == rows(tables["wave_instructions"], *same)


def test_every_sample_by_reason(capture):
    folder, tables, facts = capture
    if folder.name != "pcsampling_viewer":
        assert "sample" not in facts.records
        return
    code = [row for row in load(folder / "code.json")["code"] if not row[0].startswith(";")]
    found = tables["wave_instructions"]
    issuing = {row[2]: row[10] for row in code if row[10]}
    assert {at: count for at, issued, count in rows(found, "instruction_id", "issued", "samples") if issued} == issuing
    stalled = Counter()
    for at, issued, reason, count in rows(found, "instruction_id", "issued", "stall_reason", "samples"):
        if issued is False:
            stalled[at, reason] += count
    names = ("none", "no_instruction_available", "alu_dependency", "waitcnt", "internal_instruction", "barrier_wait",
             "arbiter_not_win", "arbiter_win_ex_stall", "other_wait", "sleep_wait")
    assert stalled == {(row[2], names[index]): count for row in code for index, count in enumerate(row[12]) if count}
    assert facts.records["sample"] == sum(row[10] + row[11] for row in code) == 4690
    assert set(found["instruction_id"].to_pylist()) == {row[2] for row in code}


def test_every_wave_and_everything_it_did(capture):
    folder, tables, facts = capture
    places = listed(folder)
    assert rows(tables["waves"], "shader_engine", "simd", "slot", "wave", "begin_cycle", "end_cycle") == [
        (*place[:4], *place[5:]) for place in places]
    trace, states, waits = [], [], []
    for wave_id, place in enumerate(places):
        if not (folder / place[4]).is_file():
            continue
        wave = load(folder / place[4])["wave"]
        trace += [(wave_id, cycle, at, latency) for cycle, _, _, latency, at in wave["instructions"]]
        states += [(wave_id, STATES[state], cycles) for state, cycles in wave["timeline"]]
        waits += [(wave_id, number, at, source) for number, (at, links) in enumerate(wave["waitcnt"])
                  for source in [link[0] for link in links] or [None]]
    if trace:
        assert rows(tables["wave_trace"], "wave_id", "cycle", "instruction_id", "latency_cycles") == trace
        assert rows(tables["wave_states"], "wave_id", "state", "cycles") == states
        assert rows(tables["wave_waits"], "wave_id", "wait", "instruction_id", "waited_for") == waits
    for kind, read in (("executed instruction", trace), ("wave state", states), ("wait", waits)):
        assert facts.records.get(kind, 0) == len(read)


def test_every_occupancy_event_and_every_slot_alternates(capture):
    """The second half is what shows that the packed numbers are read right: no slot begins twice or ends twice."""
    folder, tables, facts = capture
    if "occupancy" not in tables:
        assert not (folder / "occupancy.json").exists()
        return
    document = load(folder / "occupancy.json")
    found = rows(tables["occupancy"], "shader_engine", "cycle", "cu", "simd", "slot", "begins", "kernel_name")
    packed = [(engine, number) for engine in document if engine.isdigit() for number in document[engine]]
    assert [(engine, cycle // 8, begins, kernel) for engine, cycle, _, _, _, begins, kernel in found] == [
        (int(engine), number >> 23, bool(number >> 18 & 1), document["dispatches"][str(number & 0xFFF)])
        for engine, number in packed]
    assert facts.records["occupancy event"] == len(packed)
    last = {}
    for engine, _, cu, simd, slot, begins, _ in found:
        assert last.get((engine, cu, simd, slot)) is not begins
        last[engine, cu, simd, slot] = begins


def test_every_traced_wave_is_in_the_occupancy(capture):
    """To 8 cycles, which is what the packed form keeps."""
    folder, tables, _ = capture
    events = {}
    for *slot, cycle in rows(tables["occupancy"], "shader_engine", "simd", "slot", "begins", "cycle") if listed(
            folder) else ():
        events.setdefault(tuple(slot), []).append(cycle)
    for engine, simd, slot, _, _, begin, end in listed(folder):
        for at, begins in ((begin, True), (end, False)):
            assert any(abs(cycle - at) <= 8 for cycle in events[engine, simd, slot, begins])


def test_every_count_of_states(capture):
    folder, tables, _ = capture
    files = sorted(folder.glob("wstates*.json"))
    expected = [(STATES[int(file.stem[7:])], *pair) for file in files
                for pair in zip(load(file)["time"], load(file)["state"], strict=True)]
    assert rows(tables["wave_state_counts"], "state", "cycle", "waves") == expected if files else not expected


def test_the_decoder_classes_instructions_as_we_do(capture):
    """Where the trace's own class says anything about the kind of work. FLAT covers global_, which is vmem here."""
    _, tables, facts = capture
    if "wave_trace" not in tables:
        return
    agree = {"smem": {"smem"}, "salu": {"salu"}, "vmem": {"vmem"}, "flat": {"flat", "vmem"}, "lds": {"lds"},
             "valu": {"valu", "mfma"}, "jump": {"branch"}, "next": {"branch"}, "immed": {"waitcnt", "barrier", "other"},
             "message": {"other", "message"}, "getpc": {"salu"}}
    text = dict(rows(tables["wave_instructions"], "instruction_id", "instruction"))
    pairs = set(rows(tables["wave_trace"], "kind", "instruction_id"))
    assert len(pairs) > 15
    assert [(kind, text[at]) for kind, at in pairs if isa.category(text[at]) not in agree[kind]] == []
    assert facts.tool in ("rocprofv2", "rocprofv3")


def test_what_is_missing_is_said(capture):
    folder, _, facts = capture
    places = listed(folder)
    missing = sum(not (folder / place[4]).is_file() for place in places)
    assert facts.problems == ((f"{missing} of {len(places)} waves are listed but their files are not there",)
                              if missing else ())
