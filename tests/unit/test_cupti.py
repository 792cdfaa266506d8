"""Our CUPTI tracer inside programs, against a libcupti of our own with the real ABI; and what it leaves, read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from aaco.collectors import capabilities
from aaco.core.errors import BadCapture
from aaco.core.host import Host
from aaco.profiler.cupti.inside import library as libraries
from aaco.profiler.cupti.inside import spool
from aaco.profiler.cupti.inside.tracer import COPY, DEVICE, DRIVER, FILL, KERNEL, PEER_COPY, RUNTIME
from aaco.profiler.formats.nvidia import cupti as parser
from aaco.profiler.formats.nvidia import cupti_records as records
from tests.fakes import cupti

LAYOUTS = json.loads((Path(__file__).parents[1] / "captures/cupti_layouts/layouts.json").read_text())
KINDS = {"kernel": (KERNEL,), "copy": (COPY,), "peer_copy": (PEER_COPY,), "fill": (FILL,), "call": (RUNTIME, DRIVER),
         "device": (DEVICE,)}

AT_MOST_2 = "ctypes.c_uint32.in_dll(sys.modules['_aaco_cupti.buffers'].Buffers()._native, 'aaco_most').value = 2"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return cupti.build(tmp_path_factory.mktemp("libcupti"))


def read(path: Path):
    """The tables by name, and the facts."""
    *pieces, facts = parser.parse(path)
    found: dict[str, list[pa.Table]] = {}
    for piece in pieces:
        found.setdefault(piece.schema.metadata[b"aaco.table"].decode(), []).append(piece)
    return {name: pa.concat_tables(some) for name, some in found.items()}, facts


def only(paths: list[Path]):
    assert len(paths) == 1, paths
    return read(paths[0])


@pytest.mark.parametrize("version", LAYOUTS)
def test_fields_stand_where_each_versions_header_has_them(version):
    """Mutation: a field of the kernel's record four bytes off."""
    for name, kinds in KINDS.items():
        said = LAYOUTS[version][name]
        for kind in kinds:
            mine = {field: [offset, form.itemsize] for field, (form, offset, *_) in records.TYPES[kind].fields.items()}
            assert mine == said["fields"]
            assert records.TYPES[kind].itemsize <= said["bytes"]


def test_a_capture_is_what_was_recorded(tmp_path):
    """Against the numbers that were put in. Mutation: the grid in blocks; then gemm's is 2."""
    tables, facts = read(cupti.example(tmp_path / "1.cupti"))
    kernels, calls = tables["kernels"].to_pylist(), tables["api_calls"].to_pylist()
    assert [row["kernel_name"] for row in kernels] == ["gemm<float>", "relu"] * 2
    assert [row["t_start_ns"] for row in kernels[:2]] == [1_700_000_000_000_010_010, 1_700_000_000_000_010_120]
    assert [row["dur_ns"] for row in kernels] == [100, 30, 100, 30]
    assert (kernels[0]["grid_x"], kernels[0]["block_x"], kernels[0]["stream_id"]) == (128, 64, 7)
    assert [(row["graph_id"], row["graph_node_id"]) for row in kernels[:2]] == [(6, 5), (None, None)]
    assert {row["correlation_id"] for row in calls} == {1, 2, 4, 5} == {row["correlation_id"] for row in kernels}
    assert {tuple(row[name] for name in ("name", "domain", "thread_id")) for row in calls} == {
        ("cudaLaunchKernel", "cuda_runtime", 43)}
    copy = tables["copies"].to_pylist()[0]
    assert (copy["kind"], copy["bytes"], copy["src_device"], copy["dst_device"], copy["pinned"]) == (
        "d2h", 512, 0, None, False)
    assert facts.kernels.count == 4 and facts.kernels.ns == 260 and facts.clock == "realtime"
    assert facts.problems == ()


def test_a_capture_that_ends_early_has_what_was_flushed_and_says_so(tmp_path):
    whole = cupti.example(tmp_path / "1.cupti").read_bytes()
    cut = tmp_path / "2.cupti"
    cut.write_bytes(whole[:-100])
    tables, facts = read(cut)
    assert tables["kernels"].num_rows == 2
    assert "damaged or cut short" in facts.problems[0]
    cut.write_bytes(whole[:spool.STATE])
    with pytest.raises(BadCapture, match="before the tracer began"):
        read(cut)
    cut.write_bytes(whole[:-100] + b"x" + whole[-99:])  # one byte of the last buffer
    assert read(cut)[0]["kernels"].num_rows == 2


def test_a_program_is_traced_from_its_start_to_its_end(library, tmp_path):
    """Calls that put nothing on the device are left out, and CUPTI is detached last.

    Mutation: no filter; then cudaDriverGetVersion and cudaGetDevice are there, too.
    """
    log = tmp_path / "log"
    tables, facts = only(cupti.run(library, tmp_path / "made", "work(4)", FAKE_CUPTI_LOG=str(log)))
    assert [row["kernel_name"] for row in tables["kernels"].to_pylist()] == ["alpha", "beta"] * 2
    assert tables["kernels"]["dur_ns"].to_pylist() == [100, 200] * 2
    assert tables["api_calls"]["name"].to_pylist() == ["cudaLaunchKernel"] * 4 + ["cudaMemcpyAsync"]
    assert tables["api_calls"]["correlation_id"].to_pylist() == [1, 2, 3, 4, 5]
    assert facts.problems == () and facts.tool_version == "130001"
    assert [(one.name, one.arch, one.compute_units) for one in facts.devices] == [("Fake GPU", "sm_90", 132)]
    assert log.read_text().split()[-1] == "cuptiFinalize"


def test_kernels_only_asks_for_no_calls(library, tmp_path):
    log = tmp_path / "log"
    tables, _ = only(cupti.run(library, tmp_path / "made", "work(4)", mode="kernels", FAKE_CUPTI_LOG=str(log)))
    assert tables.keys() == {"kernels", "copies"}
    assert not {"cuptiActivityEnable5", "cuptiActivityEnable4"} & set(log.read_text().split())


def test_records_that_grew_read_as_before(library, tmp_path):
    """As those of 13.5. Mutation: the lengths that are known instead of those the library steps by."""
    tables, facts = only(cupti.run(library, tmp_path / "made", "work(4)", FAKE_CUPTI_LONGER="40"))
    assert tables["kernels"]["dur_ns"].to_pylist() == [100, 200] * 2
    assert facts.problems == ()


def test_many_buffers_make_one_capture(library, tmp_path):
    tables, facts = only(cupti.run(library, tmp_path / "made", "work(500)", FAKE_CUPTI_ROOM="4096"))
    assert tables["kernels"].num_rows == 500
    assert tables["kernels"]["correlation_id"].to_pylist() == list(range(1, 501))
    assert facts.problems == ()


def test_names_that_come_up_late_in_a_long_trace_are_known(library, tmp_path):
    """They are looked for at its end. Mutation: no look back; then the 20th buffer's have none."""
    program = "sys.modules['_aaco_cupti.tracer'].LOOKED_THROUGH = 1; work(20)"
    path, = cupti.run(library, tmp_path / "made", program, mode="kernels", FAKE_CUPTI_ROOM="208")
    tables, facts = read(path)
    assert [row["kernel_name"] for row in tables["kernels"].to_pylist()] == ["alpha", "beta"] * 10
    assert facts.problems == ()
    content = path.read_bytes()
    assert content.rfind(spool.NAME) > content.rfind(spool.DATA) > spool.STATE


def test_a_hole_is_no_capture(tmp_path):
    """Zeros are whole chunks of nothing. Mutation: any tag is one; then it takes for ever."""
    path = cupti.example(tmp_path / "1.cupti")
    with path.open("r+b") as file:
        file.truncate(8 << 30)
    tables, facts = read(path)
    assert tables["kernels"].num_rows == 4 and "damaged or cut short" in facts.problems[0]


@pytest.mark.parametrize("leave, code", [("os._exit(3)", 3), ("sys.exit(4)", 4), ("os.kill(os.getpid(), 15)", -15),
                                         ("os.execv('/bin/true', ['true'])", 0), ("1 / 0", 1)])
def test_every_way_out_is_seen_to(library, tmp_path, leave, code):
    """Mutation: os._exit as it was; then its capture has no end."""
    tables, facts = only(cupti.run(library, tmp_path / "made", f"work(3); {leave}", code=code))
    assert tables["kernels"].num_rows == 3
    assert facts.problems == ()


def test_the_users_own_sitecustomize_runs_as_if_ours_were_not_there(library, tmp_path):
    """Mutation: give_way not called."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.theirs = __file__\n")
    program = "work(1); import sitecustomize; print(sys.theirs, sitecustomize.__file__, sys.path); assert sys.theirs"
    paths = f"{cupti.STARTUP}:{own}"
    (tmp_path / "made").mkdir()
    done = subprocess.run([sys.executable, "-c", cupti.WORK + program], capture_output=True, text=True, check=True,
                          env=cupti.environment(library, tmp_path / "made", PYTHONPATH=paths))
    assert done.stdout.split()[:2] == [str(own / "sitecustomize.py")] * 2
    assert str(cupti.STARTUP) not in done.stdout
    assert only(sorted((tmp_path / "made").glob("*.cupti")))[0]["kernels"].num_rows == 1


def test_a_program_that_chooses_its_device_too_late_is_told(library, tmp_path):
    path, = cupti.run(library, tmp_path / "made", "os.environ['CUDA_VISIBLE_DEVICES'] = '1'; work(1)")
    assert "set it outside of the program" in read(path)[1].problems[0]


def test_clocks_that_drift_are_followed(tmp_path):
    """A kernel halfway is moved by half of what the clocks came apart; its length is not. Mutation: the begin alone."""
    path = cupti.example(tmp_path / "1.cupti")
    made = bytearray(path.read_bytes())
    state = {"ended": "exit", "clock_end": {"cupti_ns": 1_000 + 2_000_000_000,
                                            "realtime_ns": 1_700_000_000_000_001_000 + 2_000_000_000 + 400_000}}
    made[16:spool.STATE] = json.dumps(state).encode().ljust(spool.STATE - 16)
    path.write_bytes(made)
    row = read(path)[0]["kernels"].to_pylist()[0]
    assert row["t_start_ns"] - 1_700_000_000_000_010_010 == round((10_010 - 1_000) * 2e-4)
    assert row["t_end_ns"] - row["t_start_ns"] == row["dur_ns"] == 100
    state["clock_end"]["realtime_ns"] += 3_600_000_000_000
    made[16:spool.STATE] = json.dumps(state).encode().ljust(spool.STATE - 16)
    path.write_bytes(made)
    tables, facts = read(path)
    assert tables["kernels"]["t_start_ns"][0].as_py() == 1_700_000_000_000_010_010
    assert "clock was set while it ran" in facts.problems[0]


def test_forked_processes_are_not_traced_and_that_is_said(library, tmp_path):
    program = "child = os.fork()\nif child == 0: os._exit(0)\nos.waitpid(child, 0); work(2)"
    tables, facts = only(cupti.run(library, tmp_path / "made", program))
    assert tables["kernels"].num_rows == 2
    assert facts.problems == ("the program forked 1 time: what forked processes did is not traced",)


def test_what_cupti_drops_is_counted(library, tmp_path):
    """Buffers of one record each, and no time to write: from the third on there is none. Mutation: it is not asked."""
    program = ("sys.modules['_aaco_cupti.program'].EVERY_S = 99; "
               + AT_MOST_2 + "; work(9)")
    tables, facts = only(cupti.run(library, tmp_path / "made", program, mode="kernels", FAKE_CUPTI_ROOM="208"))
    rows = sum(table.num_rows for table in tables.values())
    dropped = 1 + 9 + 1 - 1 - rows  # a device, nine kernels, a copy; the device's record is no row
    assert dropped > 0
    assert facts.problems == (f"CUPTI dropped {dropped} records for want of buffers: kernels and calls are missing",)


def test_a_program_with_pythons_lock_does_not_wait_for_a_buffer_that_is_handed_back(library, tmp_path):
    """CUPTI hands one back with a lock held that CUDA's own calls wait for, which some make with Python's lock held.

    Mutation: callbacks in Python; then this never ends.
    """
    program = ("sys.modules['_aaco_cupti.program'].EVERY_S = 0.001\n"
               "stream = ctypes.PyDLL(os.environ['AACO_CUPTI']).fake_stream\n"
               "time.sleep(1.1)\n"
               "for _ in range(30): work(1); time.sleep(0.01); stream()")
    tables, facts = only(cupti.run(library, tmp_path / "made", program, timeout_s=20, FAKE_CUPTI_LOCKED="1"))
    assert tables["kernels"].num_rows == 30
    assert facts.problems == ()


def test_buffers_go_round_and_there_are_no_more_than_may_be(library, tmp_path):
    """Of 500 buffers that are full at once, 64 have records; of 500 one after the other, all, in two buffers.

    Mutations: a buffer is not given back; there is no bound.
    """
    slow = "sys.modules['_aaco_cupti.program'].EVERY_S = 99; work(500)"
    tables, facts = only(cupti.run(library, tmp_path / "slow", slow, mode="kernels", FAKE_CUPTI_ROOM="208"))
    assert tables["kernels"].num_rows == 63 and "CUPTI dropped 438 records" in facts.problems[0]
    quick = (AT_MOST_2 + "\n"
             "flush = next(o for o in __import__('gc').get_objects() if type(o).__name__ == 'CuptiTracer').flush\n"
             "for _ in range(500): flush(); work(1)")
    tables, facts = only(cupti.run(library, tmp_path / "quick", quick, mode="kernels"))
    assert tables["kernels"].num_rows == 500 and facts.problems == ()


def test_an_installation_whose_callbacks_do_not_load_says_so(library, tmp_path):
    """The program goes on. Mutation: Python's own error."""
    again = tmp_path / "again"
    again.mkdir()
    cupti.run(library, tmp_path / "made", "buffers = sys.modules['_aaco_cupti.buffers']\n"
              "buffers.FOLDER = buffers.Path('/nonesuch')\n"
              f"sys.modules['_aaco_cupti.program'].trace({str(again)!r}, 'all')")
    assert "not traced: the tracer's callbacks do not load: /nonesuch/" in only(list(again.iterdir()))[1].problems[0]


def test_a_trace_after_another_has_its_own_records_and_its_own_losses(library, tmp_path):
    """What CUPTI gave back after the end of the first is not in the second; what it still has is no loss of that one.

    Mutations: nothing taken before the start; all that is held counts.
    """
    folder = tmp_path / "made"
    program = f"""
traced = next(one for one in __import__("gc").get_objects() if type(one).__name__ == "TracedProcess")
first, traced._tracer = traced._tracer, None
os.environ["FAKE_CUPTI_KEEPS"] = "1"
work(3)
first.stop("exit")
if len(sys.argv) == 1:
    del os.environ["FAKE_CUPTI_KEEPS"]
    first.library.code("cuptiActivityFlushAll", ctypes.c_uint32(1))
ctypes.CDLL(os.environ["AACO_CUPTI"]).fake_forget()
os.environ.pop("FAKE_CUPTI_KEEPS", None)
second = sys.modules["_aaco_cupti.tracer"].begin(first.library, {str(folder)!r} + "/9-9.cupti", "all")
work(2)
second.stop("exit")
"""
    for late in ("", "sys.argv.append('never')"):
        for path in cupti.run(library, folder, late + program):
            tables, facts = read(path)
            if path.name == "9-9.cupti":
                assert tables["kernels"].num_rows == 2 and facts.problems == ()
            else:
                assert not tables and "CUPTI kept 1 buffers" in facts.problems[0]
            path.unlink()


def test_buffers_that_never_come_back_are_told_of(library, tmp_path):
    path, = cupti.run(library, tmp_path / "made", "work(3)", FAKE_CUPTI_KEEPS="1")
    assert "CUPTI kept 1 buffers of records to itself" in read(path)[1].problems[0]


def test_a_disk_that_takes_a_part_at_a_time_has_it_all(tmp_path, monkeypatch):
    """pwritev(2) may write less than it was given, and end within a part. Mutation: the rest is forgotten."""
    whole = cupti.example(tmp_path / "1.cupti").read_bytes()
    monkeypatch.setattr(spool.os, "pwritev", lambda file, parts, at: spool.os.pwrite(file, parts[0][:5], at))
    assert cupti.example(tmp_path / "2.cupti").read_bytes() == whole


def test_a_full_disk_leaves_a_capture_that_says_what_is_lost(library, tmp_path):
    """A limit of the file's size refuses as a full disk does."""
    program = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); work(500)"
    tables, facts = only(cupti.run(library, tmp_path / "made", program, FAKE_CUPTI_ROOM="4096"))
    assert 0 < tables["kernels"].num_rows < 500
    lost = facts.problems[0]
    assert "could not be written" in lost and "File too large" in lost
    assert int(lost.split()[0].replace(",", "")) > 99_000


def test_a_device_that_vanishes_is_named_by_its_error(library, tmp_path):
    _, facts = only(cupti.run(library, tmp_path / "made", "work(3)", FAKE_CUPTI_VANISHES="1"))
    assert facts.problems == ("2 calls returned CUDA's error 46",)


def test_a_cupti_that_fails_later_is_told_with_what_was_there(library, tmp_path):
    """The device is gone: what was flushed before is there. Mutation: the flush's answer is not looked at."""
    tables, facts = only(cupti.run(library, tmp_path / "made", "work(3)", FAKE_CUPTI_ERROR="cuptiActivityFlushAll:9"))
    assert tables["kernels"].num_rows == 3
    assert facts.problems == ("the tracer met an error: cuptiActivityFlushAll: error 9",)


@pytest.mark.parametrize("error, said, fix", [
    ("cuptiActivityEnable10:35", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "NVreg_RestrictProfilingToAdminUsers=0"),
    ("cuptiActivityEnable10:15", "CUPTI_ERROR_NOT_INITIALIZED", "nvidia-smi must work"),
    ("cuptiGetVersion:999", "does not start: error 999", "nvidia-smi must work")])
def test_a_cupti_that_refuses_is_one_clear_line(library, tmp_path, error, said, fix):
    """The program runs all the same. As the real libraries of CUDA 12 and 13 answer without a driver, and 13.5."""
    path, = cupti.run(library, tmp_path / "made", "print('runs')", FAKE_CUPTI_ERROR=error)
    tables, facts = read(path)
    problem, = facts.problems
    assert not tables and said in problem and fix in problem and "\n" not in problem


def test_a_cupti_that_is_too_old_or_not_there(library, tmp_path):
    path, = cupti.run(library, tmp_path / "made", "work(1)", FAKE_CUPTI_VERSION="17")
    assert "older than CUDA 12.0" in read(path)[1].problems[0]
    with pytest.raises(libraries.CuptiError, match="/no/libcupti"):
        libraries.load({"AACO_CUPTI": "/no/libcupti.so"}, [])


def test_kinds_that_are_not_needed_may_be_refused(library, tmp_path):
    tables, facts = only(cupti.run(library, tmp_path / "made", "work(1)", FAKE_CUPTI_ERROR="cuptiActivityEnable22:1"))
    assert tables["kernels"].num_rows == 1
    assert facts.problems == ("CUPTI refused kind 22",)


def test_where_it_is_looked_for(tmp_path):
    """The named one alone; the program's own wheel before the linker's path, that before the toolkits, newest first."""
    wheel = tmp_path / "site/nvidia/cu13/lib/libcupti.so.13"
    linked, conda = tmp_path / "linked/libcupti.so.12", tmp_path / "conda/lib/libcupti.so.12"
    toolkits = [tmp_path / f"usr/local/cuda-{version}/extras/CUPTI/lib64/libcupti.so" for version in ("13.0", "12.4")]
    for path in (wheel, linked, conda, *toolkits):
        path.parent.mkdir(parents=True)
        path.touch()
    environment = {"LD_LIBRARY_PATH": f":{linked.parent}", "CONDA_PREFIX": str(tmp_path / "conda")}
    found = list(libraries.candidates(environment, [str(tmp_path / "site")], str(tmp_path)))
    assert found == [str(path) for path in (wheel, linked, conda, *toolkits)]
    assert list(libraries.candidates(environment | {"AACO_CUPTI": "x"}, [], str(tmp_path))) == ["x"]


def test_the_spool_is_written_in_order_and_in_place(tmp_path):
    made = spool.CuptiSpool(str(tmp_path / "1.cupti"))
    made.state["forks"] = 7
    made.write_state()
    made.add(spool.DATA, b"abc")
    content = (tmp_path / "1.cupti").read_bytes()
    assert json.loads(content[16:spool.STATE])["forks"] == 7
    assert content[spool.STATE:][-3:] == b"abc" and len(content) == spool.STATE + spool.CHUNK.size + 3
    made.close()
    with pytest.raises(FileExistsError):
        spool.CuptiSpool(str(tmp_path / "1.cupti"))


def test_doctor_says_whether_cupti_traces(library, monkeypatch):
    """Mutation: what the probe says taken for a detail."""
    probe = next(one for one in capabilities.QUESTIONS if one.name == "CUPTI")
    monkeypatch.setenv("AACO_CUPTI", str(library))
    assert probe.answer(Host()).detail == f"version 130001 traces: {library}"
    monkeypatch.setenv("FAKE_CUPTI_ERROR", "cuptiActivityEnable10:35")
    found = probe.answer(Host())
    assert "INSUFFICIENT_PRIVILEGES" in found.why_not and "NVreg_RestrictProfilingToAdminUsers=0" in found.fix
    monkeypatch.setenv("AACO_CUPTI", "/no/libcupti.so")
    found = probe.answer(Host())
    assert found.why_not.startswith("/no/libcupti.so: cannot open") and "pip install nvidia-cuda-cupti" in found.fix
