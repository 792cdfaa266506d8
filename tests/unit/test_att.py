"""profiler.att on small captures of three generations whose every number is known."""

import contextlib
import json
import random
import shutil

import pytest

from aaco.core.errors import BadCapture
from aaco.core.tables import WAVE_INSTRUCTIONS
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.att import att
from tests.fakes import thread_trace
from tests.fakes.thread_trace import KERNEL, ROCM6, ROCM7, ROCPROFV2
from tests.parsed import gather, rows

GENERATIONS = (ROCPROFV2, ROCM6, ROCM7)
LISTED = [1, 2, 3, 4, 5, 6]


@pytest.fixture(params=GENERATIONS)
def generation(request):
    return request.param


def test_instructions(tmp_path, generation):
    """Mutation: read column 4 and 5 of rocprofv2 as code object and address; they are its own numbering."""
    tables, facts = gather(att.parse(thread_trace.write(tmp_path, generation)))
    found = tables["wave_instructions"]
    old = generation == ROCPROFV2
    assert found["instruction_id"].to_pylist() == LISTED
    assert found["instruction"].to_pylist() == list(thread_trace.INSTRUCTIONS)
    assert found["category"].to_pylist() == ["smem", "waitcnt", "vmem", "waitcnt", "valu", "other"]
    assert set(found["kernel_name"].to_pylist()) == {KERNEL}
    assert found["vaddr"].to_pylist() == ([None] * 6 if old else [64, 68, 72, 76, 80, 84])
    assert found["code_object"].to_pylist() == [None if old else 7] * 6
    assert found["hits"].to_pylist() == [3] * 6
    assert found["latency_cycles"].to_pylist() == [120] * 6
    assert found["stall_cycles"].to_pylist() == [12 if generation == ROCM7 else None] * 6
    assert found["idle_cycles"].to_pylist() == [24 if generation == ROCM7 else None] * 6
    assert found["source_line"][0].as_py() == "k.hip:1"
    assert found["samples"].null_count == 6
    assert facts.metadata["generation"] == generation


def test_waves(tmp_path, generation):
    tables, facts = gather(att.parse(thread_trace.write(tmp_path, generation)))
    assert rows(tables["waves"], "wave_id", "shader_engine", "cu", "simd", "slot", "wave", "begin_cycle", "end_cycle",
                "instructions") == [(wave, 2, 5, 1, 3, wave, 1000 * wave, 1000 * wave + 600, 6) for wave in range(3)]
    trace = tables["wave_trace"]
    assert rows(trace, "wave_id", "cycle", "instruction_id", "latency_cycles") == [
        (wave, 1000 * wave + 100 * index, index + 1, 40) for wave in range(3) for index in range(6)]
    assert trace["stall_cycles"].to_pylist() == [None if generation == ROCPROFV2 else 4] * 18
    last = "getpc" if generation == ROCPROFV2 else "message"
    assert trace["kind"].to_pylist() == ["smem", "immed", "flat", "immed", "valu", last] * 3
    assert facts.records["executed instruction"] == trace.num_rows == 18
    assert facts.problems == ()


def test_states_and_waits(tmp_path):
    """Mutation: number the waits by their links; the wait for nothing then disappears."""
    tables, facts = gather(att.parse(thread_trace.write(tmp_path, waves=2)))
    assert rows(tables["wave_states"], "wave_id", "begin_cycle", "state", "cycles") == [
        (wave, 1000 * wave + begin, state, cycles) for wave in range(2)
        for begin, state, cycles in ((0, "idle", 100), (100, "exec", 300), (400, "wait", 200))]
    assert rows(tables["wave_waits"], "wave_id", "wait", "instruction_id", "waited_for") == [
        (wave, *entry) for wave in range(2) for entry in ((0, 2, 1), (1, 4, 3), (2, 2, None))]
    assert facts.records["wait"] == 6 == tables["wave_waits"].num_rows


def test_a_wave_that_did_nothing_has_null_where_arrays_belong(tmp_path):
    """As the tool's JSON library writes an empty list."""
    listing = thread_trace.write(tmp_path, waves=1)
    wave = thread_trace.wave_file(0)
    wave["wave"] |= {"instructions": None, "timeline": None, "waitcnt": None}
    thread_trace.put(tmp_path / "se2_sm1_sl3_wv0.json", wave)
    tables, facts = gather(att.parse(listing))
    assert tables["waves"]["instructions"].to_pylist() == [0]
    assert facts.records["wait"] == facts.records["wave state"] == 0


def test_several_links_of_one_wait_stay_together(tmp_path):
    listing = thread_trace.write(tmp_path, waves=1)
    wave = thread_trace.wave_file(0)
    wave["wave"]["waitcnt"] = [[4, []], [2, [[1, 0], [3, 1]]], [4, [[3, 0]]]]
    thread_trace.put(tmp_path / "se2_sm1_sl3_wv0.json", wave)
    waits = gather(att.parse(listing))[0]["wave_waits"]
    assert rows(waits, "wait", "instruction_id", "waited_for") == [(0, 4, None), (1, 2, 1), (1, 2, 3), (2, 4, 3)]


def test_occupancy(tmp_path, generation):
    """Mutation: number rocprofv2's shader engines by their position in its list."""
    found = gather(att.parse(thread_trace.write(tmp_path, generation)))[0]["occupancy"]
    assert rows(found, "shader_engine", "cycle", "cu", "simd", "slot", "begins", "kernel_name") == [
        (2, 1000 * wave + 600 * (not begins), 5, 1, 3, begins, KERNEL) for wave in range(3) for begins in (True, False)]


def test_counts_of_states_and_clocks(tmp_path):
    tables, _ = gather(att.parse(thread_trace.write(tmp_path)))
    assert rows(tables["wave_state_counts"], "state", "cycle", "waves") == [("stall", 100, 1), ("stall", 200, 0)]
    assert rows(tables["shader_clocks"], "shader_engine", "cycle", "realtime_ticks", "realtime_hz") == [
        (2, 100, 5000, 100_000_000), (2, 300, 5100, 100_000_000)]


def test_any_file_of_the_folder_stands_for_the_capture(tmp_path):
    folder = tmp_path / "ui_output_agent_5_dispatch_7"
    listing = thread_trace.write(folder)
    (folder / "notes.json").write_text("{}")
    whole = att.members(listing)
    assert whole[0] == listing and len(whole) == 8
    for path in whole:
        assert (registry.recognise(path) is att) == (path == listing)
        assert att.members(path) == whole
    with pytest.raises(BadCapture, match="not a part"):
        list(att.parse(folder / "notes.json"))
    tables, facts = gather(att.parse(folder / "occupancy.json"))
    assert facts.metadata["dispatch_id"] == 7 and facts.metadata["agent_id"] == 5
    assert set(tables["wave_instructions"]["dispatch_id"].to_pylist()) == {7}


def test_waves_without_their_files(tmp_path):
    listing = thread_trace.write(tmp_path)
    (tmp_path / "se2_sm1_sl3_wv1.json").unlink()
    tables, facts = gather(att.parse(listing))
    assert tables["waves"]["instructions"].to_pylist() == [6, None, 6]
    assert tables["waves"]["cu"].to_pylist() == [5, None, 5]
    assert facts.problems == ("1 of 3 waves are listed but their files are not there",)


def test_wave_files_of_an_earlier_capture_are_left_out(tmp_path):
    """Found in a real folder: two waves of another kernel, whose instructions are not of this listing."""
    listing = thread_trace.write(tmp_path, waves=1)
    shutil.copy(tmp_path / "se2_sm1_sl3_wv0.json", tmp_path / "se0_sm0_sl0_wv0.json")
    tables, facts = gather(att.parse(listing))
    assert tables["waves"].num_rows == 1
    assert facts.left_out[att.UNLISTED] == Subtotal(1, 0) and facts.records["file"] == 1


def test_without_an_index_every_wave_file_counts(tmp_path):
    listing = thread_trace.write(tmp_path)
    (tmp_path / "filenames.json").unlink()
    tables, facts = gather(att.parse(listing))
    assert rows(tables["waves"], "shader_engine", "wave", "instructions") == [(2, 0, 6), (2, 1, 6), (2, 2, 6)]
    assert facts.problems == ()


def test_a_listing_that_counts_otherwise_than_the_waves_is_a_problem(tmp_path):
    """Mutation: compare sums only; here two instructions swap a count."""
    listing = thread_trace.write(tmp_path)
    document = thread_trace.listing(ROCM7, 3)
    document["code"][1][6], document["code"][2][6] = 2, 4
    thread_trace.put(listing, document)
    assert gather(att.parse(listing))[1].problems == ("the listing counts 18 executions, the waves 18",)


def test_a_wave_that_contradicts_the_index_is_a_problem(tmp_path):
    listing = thread_trace.write(tmp_path)
    wave = thread_trace.wave_file(1)
    wave["wave"]["end"] += 1
    thread_trace.put(tmp_path / "se2_sm1_sl3_wv1.json", wave)
    assert gather(att.parse(listing))[1].problems == (
        "se2_sm1_sl3_wv1.json: begins and ends otherwise than the capture's index says",)


def test_samples_of_the_program_counter(tmp_path):
    """One row per finding; an instruction that no sample met keeps its row. Mutation: give every reason the total."""
    label = ["; k", 0, 0, "", 1, 0, 0, 0, 0, 0, 0, 0, [0] * 10]
    code = [["v_add_f32 v0, v0, v1", 0, 1, "k.hip:9", 1, 4, 0, 0, 0, 0, 3, 5, [0, 1, 0, 4, 0, 0, 0, 0, 0, 0]],
            ["s_endpgm", 0, 2, "", 1, 8, 0, 0, 0, 0, 0, 0, [0] * 10]]
    thread_trace.put(tmp_path / "code.json", {"code": [label, *code], "header": [
        *thread_trace.HEADER, "PC_Issued", "PC_Stalled", "Stall_Reasons"], "version": "3.0.0"})
    thread_trace.put(tmp_path / "filenames.json", {"gfxv": "vega", "pc_sampling": True, "thread_trace": False,
                                                   "wave_filenames": None})
    tables, facts = gather(att.parse(tmp_path / "code.json"))
    found = tables["wave_instructions"]
    assert rows(found, "instruction_id", "issued", "stall_reason", "samples") == [
        (1, True, None, 3), (1, False, "no_instruction_available", 1), (1, False, "waitcnt", 4), (2, None, None, 0)]
    assert found["hits"].null_count == found["latency_cycles"].null_count == 4
    assert facts.problems == () and facts.records["sample"] == 8


def test_stall_reasons_that_do_not_sum_are_a_problem_and_lose_nothing(tmp_path):
    code = [["s_nop 0", 0, 1, None, 1, 4, 0, 0, 0, 0, 0, 5, [0, 1, 0, 2, 0, 0, 0, 0, 0, 0]]]
    thread_trace.put(tmp_path / "code.json", {"code": code, "header": [
        *thread_trace.HEADER, "PC_Issued", "PC_Stalled", "Stall_Reasons"]})
    tables, facts = gather(att.parse(tmp_path / "code.json"))
    assert tables["wave_instructions"]["samples"].to_pylist() == [1, 2, 2]  # nothing was traced: no row of hits
    assert facts.problems == ("the stall reasons of 1 instructions do not sum to their stalled samples",)


@pytest.mark.parametrize(("name", "content"), [
    ("code.json", '{"code":[["s_nop", 1]]}'), ("code.json", '{"code":[[1,2,3,4,5,6,7,8]]}'),
    ("code.json", '{"code":[["a",0,1,"",0,0,1,1]],"header":"ISA, Vaddr"}'),
    ("code.json", '{"code":[["a",0,1,"",0,99999999999999999999,1,1]],"version":"3"}'),
    ("filenames.json", '{"wave_filenames":{"0":{"0":{"0":{"0":["../../etc/passwd",0,1]}}}}}'),
    ("filenames.json", '{"wave_filenames":{"-1":{"0":{"0":{"0":["a.json",0,1]}}}}}'),
    ("filenames.json", '{"wave_filenames":[]}'), ("occupancy.json", '{"2":[[1,2]]}'), ("occupancy.json", '{"2":{}}'),
    ("occupancy.json", '{"2":[1,2.5]}'), ("wstates4.json", '{"time":[1,2],"state":[1]}'),
    ("realtime.json", '{"SE0":[[1]]}'), ("se2_sm1_sl3_wv0.json", '{"wave":{"begin":0}}'),
    ("se2_sm1_sl3_wv0.json", '{"wave":{"begin":0,"end":1,"instructions":[[1,2,3]]}}'),
    ("se2_sm1_sl3_wv0.json", '{"wave":{"begin":0,"end":1,"waitcnt":[[1,[[[2]]]]]}}'),
    ("se2_sm1_sl3_wv0.json", '{"wave":{"begin":0,"end":1,"timeline":[[1,"a"]]}}'),
    ("se2_sm1_sl3_wv0.json", "[" * 100_000), ("se2_sm1_sl3_wv0.json", ""),
])
def test_damage_in_any_file_names_the_file(tmp_path, name, content):
    listing = thread_trace.write(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(BadCapture, match=name.replace(".", r"\.")):
        list(att.parse(listing))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_damaged_byte_anywhere_parses_or_is_a_bad_capture(tmp_path, generation):
    whole = thread_trace.write(tmp_path / "whole", generation)
    for seed in range(100):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(whole.parent, folder)
        victim = chance.choice(sorted(folder.iterdir()))
        raw = bytearray(victim.read_bytes())
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        victim.write_bytes(raw if seed % 2 else raw[:chance.randrange(len(raw))])
        with contextlib.suppress(BadCapture):
            for piece in att.parse(folder / "code.json"):
                assert piece is not None


def test_a_file_of_any_size_is_refused_before_it_is_read(tmp_path):
    listing = thread_trace.write(tmp_path)
    with (tmp_path / "code.json").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadCapture, match="larger than 128 MiB"):
        list(att.parse(listing))


ODD = (10**400, -10**20, 2**63, 1e300, "9" * 5000, "x" * 300 + ".json", "\0", "a/" * 3000)


def places(document, path=()):
    """Where a document holds a value, and where a name."""
    parts = dict(enumerate(document)) if isinstance(document, list) else document if isinstance(document, dict) else {}
    for name, part in parts.items():
        yield (*path, name), isinstance(document, dict)
        yield from places(part, (*path, name))


def changed(document, path, as_name, odd):
    part = document = json.loads(json.dumps(document))
    for name in path[:-1]:
        part = part[name]
    if as_name:
        part[odd] = part.pop(path[-1])
    else:
        part[path[-1]] = odd
    return document


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{str(odd)[:9]!r}")
def test_long_names_and_huge_numbers_anywhere_are_read_or_name_the_file(tmp_path, odd):
    """Mutations: a name that no file system takes is looked for; the end of a wave of any size."""
    listing = thread_trace.write(tmp_path, waves=1)
    for file in sorted(tmp_path.glob("*.json")):
        whole = file.read_text()
        for path, is_named in places(json.loads(whole)):
            for as_name in {False, is_named and isinstance(odd, str)}:
                file.write_text(json.dumps(changed(json.loads(whole), path, as_name, odd)))
                try:
                    list(att.parse(listing))
                except BadCapture as error:
                    assert file.name in error.what and len(error.what) < 1000
        file.write_text(whole)


def test_names_may_hold_anything(tmp_path):
    listing = thread_trace.write(tmp_path)
    document = thread_trace.listing(ROCM7, 3)
    document["code"][0][0] = "; k\u0000\u001b[31m" + "x" * 100_000
    listing.write_text(json.dumps(document))
    assert gather(att.parse(listing))[0]["wave_instructions"].schema.names == WAVE_INSTRUCTIONS.schema.names
