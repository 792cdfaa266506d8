"""The measured process's own account: what is kept, when, and how it is read back."""

import mmap
import os
import threading
import time
from pathlib import Path

import pytest

from aaco.analytics.quality import self_accounting as accounts
from aaco.core.errors import BadCapture
from aaco.core.tables import ACCOUNT, INFERENCE_ITERS
from aaco.runner import self_accounting
from aaco.runner.self_accounting import ROW, SelfAccounting


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "runtime").mkdir()
    return self_accounting.path_of(tmp_path, 0)


@pytest.fixture
def descriptor(raw):
    opened = os.open(raw, os.O_WRONLY | os.O_CREAT)
    yield opened
    os.close(opened)


def write(raw, *rows):
    raw.write_bytes(b"".join(ROW.pack(*row) for row in rows))


def row(t, wait=0, threads=1, involuntary=0, core=-1, memory=-1):
    return (t, wait, threads, involuntary, 0, 0, 0, core, memory)


def test_readings_are_as_far_apart_as_their_cost_asks(descriptor, raw, tmp_path):
    """Mutation: `now < self._due` made False: every inference pays for a reading."""
    watching = SelfAccounting(descriptor)
    watching.look()
    made = watching.cost()["readings"]
    watching.beside(watching._due - 1)
    assert watching.cost()["readings"] == made
    now = watching._due
    watching.beside(now)
    assert watching.cost()["readings"] == made + 1
    assert watching._due - now == int(watching.cost()["reading_ns"] / self_accounting.READING_SHARE)
    watching.close()


def test_canaries_are_done_when_they_are_due(descriptor, raw, tmp_path):
    """Mutation: the canaries in every reading, whatever they cost."""
    watching = SelfAccounting(descriptor, canaries=True)
    watching.look()
    watching.beside(watching._canary_due)
    watching._due = watching._canary_due - 1  # a slow reading of a busy machine would put it after the canaries
    watching.beside(watching._due)
    watching.close()
    table = self_accounting.parse(tmp_path)
    assert table["core_canary_ns"].to_pylist()[-1] is None and table["memory_canary_ns"].to_pylist()[-1] is None
    assert table["core_canary_ns"].to_pylist()[-2] > 0 and table["memory_canary_ns"].to_pylist()[-2] > 0


def test_faults_of_this_process_are_counted(descriptor, tmp_path):
    """The kernel's count, read before and after touching 400 new pages."""
    watching = SelfAccounting(descriptor)
    watching.look()
    touched = mmap.mmap(-1, 400 * 4096)  # never a page that was used before
    touched.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(400):
        touched[4096 * page] = 1
    watching.look()
    watching.close()
    assert self_accounting.parse(tmp_path)["faults_minor"].to_pylist()[-1] >= 400


def test_a_thread_born_or_ended_makes_the_wait_of_that_interval_unknown(descriptor, tmp_path):
    """Mutation: `changed = first`: the whole past of a new thread counts as waited here."""
    if not witness_knows_waits():
        pytest.skip("this kernel keeps no account of run-queue wait")
    watching = SelfAccounting(descriptor)
    watching.look()
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait)
    thread.start()
    watching.look()
    watching.look()
    leave.set()
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # join returns before the kernel has let it go
        time.sleep(0.001)
    watching.look()
    watching.close()
    waits = self_accounting.parse(tmp_path)["run_queue_wait_ns"].to_pylist()[-3:]
    assert waits[0] is None and waits[1] is not None and waits[2] is None


def witness_knows_waits():
    return Path("/proc/self/schedstat").read_text().split()[0] != "0"


def test_a_torn_row_is_left_out(raw, tmp_path):
    """Mutation: whole files only."""
    write(raw, row(10), row(20, wait=3))
    raw.write_bytes(raw.read_bytes() + b"torn")
    table = self_accounting.parse(tmp_path)
    assert table["t_ns"].to_pylist() == [10, 20]
    assert table["run_queue_wait_ns"].to_pylist() == [None, 3] and table["dur_ns"].to_pylist() == [None, 10]


def test_times_that_run_backwards_are_refused(raw, tmp_path):
    write(raw, row(20), row(10))
    with pytest.raises(BadCapture, match="backwards"):
        self_accounting.parse(tmp_path)


def test_a_folder_without_an_account_has_an_empty_table(tmp_path):
    assert self_accounting.parse(tmp_path).schema == ACCOUNT.schema


def test_amounts_go_to_the_iterations_they_fell_into(raw, tmp_path):
    """Two iterations share one reading: its wait is spread over the time between; the third has one of its own."""
    write(raw, row(0, core=100), row(100, wait=50, core=-1), row(200, wait=50, core=300), row(210, -1))
    table = INFERENCE_ITERS.build(iteration=[0, 1, 2, 3], phase=["measurement"] * 4, t_start_ns=[0, 60, 100, 195],
                                  t_end_ns=[40, 100, 190, 250], latency_ms=[1.0] * 4, process=[0] * 4)
    found = accounts.of_iterations(table, self_accounting.parse(tmp_path))
    assert found["run_queue_wait_ns"].to_pylist() == [20, 20, 0, None]
    assert found["core_canary_ns"].to_pylist() == [200, 200, 200, 100]
    assert found["memory_canary_ns"].null_count == 4


def test_a_thread_that_ends_while_it_is_looked_for_is_none(descriptor, tmp_path, monkeypatch):
    """Nor is one of a kernel without schedstat. Mutation: the open not guarded."""
    named = [path.name for path in Path("/proc/self/task").iterdir()]
    monkeypatch.setattr(self_accounting.os, "listdir", lambda path: [*named, "999999999"])
    watching = SelfAccounting(descriptor)
    watching.look()
    watching.close()
    assert self_accounting.parse(tmp_path).num_rows
