"""profiler.att_stats on summaries of three generations, alone and beside the folder they belong to."""

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats.att import att, att_stats
from tests.fakes import thread_trace
from tests.parsed import gather, rows

OLD = ("Addr,Instruction,Hitcount,Cycles,C++ Reference\r\n0x0,; Begin ATT ASM,0,0,\r\n0x7f00,; kern,0,0,\r\n"
       '0x7f00,"s_load_dword s0, s[0:1], 0x0",32,144,\r\n0x7f08,v_nop,0,0,/a.hip:4\r\n')
NEW = ('"CodeObj","Vaddr","Instruction","Hitcount","Latency","Stall","Idle","Source"\n'
       '4,5888,"; kern",0,0,0,0,"kern(int)"\n4,5888,"v_add_f32 v0, v1, v2",3,40,4,8,"/a.hip:4"\n')
COLUMNS = ("code_object", "vaddr", "instruction", "category", "kernel_name", "source_line", "hits", "latency_cycles",
           "stall_cycles", "idle_cycles")


def parsed(path, text):
    path.write_text(text, newline="")
    return gather(att_stats.parse(path))


def test_rocprofv2(tmp_path):
    tables, facts = parsed(tmp_path / "att_output_kern.csv", OLD)
    assert rows(tables["wave_instructions"], *COLUMNS) == [
        (None, 0x7F00, "s_load_dword s0, s[0:1], 0x0", "smem", "kern", None, 32, 144, None, None),
        (None, 0x7F08, "v_nop", "valu", "kern", "/a.hip:4", 0, 0, None, None)]
    assert facts.tool == "rocprofv2" and facts.clock == "device"
    assert facts.records == {"instruction": 2, "label": 2}
    assert facts.left_out == {f"label: {att_stats.NO_INSTRUCTION}": Subtotal(2, 0)}


def test_rocprofv3(tmp_path):
    tables, facts = parsed(tmp_path / "stats_ui_output_agent_1_dispatch_2.csv", NEW)
    assert rows(tables["wave_instructions"], *COLUMNS) == [
        (4, 5888, "v_add_f32 v0, v1, v2", "valu", "kern", "/a.hip:4", 3, 40, 4, 8)]
    assert facts.tool == "rocprofv3"


@pytest.mark.parametrize(("folder", "summary"), [
    ("ui", "ui/att_output.csv"), ("ui_output_agent_1_dispatch_2", "stats_ui_output_agent_1_dispatch_2.csv"),
    ("kern_ui", "att_output_kern.csv")])
def test_beside_its_folder_it_belongs_to_that_capture(tmp_path, folder, summary):
    """Mutation: recognise every summary; the same executions are then imported twice."""
    path = tmp_path / summary
    path.parent.mkdir(exist_ok=True)
    path.write_text(OLD)
    assert att_stats.recognises(path)
    listing = thread_trace.write(tmp_path / folder)
    assert not att_stats.recognises(path)
    assert path in att.members(listing)
    _, facts = gather(att.parse(listing))
    assert facts.left_out[att.SUMMARY] == Subtotal(4, 0) and facts.records["summary row"] == 4
    assert facts.problems == (f"{path.name}: 32 executions in 144 cycles, in the listing 18 in 720",)


def test_another_csv_is_a_bad_capture(tmp_path):
    with pytest.raises(BadCapture, match=r"x\.csv: not a summary"):
        parsed(tmp_path / "x.csv", "a,b\n1,2\n")
    assert not att_stats.recognises(tmp_path / "x.csv")
