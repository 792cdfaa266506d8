"""One command, one process: what it took against the kernel's own account, and that nothing of it is left behind."""

import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aaco.core.errors import AacoError, Missing
from aaco.core.plan import Command, Plan
from aaco.core.redaction.command_line import redact_command
from aaco.runner import command, iterations

PYTHON = sys.executable
# What the command says of itself as its last act, by getrusage(2).
ACCOUNT = """
import resource, sys, time
block = bytearray({size}); end = time.process_time() + {busy}
while time.process_time() < end: pass
for _ in range({naps}): time.sleep(0.001)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss, usage.ru_minflt, usage.ru_nvcsw, usage.ru_nivcsw)
"""


def python(text, **options):
    return command.run([PYTHON, "-c", text], **options)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid, within_s=60):
    end = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


def test_the_account_is_the_kernels():
    ran = python(ACCOUNT.format(size=64 << 20, busy=0.2, naps=50))
    cpu_s, kib, faults, switches, forced = map(float, ran.stdout.split())
    assert 0 <= (ran.user_ns + ran.system_ns) / 1e9 - cpu_s < cpu_s  # what it took to end
    assert abs(ran.max_rss_bytes - 1024 * kib) < 4 << 20  # the kernel adds up what CPUs keep to themselves now and then
    assert 0 <= ran.faults_minor - faults < 2000
    assert switches <= ran.switches_voluntary < switches + 100
    assert switches + forced >= 50  # who is preempted on the way into a nap has switched, but not by its own will
    assert ran.wall_ns > 0.2e9 + 50e6


def test_wall_time_is_that_of_the_caller():
    before = time.monotonic_ns()
    ran = command.run(["sleep", "0.3"])
    after = time.monotonic_ns()
    assert before < ran.start_ns < ran.end_ns < after
    assert 0.3e9 <= ran.wall_ns < after - before
    assert ran.user_ns + ran.system_ns < 0.3e9  # it sleeps


def test_children_that_were_waited_for_count():
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    ran = command.run(["sh", "-c", f"{PYTHON} -c '{busy}'; exit 0"])
    assert ran.user_ns + ran.system_ns >= 0.3e9


def test_our_own_size_is_not_the_commands():
    """subprocess alone says that `true` takes all that this process does: exec hands the size on."""
    bare = subprocess.Popen(["true"])
    _, bare.returncode, usage = os.wait4(bare.pid, 0)
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ran = command.run(["true"])
    assert ran.max_rss_bytes is None and ran.max_rss_floor_bytes < 20 << 20
    assert ran.max_rss_floor_bytes < usage.ru_maxrss * 1024 <= ours


def test_nothing_is_on_stdin_and_no_shell_reads_the_words(tmp_path):
    assert python("import sys; print(repr(sys.stdin.read()))").stdout == b"''\n"
    words = ["$HOME", "`id`", "a;b", "* ?", "", "-n", "--", "\n", "'\"", "ünï", os.fsdecode(b"\xff\xfe")]
    ran = command.run([PYTHON, "-c", "import os,sys; os.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])))", *words])
    assert ran.stdout.split(b"\0") == [os.fsencode(word) for word in words]


def test_signals_are_as_a_shell_leaves_them():
    status = dict(line.split(":\t") for line in command.run(["cat", "/proc/self/status"]).stdout.decode().splitlines())
    assert int(status["SigBlk"], 16) == 0
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python ignores the first two
        assert not int(status["SigIgn"], 16) >> number - 1 & 1


def test_a_command_that_stops_its_group_stops_only_itself():
    assert command.run(["sh", "-c", "kill 0"]).code == -signal.SIGTERM


def test_output_is_kept_up_to_the_cap_and_counted_beyond():
    ran = python("import os\nfor _ in range(48): os.write(1, b'x' * 65536)\nos.write(2, b'one\\ntwo\\n')")
    assert ran.stdout == b"x" * command.KEEP_BYTES and ran.stdout_bytes == 48 << 16
    assert ran.stderr == b"one\ntwo\n" and ran.last_words == "two"


def test_output_is_copied_as_it_comes_and_still_kept():
    """Mutation: copied only at the end; the descriptor left to the command."""
    source, target = os.pipe()
    copied = []

    def read(pid):
        is_there, _, _ = select.select([source], [], [], 10)
        copied.append(os.read(source, 100) if is_there else b"")
        os.kill(pid, signal.SIGKILL)

    ran = python("import os, time; os.write(1, b'shown\\n'); time.sleep(60)", started=read, copy_fd=target)
    os.close(target)
    assert copied == [b"shown\n"] and ran.stdout == b"shown\n" and ran.code == -signal.SIGKILL
    assert os.read(source, 100) == b"", "a process still holds the descriptor"


def test_a_missing_command_is_named(tmp_path):
    with pytest.raises(Missing, match="frobnicate-7"):
        command.run(["frobnicate-7"])
    text = tmp_path / "text"
    text.write_text("#!/nowhere/interpreter\n")
    with pytest.raises(Missing, match="text"):
        command.run([str(text)])
    text.chmod(0o755)
    with pytest.raises(Missing, match="No such file"):
        command.run([str(text)])
    text.write_bytes(b"\x7fELFnot")
    with pytest.raises(Missing, match="format"):
        command.run([str(text)])


@pytest.mark.parametrize(("script", "code", "words"), [
    ("exit 3", 3, "ended with exit code 3"), ("kill -SEGV $$", -11, "was killed by SIGSEGV")])
def test_how_it_ended(script, code, words):
    ran = command.run(["sh", "-c", script])
    assert ran.code == code and command.ending(ran.code) == words


def test_a_timeout_ends_grandchildren_too(tmp_path):
    script = f"sleep 120 & echo $! > {tmp_path}/pid; (sleep 121 & echo $! > {tmp_path}/second; wait); wait"
    began = time.monotonic()
    with pytest.raises(AacoError, match=r"more than 2 s"):
        command.run(["sh", "-c", script], timeout_s=2)
    assert time.monotonic() - began < 60
    for name in ("pid", "second"):
        assert gone(int((tmp_path / name).read_text()))


def test_what_it_leaves_running_is_ended_with_it(tmp_path):
    ran = command.run(["sh", "-c", "sleep 120 & echo $!"])
    assert ran.code == 0 and ran.wall_ns < 60e9
    assert gone(int(ran.stdout))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_does_not_outlive_us(tmp_path, how):
    text = f"from aaco.runner import command; command.run(['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 120; true'])"
    us = subprocess.Popen([PYTHON, "-c", text], stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.02)
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    us.send_signal(how)
    us.wait(60)
    assert gone(pid)


def test_a_run_becomes_a_row(tmp_path):
    for process, phase in enumerate(("warmup", "measurement")):
        ran = command.run(["true"])
        command.keep(tmp_path, process, phase, ran)
    table = iterations.parse(tmp_path, 1)
    assert table["phase"].to_pylist() == ["warmup", "measurement"] and table["process"].to_pylist() == [0, 1]
    assert table["latency_ms"].to_pylist()[1] == ran.wall_ns / 1e6


def test_a_plan_of_a_command():
    plan = Plan.of_command(Command(argv=["/usr/bin/env", os.fsdecode(b"\xff")]), runs=3)
    assert (plan.model, plan.backend, plan.processes, plan.warmup, plan.iterations) == ("env", "host", 3, 1, 1)
    assert not plan.profile


SECRET = "hunter2hunter2"


@pytest.mark.parametrize("words", [
    [f"--password={SECRET}"], ["--password", SECRET], [f"API_TOKEN={SECRET}"], ["--api-key", SECRET],
    [f"postgres://me:{SECRET}@db/x"], ["-H", f"Authorization: Bearer {SECRET}"], [f"token: {SECRET}"],
    [f"-p{SECRET}"], ["--pw", SECRET], [f"--pw={SECRET}"], ["-pw", SECRET], ["--pass", SECRET],
    ["-d", f'{{"api_key":"{SECRET}"}}'], ["-d", f"{{'user': 1, 'password': '{SECRET}'}}"], [f"--token={SECRET}"],
    ["-u", f"me:{SECRET}"], [f"-ume:{SECRET}"], [f"--user=me:{SECRET}"], ["--proxy-user", f"me:{SECRET}"],
    [f"AWS_SECRET_ACCESS_KEY={SECRET}"], ["mysql", f"-p{SECRET}"], ["/usr/bin/mysqldump", "-uroot", f"-p{SECRET}"],
    ["docker", "login", "-u", "me", "-p", SECRET], ["redis-cli", "-a", SECRET], ["sshpass", "-p", SECRET, "ssh"],
    ["sh", "-c", f"curl -u me:{SECRET} http://x"], ["sh", "-c", f"mysql -uroot -p{SECRET} < x"],
    ["sh", "-c", f"PGPASSWORD='{SECRET}' psql"], ["unzip", "-P", SECRET, "x.zip"], [f"ftp://me:{SECRET}@host/"]])
def test_credentials_are_redacted_in_the_words_and_in_the_output(words):
    """In any form, alone in the output too. Mutations: redacting whole words only; looking at no flag of a program."""
    shown = redact_command(["program", *words, "plain"])
    assert SECRET not in " ".join(shown.words) and shown.words[0] == "program" and shown.words[-1] == "plain"
    assert SECRET.encode() not in shown.redact_output(b"it said " + SECRET.encode() + b".")
    for credential in shown.credentials:
        assert SECRET.encode() not in shown.redact_output(b"said: " + credential.encode() + b".")


def test_what_is_said_loses_credentials_that_were_in_no_word():
    said = b"> Authorization: Basic bWU6aHVudGVyMg\xff\n\xfe\x00 password=hunter2hunter2\n"
    output = redact_command(["curl", "-v", "x"]).redact_output(said)
    assert b"bWU6" not in output and b"hunter2" not in output
    assert output.startswith(b"> Authorization: Basic <withheld>") and b"\n\xfe\x00 password=" in output


def test_a_key_is_not_taken_for_a_name():
    for word in ("sk-aB3dE5gH7jK9mN1pQ3=", "AKIAIOSFODNN7EXAMPLE=x", "dGhpcyBpcyBhIHNlY3JldCBrZXk5=="):
        assert redact_command([word]).words == ["<withheld>"]


def test_plain_words_stay():
    words = ["python3", "-c", "print(sum(range(1000)))", "--size=1000", "--out", "/tmp/results/file-01.json", "-n", "8"]
    assert redact_command(words) == (words, ())
    words = ["docker", "run", "-u", "1000:1000", "-p", "8080:80", "image:tag", "sh", "-c", "ls -p /x | sort -u",
             "ssh", "-p", "22", "host:/path", "max_new=5", "a::b<c>", "print", "-print"]
    assert redact_command(words) == (words, ())
    # Sessions, and folders of mktemp(1): of forty ids, and of five folders, one and four look random.
    words = ["aaco", "show", "20261130_120000_0f3a2b", "./20261130_120000_0f3a2b/x", "/tmp/tmp.Xa81nsA0aP/m"]
    assert redact_command(words) == (words, ())


def test_short_values_do_not_riddle_the_output():
    shown = redact_command(["x", "--api-key=5"])
    assert shown.words == ["x", "--api-key=<withheld>"] and shown.redact_output(b"15 of 25") == b"15 of 25"
