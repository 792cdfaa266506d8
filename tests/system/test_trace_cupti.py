"""`aaco trace --tool cupti`: Python programs that work on the device of a libcupti of our own."""

import json
import os
import re
import shlex
import subprocess
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
    traced, *runs = "".join(blocks).splitlines()
    for ran, says in zip(runs, ("CUDAExecutionProvider is not in the installed",) * 2, strict=True):
        command, _, ends = ran.partition("  # exits with 6 without")
        assert ends
        assert says in aaco.inside(*shlex.split(command)[1:], expect=6).stderr
    done = aaco.inside(*shlex.split(traced)[1:], cupti.WORK + "work(2)", "--token", "tiger", AACO_CUPTI=library)
    assert "kernels 6" in " ".join(done.stdout.split())
    assert rows(aaco, "select kernel_name, count(*), sum(dur_ns)::int from kernels group by 1 order by 1") == [
        ["alpha", 3, 300], ["beta", 3, 600]]
    assert rows(aaco, "select count(*) from kernels join api_calls using (capture, correlation_id)") == [[6]]
    executions = json.loads((aaco.latest / "profiler/executions.json").read_text())
    assert executions["tools"] == {"cupti": {"path": library, "version": "130001"}}
    assert "tiger" not in (aaco.latest / "profiler/executions.json").read_text()


def test_what_is_recorded_beside_a_trace_is_on_its_clock(aaco, library, tmp_path):
    """A throttled device that another process works on. Mutations: the times not moved; read where nothing worked; a
    further execution watched; `analyze` without it; the devices of the kernels not looked at.
    """
    nvml = tmp_path / "driver/libnvidia-ml.so.1"
    nvml.parent.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-DCOUNT=2", "-DINIT=0", "-o", nvml,
                    cupti.SOURCE.with_name("nvml.c")], check=True)
    program = "time.sleep(0.3); work(2); time.sleep(2.2); work(2); time.sleep(1)\n"
    (aaco.folder / "app.py").write_text(cupti.WORK + program)
    aaco("trace", "--tool", "cupti", "--telemetry", "--", sys.executable, "app.py", AACO_CUPTI=library,
         FAKE_CUPTI_LIVE="1", LD_LIBRARY_PATH=str(nvml.parent), FAKE_NVML_USERS=f"{os.getpid()}:25,1:5",
         CUDA_DEVICE_ORDER="PCI_BUS_ID")
    for _ in range(2):
        readings = json.loads((aaco.latest / "metrics/derived_metrics.json").read_text())
        assert readings["device_throttled_pct"]["value"] == 100, readings["device_throttled_pct"]
        assert readings["device_processes_max"]["method"] == "of device 0: what CUDA calls 0 in the run"
        assert "belongs to this run" in readings["device_others_sm_pct"]["why_absent"]
        found = json.loads((aaco.latest / "metrics/bottleneck.json").read_text())
        assert "throttled_clock" in [one["label"] for one in found["conditions"]]
        inside = ("select count(*) from {} where t_ns between (select min(t_start_ns) from kernels) "
                  "and (select max(t_end_ns) from kernels)")
        [[watched]], [[every]] = (rows(aaco, query) for query in (inside.format("gpu_events"),
                                                                  "select count(*) from gpu_events"))
        assert 10 <= watched < every
        assert rows(aaco, inside.format("system_events"))[0][0] > 0
        assert rows(aaco, "select distinct clock from system_events where tier is not null") == [["realtime"]]
        said = " ".join(aaco.inside("report", "latest").stdout.split())
        assert "devices were read by NVML" in said and "the operating system was recorded by" in said
        aaco.inside("analyze")


def test_a_program_that_fails_keeps_what_was_recorded_beside_it(aaco, library):
    """Mutation: told only where it ended well."""
    aaco.inside("trace", "--tool", "cupti", "--telemetry", "--", sys.executable, "-c",
                cupti.WORK + "work(2); time.sleep(0.5); sys.exit(3)", AACO_CUPTI=library, expect=1)
    [execution] = json.loads((aaco.latest / "profiler/executions.json").read_text())["executions"]
    assert execution["code"] == 3 and execution["telemetry"]["achieved"]


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
