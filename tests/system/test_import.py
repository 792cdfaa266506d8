"""`aaco import` and what works on its sessions, as a user runs them; and every way in which an import can end early."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from aaco.profiler.formats import registry
from aaco.steps.find_captures import CaptureFiles, CaptureSelection
from benchmarks.rocpd_generator import write_rocpd
from tests.fakes import captures
from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
ORT = ROOT / "tests/captures/ort_cuda_h200/resnet50/profiler/raw/ort_profile.json.gz"
TOKEN = "h" + "f_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
PASSWORD = "pLaNtEd-PaSsWoRd"


class Importer(Aaco):
    """`aaco` that also knows the format of tests/fakes/captures.py."""

    def command(self, *arguments):
        return [sys.executable, "-m", "tests.fakes.captures", *map(str, arguments)]

    def inside(self, *arguments, expect=0, **extra):
        with patch.dict(registry.parsers(), {captures.FORMAT: captures}):
            return super().inside(*arguments, expect=expect, **extra)

    def environment(self, **extra):
        return super().environment(PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "src")]), **extra)


@pytest.fixture
def aaco(tmp_path, cache):
    (tmp_path / "home").mkdir()
    return Importer(tmp_path / "home", cache)


def kernels(count=4, first=0, **more):
    starts = [first + 100 * at for at in range(count)]
    return ("kernels", {"kernel_id": list(range(count)), "kernel_name": [f"gemm_{at % 2}" for at in range(count)],
                        "t_start_ns": starts, "t_end_ns": [start + 50 for start in starts], "dur_ns": [50] * count,
                        "device_id": [0] * count, **more})


def calls(count=4):
    return ("api_calls", {"call_id": list(range(count)), "name": ["launch"] * count, "thread_id": [1] * count,
                          "t_start_ns": [100 * at for at in range(count)],
                          "t_end_ns": [100 * at + 10 for at in range(count)], "dur_ns": [10] * count})


def capture(path, *pieces, **more):
    facts = {"tool": "a tool", "kernels": {"count": 4, "ns": 200}}
    return captures.write(path, *(pieces or (kernels(), calls())), **({"facts": facts} | more))


def listed(aaco):
    return json.loads(aaco.inside("ls", "--json").stdout)["sessions"]


def says(done, *words):
    assert done.stderr.count("\n  try: ") == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_capture_becomes_a_session_that_everything_works_on(aaco, tmp_path):
    path = capture(tmp_path / "trace.json")
    done = aaco("import", path, "--tag", "nightly", "--full")
    assert "trace.json (a tool" in done.stdout and "gemm_0" in done.stdout
    (row,) = listed(aaco)
    assert (row["status"], row["model"], row["tag"]) == ("complete", "trace", "nightly")
    assert row["backend"] == "imported"
    record = json.loads((aaco.latest / "session.json").read_text())
    assert record["backend_ran"] == "imported: pieces (a tool)"
    assert record["plan"] == {"model": "trace", "imports": [str(path)]}
    info = json.loads(aaco.inside("info", "latest", "--json").stdout)
    assert not info["damaged"]
    assert "not explained" not in info["absent"].values()
    assert "no iterations were timed" in info["absent"]["metrics/inference_iters.parquet"]
    assert "value     n/a: imported capture" in aaco.inside("explain", "KAR", "latest").stdout
    top = json.loads(aaco.inside("kernels", "--json").stdout)["kernels"]
    assert [(kernel["kernel_name"], kernel["calls"], kernel["total_ns"]) for kernel in top] == [
        ("gemm_0", 2, 100), ("gemm_1", 2, 100)]
    answer = json.loads(aaco.inside("sql", "select sum(dur_ns) from kernels", "--format", "json").stdout)
    assert answer["rows"] == [[200]]
    says(aaco.inside("diff", "latest", expect=2), "both sides are session", "nothing can differ")
    aaco("import", path, "--as", "again")
    assert "4 kernels the same in the same order" in aaco.inside("diff", "nightly", "again").stdout


def test_a_capture_that_names_no_device_has_the_one_that_the_user_names(aaco, tmp_path):
    """Mutation: the device is not kept for the next analysis."""
    (tmp_path / "x_kernel_trace.csv").write_text(
        '"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH",4,1,"a",10,20\n')
    device = {"id": 4, "name": "MI300X", "arch": "gfx942", "compute_units": 304, "vram_bytes": 192 << 30}
    aaco.inside("import", tmp_path, "--device", "mi300x", "--quiet")
    for _ in range(2):
        listed = json.loads((aaco.latest / "profiler" / "captures.json").read_text())["captures"][0]["devices"]
        assert device in listed
        aaco.inside("analyze")
    says(aaco.inside("import", tmp_path, "--device", "mi301x", expect=2), "no board 'mi301x'", "known: MI100, MI210,")
    says(aaco.inside("import", tmp_path, "--arch", "gfx942", expect=2), "may be MI300A or MI300X or")
    trace = Path(__file__).parents[1] / "captures/torch_changes/vit_training/before.trace.json.gz"
    refused = aaco.inside("import", trace, "--device", "MI300X", expect=2).stderr
    assert "the capture has sm_90 as the architecture of device 0" in refused


def test_kernels_by_family_and_against_another_recording(aaco, tmp_path):
    """gemm_0 is gone, gemm_2 is new; the fill is a family of its own."""
    aaco.inside("import", capture(tmp_path / "before.json"), "--quiet", "--tag", "before")
    names = ["gemm_1", "gemm_1", "softmax_kernel", "memset_kernel"]
    aaco.inside("import", capture(tmp_path / "after.json", kernels(kernel_name=names)), "--quiet")
    families = json.loads(aaco.inside("kernels", "--by", "family", "--json").stdout)["families"]
    assert {row["family"]: (row["kernels"], row["calls"], row["total_ns"]) for row in families} == {
        "gemm": (1, 2, 100), "softmax": (1, 1, 50), "fill": (1, 1, 50)}
    assert "softmax" in aaco.inside("kernels", "--by", "family").stdout
    found = json.loads(aaco.inside("kernels", "latest", "--against", "before", "--json").stdout)
    assert found["families_moved"] == 0.5
    (pair,) = found["pairs"]
    assert (pair["normalised"], pair["likeness"], pair["drifted"]) == ("gemm_1", 1, False)
    assert {row["normalised"] for row in found["new"]} == {"softmax_kernel", "memset_kernel"}
    assert [row["normalised"] for row in found["gone"]] == ["gemm_0"]
    text = aaco.inside("kernels", "--against", "before").stdout
    assert "50.0 % of kernel time is in other families" in text and "\nalike: the names. apart: how far" in text
    refused = aaco.inside("kernels", "--against", "nothing", expect=2)
    assert "no session 'nothing'" in refused.stderr


def test_the_report_in_every_form(aaco, tmp_path):
    aaco.inside("import", capture(tmp_path / "trace.json"), "--quiet")
    printed = json.loads(aaco.inside("import", tmp_path / "trace.json", "--json").stdout)
    assert printed["record"]["status"] == printed["status"] == "complete"  # Mutation: a record from before the seal
    document = json.loads(aaco.inside("report", "--format", "json").stdout)
    assert document["coverage"]["used"] == document["coverage"]["in_file"] == {"count": 4, "ns": 200}
    assert document["kernels_ran_on"] == "GPU"
    assert "trace.json" in aaco.inside("report", "--format", "markdown").stdout
    page = aaco.inside("report", "--format", "html").stdout
    assert "trace.json" in page and page.count('class="tile"') == 4  # of the trace: no iteration was timed
    terminal = aaco.inside("report").stdout
    assert "Kernels:" in terminal and "4, 200 ns in all" in terminal
    assert max(map(len, terminal.splitlines())) <= 80


def test_a_folder_of_ranks_is_one_import(aaco, tmp_path):
    folder = tmp_path / "run 7"
    capture(folder / "rank_0.json")
    capture(folder / "rank_1.json", kernels(first=50))
    capture(folder / "deeper" / "worker-12.trace", facts={"rank": 3})
    (folder / "notes.txt").write_text("nothing")
    (folder / "empty.json").write_text("")
    (folder / ".hidden").write_text("nothing")
    os.mkfifo(folder / "pipe")
    done = aaco.inside("import", folder)
    assert done.stderr.count("not imported: ") == 3
    document = json.loads((aaco.latest / "profiler/captures.json").read_text())
    assert [one["rank"] for one in document["captures"]] == [0, 1, 3]
    assert {Path(one["path"]).name for one in document["unrecognised_files"]} == {"notes.txt", "empty.json", "pipe"}
    rows = json.loads(aaco.inside("sql", "select capture, rank, count(*) from kernels group by all order by 1",
                                  "--format", "json").stdout)["rows"]
    assert rows == [[0, 0, 4], [1, 1, 4], [2, 3, 4]]
    assert listed(aaco)[0]["model"] == "run 7"


def test_names_formats_and_what_is_no_capture(aaco, tmp_path):
    path = capture(tmp_path / "trace.json")
    aaco.inside("import", path, "--as", "resnet on two GPUs", "--format", "pieces", "--quiet")
    assert listed(aaco)[0]["model"] == "resnet on two GPUs"
    says(aaco.inside("import", path, "--format", "no such", expect=2), "pieces")
    says(aaco.inside("import", tmp_path / "nowhere.json", expect=2), "nowhere.json")
    (tmp_path / "text.json").write_text("[]")
    says(aaco.inside("import", tmp_path / "text.json", expect=2), "text.json")
    (tmp_path / "folder").mkdir()
    says(aaco.inside("import", tmp_path / "folder", expect=2), "folder")
    shutil.copy(tmp_path / "text.json", tmp_path / "folder")
    says(aaco.inside("import", tmp_path / "folder", expect=2), "text.json")
    os.mkfifo(tmp_path / "pipe")
    says(aaco.inside("import", tmp_path / "pipe", expect=2), "regular file")
    says(aaco.inside("import", "", expect=2), "an empty path")  # Mutation: take it as Path(""), the working directory
    assert len(listed(aaco)) == 1


@pytest.mark.parametrize("pieces", [0, 3])
def test_a_bad_capture_leaves_nothing(aaco, tmp_path, pieces):
    """Whether it shows at once or only after much was read; and `latest` is what it was."""
    aaco.inside("import", capture(tmp_path / "good.json"), "--quiet")
    before = aaco.latest
    bad = captures.write(tmp_path / "bad.json", *[kernels()] * pieces, fail="cut short at byte 7")
    says(aaco.inside("import", tmp_path / "good.json", bad, expect=2), "bad.json", "byte 7")
    assert aaco.latest == before
    assert [path.name for path in before.parent.iterdir()] == [before.name]


def test_the_first_import_of_all_leaves_nothing_either(aaco, tmp_path):
    bad = captures.write(tmp_path / "bad.json", kernels(), fail="cut short")
    says(aaco.inside("import", bad, expect=2), "cut short")
    assert not [path for path in (aaco.folder / "sessions").rglob("*") if not path.is_dir()]
    assert not (aaco.folder / "sessions/latest").is_symlink()


def started(aaco, path, count=400):
    """An import that takes long, once its session is there."""
    captures.write(path, kernels(1000), calls(1000), turns=count, pause_s=0.02)
    process = subprocess.Popen(aaco.command("import", path), cwd=aaco.folder, env=aaco.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not list((aaco.folder / "sessions").glob("2*/2*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    return process


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_import_that_is_stopped_does_not_look_whole(aaco, tmp_path, how):
    process = started(aaco, tmp_path / "long.json")
    process.send_signal(how)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0 and "Traceback" not in stderr
    assert not (aaco.folder / "sessions/latest").is_symlink()
    if how == signal.SIGINT:
        assert not listed(aaco) and not [path for path in (aaco.folder / "sessions").rglob("*") if path.is_file()]
        return
    (row,) = listed(aaco)
    assert row["status"] == "incomplete"
    files = [path.name for path in aaco.latest.rglob("*") if path.is_file()]
    assert files == ["session.json"]
    assert "INCOMPLETE" in aaco.inside("report").stdout
    (aaco.folder / "aaco.yaml").write_text("storage: {max_sessions: 1}")
    aaco.inside("import", capture(tmp_path / "good.json"), "--quiet")
    aaco.inside("gc")
    assert [row["model"] for row in listed(aaco)] == ["good"]


def test_a_long_query_can_be_stopped(aaco, tmp_path):
    aaco.inside("import", capture(tmp_path / "trace.json"), "--quiet")
    query = "select sum(sqrt(a.range) + sqrt(b.range)) from range(10000000) a, range(10000000) b"
    process = subprocess.Popen(aaco.command("sql", query), cwd=aaco.folder, env=aaco.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while _cpu_s(process.pid) < 4:  # to start takes one; from then on it counts
        assert process.poll() is None
        time.sleep(0.05)
    for _ in range(20):  # as a person would: once more where the first went by
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
            break
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130 and stderr.strip().endswith("interrupted")


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_import_that_was_stopped_can_be_finished(aaco, tmp_path):
    process = started(aaco, tmp_path / "long.json")
    process.kill()
    process.communicate()
    capture(tmp_path / "long.json")  # the whole of it, this time
    aaco.inside("analyze")
    assert listed(aaco)[0]["status"] == "incomplete"  # it stays what it was, and its tables are there
    assert json.loads(aaco.inside("sql", "select count(*) from kernels", "--format", "json").stdout)["rows"] == [[4]]


def test_analyze_makes_the_tables_anew_only_from_the_same_capture(aaco, tmp_path):
    path = capture(tmp_path / "trace.json")
    aaco.inside("import", path, "--quiet")
    before = {file: file.read_bytes() for file in aaco.latest.rglob("*.parquet")}
    aaco.inside("analyze")
    assert {file: file.read_bytes() for file in aaco.latest.rglob("*.parquet")} == before
    path.write_text(path.read_text() + " ")
    says(aaco.inside("analyze", expect=2), "was changed", "trace.json")
    path.unlink()
    says(aaco.inside("analyze", expect=2), "is gone", "trace.json")
    assert not json.loads(aaco.inside("info", "latest", "--json").stdout)["damaged"]


def test_a_full_disk_is_one_clear_error(aaco, tmp_path):
    """A limit on the size of files stands in for a full disk: it is met at the same write calls."""
    path = captures.write(tmp_path / "big.json", kernels(2000), turns=300)
    limit = (256 << 10, 256 << 10)
    done = subprocess.run(aaco.command("import", path), cwd=aaco.folder, env=aaco.environment(), text=True,
                          capture_output=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    says(done, "sessions")
    assert not listed(aaco) and not [file for file in (aaco.folder / "sessions").rglob("*") if file.is_file()]


def test_a_disk_without_room(aaco, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        path = captures.write(tmp_path / "big.json", kernels(2000), turns=300)
        says(aaco.inside("import", path, "--sessions-dir", disk / "sessions", expect=1), "No space left", "aaco gc")
        assert not json.loads(aaco.inside("ls", "--json", "--sessions-dir", disk / "sessions").stdout)["sessions"]
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("kept", [False, True])
def test_no_credential_of_a_capture_reaches_the_bundle(aaco, tmp_path, kept):
    """Planted in names, arguments, lists, metadata, problems and the session's own words."""
    pieces = (
        kernels(kernel_name=["fine", TOKEN, f"password={PASSWORD}", "fine too"]),
        ("api_calls", {"call_id": [0], "name": [f"GET https://user:{PASSWORD}@host/x"], "thread_id": [1],
                       "t_start_ns": [0], "t_end_ns": [1]}),
        ("call_arguments", {"call_id": [0], "arguments": [json.dumps({"api_key": PASSWORD, "shape": [1, 2]})]}),
        ("gpu_events", {"t_ns": [1], "throttle_reasons": [["hot", f"token={TOKEN}"]], "device_id": [0]}),
        ("wave_instructions", {"instruction": [f"s_nop {TOKEN}"], "source_line": [f"secret: {PASSWORD}"]}),
    )
    facts = {"metadata": {"HF_TOKEN": TOKEN, "env": {"X_PASSWORD": PASSWORD}, "version": f"1.0 {TOKEN}",
                          "distributedInfo": {"backend": "nccl", "secret": PASSWORD}, "rank": 7},
             "problems": [f"the record of password={PASSWORD} is odd"], "tool": f"tool {TOKEN}",
             "records": {f"Bearer {TOKEN}": 1}, "host": f"api_key={PASSWORD}"}
    path = captures.write(tmp_path / "trace.json", *pieces, facts=facts)
    options = ["--keep"] if kept else []
    done = aaco.inside("import", path, "--as", f"run --password={PASSWORD}", "--tag", TOKEN, *options)
    for text in (done.stdout, done.stderr, aaco.inside("report", "--format", "html").stdout,
                 aaco.inside("sql", "select * from call_arguments, kernels", "--format", "csv").stdout):
        assert TOKEN not in text and PASSWORD not in text
    for file in aaco.latest.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        for secret in (TOKEN, PASSWORD):
            assert secret.encode() not in content, file
            assert secret.encode() not in _columns(file), file
    document = json.loads((aaco.latest / "profiler/captures.json").read_text())["captures"][0]
    assert document["metadata"]["distributedInfo"] == {"backend": "nccl"}
    assert document["metadata_left_out"] == 3
    assert (aaco.latest / "profiler/raw/000/trace.json").is_file() is kept


def _columns(file):
    """All text of a Parquet file, out of its compression."""
    if file.suffix != ".parquet":
        return b""
    import pyarrow.parquet as pq

    with file.open("rb") as opened:
        return str(pq.ParquetFile(opened).read().to_pydict()).encode()


def test_a_kept_capture_is_the_same_but_for_its_credentials(aaco, tmp_path):
    path = tmp_path / "trace.json.gz"
    plain = capture(tmp_path / "plain.json").read_text()
    path.write_bytes(gzip.compress(plain.encode()))
    aaco.inside("import", ORT, "--keep", "--quiet")
    kept = aaco.latest / "profiler/raw/000" / ORT.name
    assert gzip.decompress(kept.read_bytes()) == gzip.decompress(ORT.read_bytes())
    absent = json.loads(aaco.inside("info", "latest", "--json").stdout)["absent"]
    assert "profiler/raw" in absent["profiler/rocprof_raw"]
    (tmp_path / "binary.json").write_bytes(captures.START.encode() + b"\0\1\2")
    says(aaco.inside("import", tmp_path / "binary.json", "--keep", expect=2), "binary.json", "--keep")


def test_files_of_one_name_are_kept_apart_and_odd_names_steer_no_terminal(aaco, tmp_path):
    folder = tmp_path / "traces"
    for place in ("a", "b"):
        capture(folder / place / "trace \x1b[2J.json")
    done = aaco.inside("import", folder, "--keep", "--as", "two")
    assert "\x1b" not in done.stderr + done.stdout and "trace" in done.stderr
    kept = [one["files"][0]["kept"] for one in
            json.loads((aaco.latest / "profiler/captures.json").read_text())["captures"]]
    assert len(set(kept)) == 2 and all((aaco.latest / name).is_file() for name in kept)
    (folder / "a" / "trace \x1b[2J.json").write_text(captures.START + "[")
    assert "\x1b" not in aaco.inside("import", folder, expect=2).stderr


def test_sql_on_a_terminal_says_what_it_left_out(aaco, tmp_path):
    odd = "odd \x1b[31mname\x07 \u202e"
    aaco.inside("import", capture(tmp_path / "trace.json", kernels(kernel_name=[odd] * 4)), "--quiet")
    done = aaco.inside("sql", "select kernel_name from kernels", "--limit", 2)
    assert done.stdout.count("odd") == 2 and "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert "first 2 rows" in done.stderr
    assert "first" not in aaco.inside("sql", "select 1").stderr
    lines = aaco.inside("sql", "select kernel_id, dur_ns from kernels order by 1", "--format", "csv", "--all").stdout
    assert lines == "kernel_id,dur_ns\n0,50\n1,50\n2,50\n3,50\n"
    answer = aaco.inside("sql", "select 1 / 0, [1.5, 'nan'::double]", "--format", "json").stdout
    assert json.loads(answer, parse_constant=pytest.fail)["rows"] == [[None, [1.5, None]]]  # Mutation: allow_nan
    says(aaco.inside("sql", "copy kernels to 'x.csv'", expect=2), "read-only")
    says(aaco.inside("sql", "select * from kernels", "--session", "2099", expect=2), "aaco ls")
    assert "\x1b" not in aaco.inside("kernels").stdout


def test_damaged_tables_are_made_anew_and_damaged_evidence_is_not(aaco, tmp_path):
    """Mutation: every damage refused; or none."""
    aaco.inside("import", capture(tmp_path / "trace.json"), "--quiet")
    table, evidence = aaco.latest / "profiler/rocprof_kernels.parquet", aaco.latest / "profiler/captures.json"
    for path in (table, aaco.latest / "metrics/timeline.json"):
        path.write_bytes(path.read_bytes()[:-30])
    says(aaco.inside("sql", "select count(*) from kernels", expect=2), "rocprof_kernels.parquet")
    aaco.inside("analyze")
    assert json.loads(aaco.inside("sql", "select count(*) from kernels", "--format", "json").stdout)["rows"] == [[4]]
    evidence.write_text(evidence.read_text().replace("a tool", "no tool"))
    says(aaco.inside("analyze", expect=2), "captures.json", "changed")


def test_a_folder_does_not_hide_the_session_of_its_name(aaco, tmp_path):
    """Whoever imports the folder `nchw` with the tag `nchw` means the session. Mutation: any folder is one."""
    capture(aaco.folder / "nchw/trace.json")
    aaco.inside("import", "nchw", "--tag", "nchw", "--quiet")
    assert "gemm_0" in aaco.inside("kernels", "nchw").stdout
    (aaco.folder / "other").mkdir()
    says(aaco.inside("report", "other", expect=2), "other", "session.json")


@pytest.mark.parametrize(("file", "name"), [
    ("h100_Qwen1.5-0.5B__1016005.json.gz", "h100_Qwen1.5-0.5B__1016005"), ("results.hip_stats.csv", "results"),
    ("host_7.1699999999999999999.pt.trace.json.gz", "host_7"), ("net.v1.2.json", "net.v1.2"), (".json", ".json")])
def test_a_session_is_named_by_its_file_without_endings(file, name):
    """Mutation: the name ends at its first point."""
    capture_of_it = CaptureFiles(Path(file), (Path(file),), None)
    assert CaptureSelection((capture_of_it,), ()).name == name


def test_a_run_saved_in_several_formats_is_read_once(aaco, tmp_path):
    """Mutations: no `_saved_again` (a folder counts kernels twice); no `_repeated` (nobody says so of named files);
    no `same[0] != index` in it (every capture of the three says so)."""
    run = tmp_path / "run"
    run.mkdir()
    write_rocpd(run / "42_results.db", 5)
    (run / "42_kernel_trace.csv").write_text(
        '"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH",4,1,"a",10,20\n')
    (run / "43_kernel_trace.csv").write_text((run / "42_kernel_trace.csv").read_text())
    (run / "44_kernel_trace.csv").write_text((run / "42_kernel_trace.csv").read_text())
    (run / "45_kernel_trace.csv").write_text((run / "42_kernel_trace.csv").read_text())
    done = aaco.inside("import", run, "--json")
    held = json.loads((aaco.latest / "profiler/captures.json").read_text())
    assert [(one["format"], one["kernels"]["count"]) for one in held["captures"]] == [
        ("rocpd", 5), ("rocprofv3_csv", 1), ("rocprofv3_csv", 1), ("rocprofv3_csv", 1)]
    assert {"path": str(run / "42_kernel_trace.csv"), "why": "42_results.db holds the same run"} in \
        held["unrecognised_files"]
    assert "42_results.db holds the same run" in done.stderr
    assert [one["problems"] for one in held["captures"]] == [
        [], ["has the same 1 kernel as captures 2, 3: sums over all captures count each 3 times"], [], []]


def test_ranks_on_clocks_of_their_own_are_exported_on_one(aaco, tmp_path):
    """Mutations: `==` -> `!=` in `_moved`; the sign of the offset; t_end_ns left where it was."""
    count, apart = 20, 7_000_000_000
    for rank in range(2):
        together = ("collectives", {"kernel_id": list(range(count)), "operation": ["allreduce"] * count,
                                    "group": ["0"] * count, "group_size": [2] * count,
                                    "sequence": list(range(count)), "bytes_in": [8] * count, "bytes_out": [8] * count})
        facts = {"kernels": {"count": count, "ns": 50 * count}}
        capture(tmp_path / f"run/rank{rank}.json", kernels(count, rank * apart), together, facts=facts)
    aaco.inside("import", tmp_path / "run", "--quiet")
    said = aaco.inside("perfetto", "--format", "chrome", "-o", "out.json").stderr
    assert "capture 1: its times are moved by -7,000,000,000 ns and 0.00 ppm; at worst 0 ns are left over" in said
    slices = [one for one in json.loads((aaco.folder / "out.json").read_text())["traceEvents"] if one["ph"] == "X"]
    starts = [(one["ts"], one["dur"]) for one in slices if one["cat"] != "critical_path"]
    path = [(one["ts"], one["dur"]) for one in slices if one["cat"] == "critical_path"]
    assert sorted(starts) == sorted([(at / 10, 0.05) for at in range(count)] * 2)
    assert path == [(at / 20, 0.05) for at in range(2 * count - 1)]  # on the same clock: kernels and what is between
