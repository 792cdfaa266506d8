"""`aaco lab`: the command under its knobs, its exit code, and a machine that is as it was, whatever ends us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from aaco.laboratory import command
from benchmarks import laboratory
from tests.system.conftest import Aaco

CPU = max(os.sched_getaffinity(0))
SHOW = "import json, os; print(json.dumps([sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)]))"


@pytest.fixture
def lab(aaco: Aaco, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Aaco:
    """With a folder of journals of its own."""
    monkeypatch.setenv("AACO_LAB_DIR", str(tmp_path / "lab"))
    return aaco


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """One at a time turns the host's knobs; the kills take turns by themselves."""
    with nullcontext() if "random" in request.node.name else laboratory.alone():
        yield


def run(lab: Aaco, *arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    return lab("lab", *arguments, expect=expect, AACO_LAB_DIR=str(lab.folder / "lab"))


def left(lab: Aaco) -> list[str]:
    return [path.name for path in (lab.folder / "lab").iterdir()]


def test_the_command_runs_under_the_knobs_and_its_output_is_alone_on_stdout(lab: Aaco) -> None:
    """Mutation: a launcher that does not turn affinity shows every CPU."""
    done = run(lab, "run", "--level", "basic", "--cpus", CPU, "--", sys.executable, "-c", SHOW)
    cpus, nice = json.loads(done.stdout)
    assert cpus == [CPU]
    held = {line.split()[0]: line.split()[1] for line in done.stderr.splitlines() if not line.startswith("level")}
    assert held["affinity"] == "yes"
    assert (nice == -20) == (held["nice"] == "yes")
    assert "level: basic asked, basic achieved" in done.stderr
    assert left(lab) == []


@pytest.mark.parametrize("code", ["exit 0", "exit 7"])
def test_the_exit_code_is_the_commands(lab: Aaco, code: str) -> None:
    run(lab, "run", "-q", "--level", "none", "--", "sh", "-c", code, expect=int(code[-1]))


def test_a_signal_of_the_command_is_said_as_a_shell_says_it(lab: Aaco) -> None:
    run(lab, "run", "-q", "--level", "none", "--", "sh", "-c", "kill -TERM $$", expect=128 + signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_us_reaches_the_command_and_all_is_put_back(lab: Aaco, number: int) -> None:
    """Mutation: without passing on, the command outlives the signal and this waits for 60 s."""
    said = f"import signal, sys, time; signal.signal({number}, lambda *_: sys.exit(9)); print('up', flush=True); " \
           "[time.sleep(.05) for _ in range(1200)]"  # a signal just before a sleep does not cut it short
    before = laboratory.readings(-1)
    process = subprocess.Popen(lab.command("lab", "run", "-q", "--", sys.executable, "-c", said), cwd=lab.folder,
                               env=lab.environment(AACO_LAB_DIR=str(lab.folder / "lab")), stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.wait(50) == 9
    assert laboratory.readings(process.pid) == before
    assert left(lab) == []


def test_no_other_thread_of_ours_takes_a_signal_that_the_main_thread_waits_for(lab: Aaco) -> None:
    """Mutation: NumPy's thread, imported without `signals_held`, blocks none of them."""
    masks = "import os, pathlib; main = os.getppid(); print(*(line.split()[1] for task in pathlib.Path(" \
            "f'/proc/{main}/task').iterdir() if task.name != str(main) for line in (task / 'status').read_text()" \
            ".splitlines() if line.startswith('SigBlk')))"
    blocked = [int(mask, 16) for mask in run(lab, "run", "-q", "--", sys.executable, "-c", masks).stdout.split()]
    assert blocked
    assert {number for number in command.WAITED_FOR for mask in blocked if not mask >> number - 1 & 1} == set()


def test_a_missing_command_is_refused_before_anything_is_changed(lab: Aaco) -> None:
    done = run(lab, "run", "--", "no-such-command", expect=6)
    assert "no such command" in done.stderr
    assert not (lab.folder / "lab").exists()


def test_cpus_that_are_not_there_are_refused(lab: Aaco) -> None:
    for wrong in ("4000", "x", ""):
        run(lab, "run", "--cpus", wrong, "--", "true", expect=2)


def test_killed_at_random_moments_it_leaves_the_machine_as_it_was() -> None:
    """20 SIGKILLs from before the first change to amid the command; what a watchdog has to put back is noted in some.

    Mutations: a watchdog that undoes nothing leaves groups and journals; one in our session or process group is no
    different here, but a journal written after the changes leaves what fell between.
    """
    killed = laboratory.kills(20, seed=time.monotonic_ns())
    assert [each for each in killed if each["different"] or each["left"]] == []


def test_the_command_does_not_outlive_a_killed_laboratory(lab: Aaco) -> None:
    """Mutation: without PR_SET_PDEATHSIG the command goes on in a group that is no more."""
    said = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = subprocess.Popen(lab.command("lab", "run", "-q", "--", sys.executable, "-c", said), cwd=lab.folder,
                               env=lab.environment(AACO_LAB_DIR=str(lab.folder / "lab")), stdout=subprocess.PIPE)
    assert process.stdout
    command = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert _until(lambda: not Path(f"/proc/{command}").exists() and not left(lab))


def test_what_outlives_a_killed_laboratory_is_fair_and_where_it_would_have_been(lab: Aaco) -> None:
    """A descendant that left its parent is moved out of the group. Mutation: without `make_fair` it stays real-time."""
    spin = "while True: pass"
    said = ("import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], "
            "start_new_session=True); time.sleep(1); print(p.pid, flush=True); time.sleep(60)")
    process = subprocess.Popen(lab.command("lab", "run", "-q", "--", sys.executable, "-c", said, spin), cwd=lab.folder,
                               env=lab.environment(AACO_LAB_DIR=str(lab.folder / "lab")), stdout=subprocess.PIPE)
    assert process.stdout
    orphan = int(process.stdout.readline())
    try:
        held = _until(lambda: os.sched_getscheduler(orphan) == os.SCHED_FIFO, 10)
        process.kill()
        process.wait()
        assert _until(lambda: not left(lab))
        assert os.sched_getscheduler(orphan) == os.SCHED_OTHER
        assert "aaco" not in Path(f"/proc/{orphan}/cgroup").read_text()
    finally:
        os.kill(orphan, signal.SIGKILL)
    if not held:
        pytest.skip("real time is not to be had here, so nothing had to be taken back")


def test_what_a_killed_watchdog_could_not_do_is_done_by_hand(lab: Aaco) -> None:
    """Both killed: `lab status` shows it, `lab restore` undoes it, once more harms nothing."""
    before = laboratory.readings(-1)
    process = subprocess.Popen(lab.command("lab", "run", "-q", "--level", "strict", "--", sys.executable, "-c",
                                           "import time; print('up', flush=True); time.sleep(60)"),
                               cwd=lab.folder, env=lab.environment(AACO_LAB_DIR=str(lab.folder / "lab")),
                               stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"up\n"
    assert "running" in run(lab, "status").stdout
    for child in _children(process.pid):
        if b"laboratory.watchdog" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)
    process.kill()
    process.wait()
    journals = json.loads(run(lab, "status", "--json").stdout)["laboratories"]
    assert [each["state"] for each in journals] == ["abandoned"]
    run(lab, "restore")
    assert "nothing was left" in run(lab, "restore").stdout
    assert laboratory.readings(process.pid) == before
    assert left(lab) == []


def test_a_run_in_a_laboratory_keeps_its_manifest_and_says_the_level(lab: Aaco) -> None:
    """Mutations: a worker started without the launcher reports every CPU; a manifest that is not written."""
    done = lab("run", "gpt2-tiny", "--lab", "basic", "--lab-cpus", CPU, "--iterations", 20, "--full",
               AACO_LAB_DIR=str(lab.folder / "lab"))
    capsule = json.loads((lab.latest / "runtime/capsule.json").read_text())
    assert capsule["level"] == {"asked": "basic", "achieved": "basic"}
    assert capsule["cpus"] == str(CPU)
    assert [each["held"] for each in capsule["knobs"] if each["knob"] == "affinity"] == [True]
    assert "laboratory: basic asked, basic achieved" in done.stdout
    assert "runtime/capsule.json" in json.loads((lab.latest / "manifest.json").read_text())["files"]
    assert left(lab) == []
    inside = lab.latest
    lab("run", "gpt2-tiny", "--iterations", 20)
    told = lab.inside("diff", inside, lab.latest, "--json", expect=(0, 3, 4)).stdout
    assert "laboratory.level" in told  # another laboratory is another environment


def test_a_command_in_a_laboratory_is_what_runs_there(lab: Aaco) -> None:
    lab("profile", "--lab", "basic", "--lab-cpus", CPU, "-n", 2, "--", sys.executable, "-c", SHOW,
        AACO_LAB_DIR=str(lab.folder / "lab"))
    said = json.loads((lab.latest / "runtime/command-001.out").read_text())
    assert said[0] == [CPU]


def test_the_manifest_of_the_same_experiment_has_the_same_hash(lab: Aaco) -> None:
    """Mutation: with the times or the group's name in it, no two are the same."""
    hashes = set()
    for name in ("a.json", "b.json"):
        run(lab, "run", "-q", "--cpus", CPU, "--manifest", lab.folder / name, "--", "true")
        hashes.add(json.loads((lab.folder / name).read_text())["hash"])
    assert len(hashes) == 1
    run(lab, "run", "-q", "--level", "basic", "--cpus", CPU, "--manifest", lab.folder / "c.json", "--", "true")
    assert json.loads((lab.folder / "c.json").read_text())["hash"] not in hashes
    assert "the same experiment" in run(lab, "diff", lab.folder / "a.json", lab.folder / "b.json").stdout
    assert "level.asked: standard -> basic" in run(lab, "diff", lab.folder / "a.json", lab.folder / "c.json").stdout
    run(lab, "diff", lab.folder / "a.json", lab.folder / "nowhere.json", expect=2)


def test_an_entered_laboratory_stays_until_it_is_left(lab: Aaco) -> None:
    before = laboratory.readings(-1)
    run(lab, "enter", "--level", "strict", "--cpus", CPU)
    assert json.loads(run(lab, "status", "--json").stdout)["laboratories"][0]["state"] == "entered"
    assert "entered already" in run(lab, "enter", expect=2).stderr
    assert "nothing was left" in run(lab, "restore").stdout
    document = json.loads(run(lab, "exit", "--json").stdout)
    assert {each["fate"] for each in document["undone"]} <= {"restored", "untouched"}
    assert document["ended_utc"] > document["began_utc"]
    assert laboratory.readings(-1) == before
    assert left(lab) == []
    assert "no laboratory is entered" in run(lab, "exit", expect=2).stderr


def _until(holds: Callable[[], bool], patience_s: float = 30) -> bool:
    """Whether it holds within that time."""
    deadline = time.monotonic() + patience_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def _children(pid: int) -> list[int]:
    stats = {path: path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")}
    return [int(path.parent.name) for path, fields in stats.items() if int(fields[1]) == pid]
