"""`aaco trace --tool cupti`: Python programs that work on the device of a libcupti of our own."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.fakes import cupti

GUIDE = Path(__file__).parents[2] / "docs/guides/cuda.md"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return str(cupti.build(tmp_path_factory.mktemp("libcupti")))


def rows(aaco, query):
    return json.loads(aaco.inside("sql", "--format", "json", query).stdout)["rows"]


def test_the_guide(aaco, library):
    """Each command as it stands there; the program starts another one, which is traced, too."""
    (aaco.folder / "app.py").write_text(cupti.WORK + "work(4); import subprocess; "
                                        "subprocess.run([sys.executable, '-c', sys.argv[1]])\n")
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    traced, ran = "".join(blocks).splitlines()
    command, _, ends = ran.partition("  # exits with 6 without")
    assert ends
    assert "CUDAExecutionProvider is not in this" in aaco.inside(*shlex.split(command)[1:], expect=6).stderr
    done = aaco.inside(*shlex.split(traced)[1:], cupti.WORK + "work(2)", "--token", "tiger", AACO_CUPTI=library)
    assert "alpha" in done.stdout
    assert rows(aaco, "select kernel_name, count(*), sum(dur_ns)::int from kernels group by 1 order by 1") == [
        ["alpha", 3, 300], ["beta", 3, 600]]
    assert rows(aaco, "select count(*) from kernels join api_calls using (capture, correlation_id)") == [[6]]
    executions = json.loads((aaco.latest / "profiler/executions.json").read_text())
    assert executions["tools"] == {"cupti": {"path": library, "version": "130001"}}
    assert "tiger" not in (aaco.latest / "profiler/executions.json").read_text()


def test_a_program_that_is_killed_leaves_what_was_flushed_and_the_session_says_so(aaco, library):
    program = (cupti.WORK + "work(4); at = os.environ['AACO_CUPTI_TRACE']; made = at + '/' + os.listdir(at)[0]\n"
               "while os.path.getsize(made) < 5000: time.sleep(0.01)\nos.kill(os.getpid(), 9)")
    command = ["trace", "--tool", "cupti", "--ignore-failure", "--", sys.executable, "-c", program]
    done = aaco.inside(*command, AACO_CUPTI=library)
    assert "was killed, or never ended itself" in " ".join(done.stdout.split())
    assert rows(aaco, "select count(*) from kernels") == [[4]]


@pytest.mark.parametrize("without, said", [
    ({"AACO_CUPTI": "/no/libcupti.so"}, "/no/libcupti.so: cannot open"),
    ({"FAKE_CUPTI_ERROR": "cuptiActivityEnable10:35"}, "INSUFFICIENT_PRIVILEGES"),
    ({"FAKE_CUPTI_ERROR": "cuptiActivityEnable10:15"}, "NOT_INITIALIZED")])
def test_what_is_missing_is_one_line_before_anything_runs(aaco, library, without, said):
    (aaco.folder / "app.py").write_text("open('it ran', 'w')")
    done = aaco.inside("trace", "--tool", "cupti", "--", sys.executable, "app.py", expect=6,
                       **{"AACO_CUPTI": library} | without)
    assert said in done.stderr and len(done.stderr.splitlines()) == 2
    assert not (aaco.folder / "it ran").exists() and not (aaco.folder / "sessions").exists()
