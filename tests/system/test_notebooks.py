"""The notebooks under examples/, each executed in a fresh kernel; what they print is computed anew from raw files."""

from __future__ import annotations

import gzip
import json
import math
import re
import warnings
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient
from scipy import optimize, stats

from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WHERE, SLOWER, TRACE = "1-where-did-the-time-go", "2-is-it-slower", "3-read-a-gpu-trace"
DISTURBED, COLLECTOR = "4-what-disturbed-it", "5-your-own-collector"
KERNEL_WAIT_NS, PAUSE_NS = 5_000, 250_000


@pytest.fixture
def execute(tmp_path, cache, monkeypatch):
    """Runs a notebook of the examples in an empty folder beside the captures; what each cell printed, by its id.
    `shorter`: what a cell says, and what it says here so that it takes less time."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    folder = tmp_path / "examples"
    folder.mkdir()
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    aaco = Aaco(folder, cache)

    def run(name: str, *shorter: str) -> tuple[Aaco, dict[str, str]]:
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        if shorter:
            [cell] = (cell for cell in notebook.cells if shorter[0] in cell.source)
            cell.source = cell.source.replace(*shorter)
        client = NotebookClient(notebook, timeout=240, kernel_name="python3",
                                resources={"metadata": {"path": str(folder)}})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the notebook machinery, about its own event loop
            client.execute(env=aaco.environment())
        return aaco, {cell.id: "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
                      for cell in notebook.cells if cell.cell_type == "code"}

    return run


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?", text)]


def latencies_ms(folder: Path) -> list[np.ndarray]:
    """Per process the measured latencies, from the raw rows."""
    found = [np.fromfile(path, "<i8").reshape(-1, 4) for path in sorted(folder.glob("runtime/iterations-*.i64"))]
    return [(rows[:, 3] - rows[:, 2])[rows[:, 1] == 1] / 1e6 for rows in found]


def test_every_notebook_is_here_and_the_repository_keeps_none_of_its_outputs():
    """Mutation: a notebook saved with its outputs."""
    assert sorted(path.stem for path in EXAMPLES.glob("*.ipynb")) == [WHERE, SLOWER, TRACE, DISTURBED, COLLECTOR]
    for path in EXAMPLES.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        for cell in notebook.cells:
            assert not re.search(r"(^|[\s\"'(])/\w", cell.source), cell.source  # a path of some machine
            assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)


def test_where_did_the_time_go(execute):
    """Mutation: Session.latency with the warm-up in it; top_kernels without the first."""
    aaco, printed = execute(WHERE, "budget_s=90", "budget_s=60")
    assert printed["run"].split() == ["complete", "CPUExecutionProvider", "50", "inferences"]
    measured = np.concatenate(latencies_ms(aaco.latest))
    median, low, high = numbers(printed["latency"].splitlines()[0])
    assert median == pytest.approx(np.percentile(measured, 50), abs=1e-4)
    assert {low, high} <= {float(f"{each:.4f}") for each in measured} and low <= median <= high
    assert "needs at least 100" in printed["latency"]

    nodes = profiled(aaco.latest)
    total, by_operator = sum(ns for _, _, ns in nodes), Counter()
    for _, operator, ns in nodes:
        by_operator[operator] += ns
    lines = printed["kernels"].splitlines()
    assert len(lines) == 5
    for line, (_, expected) in zip(lines, by_operator.most_common(5), strict=True):
        share, calls = numbers(line.rpartition(" ")[0])
        name = line.split()[-1]
        assert by_operator[name] == expected and share == pytest.approx(100 * expected / total, abs=0.006)
        assert calls == sum(operator == name for _, operator, _ in nodes)

    sole = single_nodes(aaco.latest)
    times = Counter()
    for name, _, ns in nodes:
        times[name] += ns
    shown = {line.split()[-1]: int(numbers(line)[0]) for line in printed["nodes"].splitlines()}
    assert len(shown) == 5
    for name, ns in shown.items():
        executed = sole.get(name)
        assert executed is None or ns == times[executed]
    assert shown.keys() & sole.keys()

    kept = json.loads((aaco.latest / "metrics/bottleneck.json").read_text())
    assert printed["bottleneck"].startswith(f"{kept['bottleneck_class']} - ")
    decided = json.loads((aaco.latest / "optimize/trials.jsonl").read_text().splitlines()[-1])
    kept, trial = printed["try"].splitlines()
    assert decided["step"] == "decided" and kept == f"kept: {decided['kept'] or 'no change'} - {decided['why']}"
    assert trial.startswith("no_spinning: ")
    assert "BOTTLENECK ANALYSIS" in printed["report"]
    assert aaco.latest.name in (aaco.folder / "bert-tiny.html").read_text()


def profiled(folder: Path) -> list[tuple[str, str, int]]:
    """Name, operator and ns of every node that the profiled pass executed after its warm-up."""
    events = json.loads(gzip.decompress((folder / "profiler/raw/ort_profile.json.gz").read_bytes()))
    warmup = json.loads((folder / "runtime/ort_config.json").read_text())["profile"]["warmup"]
    start = sorted(event["ts"] for event in events if event["name"] == "model_run")[warmup]
    return [(event["name"].removesuffix("_kernel_time"), event["args"]["op_name"], 1000 * event["dur"])
            for event in events if event["name"].endswith("_kernel_time") and event["ts"] >= start]


def single_nodes(folder: Path) -> dict[str, str]:
    """The nodes of the model that one executed node computes alone, and that one's name."""
    source = pq.read_table(folder / "model/graph_nodes.parquet").to_pylist()
    executed = pq.read_table(folder / "model/executed_nodes.parquet").to_pylist()
    return {source[node["source_nodes"][0]]["name"]: node["name"] for node in executed
            if len(node["source_nodes"]) == 1}


def test_is_it_slower(execute):
    """Mutation: a smallest detectable change of 2.0 standard errors."""
    aaco, printed = execute(SLOWER)
    assert printed["baseline"].split() == ["history.db"]
    before, after, planted = (np.log([np.median(process) for process in latencies_ms(folder)])
                              for folder in sorted(aaco.folder.glob("sessions/2*/2*")))
    assert len(before) == len(after) == len(planted) == 5
    status, _, rest = printed["verdict"].partition(" - ")
    assert status in ("inconclusive", "equivalent", "regressed", "improved") and rest
    effect, detectable = (numbers(line)[0] for line in printed["verdict"].splitlines()[1:3])
    assert effect == pytest.approx(100 * math.expm1(after.mean() - before.mean()), abs=1e-3)
    error = math.sqrt((before.var(ddof=1) + after.var(ddof=1)) / 2 * (1 / 5 + 1 / 5))
    beyond = stats.t.isf(0.005, 8)  # at 99 % of confidence, the default
    length = optimize.brentq(lambda shift: stats.nct.sf(beyond, 8, shift) - 0.8, 0, 20)
    assert detectable == pytest.approx(100 * math.expm1(length * error), abs=1e-3)

    assert "did not measure the same thing" in printed["refusal"] and "batch 1 -> 4" in printed["refusal"]
    status, regressed, severity = printed["forced"].splitlines()[0].split()
    effect, low, high = numbers(printed["forced"].splitlines()[1])
    change = planted.mean() - before.mean()
    assert effect == pytest.approx(100 * math.expm1(change), abs=1e-3)
    half = beyond * math.sqrt((before.var(ddof=1) + planted.var(ddof=1)) / 2 * (1 / 5 + 1 / 5))
    assert [low, high] == pytest.approx([100 * math.expm1(change - half), 100 * math.expm1(change + half)], rel=1e-5,
                                        abs=1e-3)  # as many digits are printed
    assert (status, regressed) == (("regressed", "True") if low > 5 else ("inconclusive", "None"))
    assert (severity == "none") == (status != "regressed")
    assert printed["all"].startswith(status.upper())


def test_read_a_gpu_trace(execute):
    """Mutation: contrast() with its sides exchanged; busy time without the fills."""
    _, printed = execute(TRACE)
    events = trace("nchw")
    kernels, other = trace_of(events, "kernel"), trace_of(events, "kernel", "gpu_memset")
    assert printed["import"].split() == [str(len(kernels)), "kernels"]
    assert printed["truth"].startswith("trusted: True\n")

    totals, calls = Counter(), Counter()
    for event in kernels:
        totals[event["name"]] += event["ns"]
        calls[event["name"]] += 1
    for line, (name, ns) in zip(printed["top"].splitlines(), totals.most_common(5), strict=True):
        assert line == f"{ns:12,d} ns {calls[name]:5d} calls  {name[:80]}"

    span, idle, causes = idleness(other, events)
    lines = printed["idle"].splitlines()
    assert [int(numbers(line)[0]) for line in lines[:3]] == [span, span - idle, idle]
    assert sorted(lines[3:]) == sorted(
        f"{ns:12,d} ns idle by {name}, {count:,d} gaps" for name, (ns, count) in causes.items())

    totals, calls = Counter(), Counter()
    for event in trace_of(events, "cuda_runtime"):
        totals[event["name"]] += event["ns"]
        calls[event["name"]] += 1
    assert printed["sql"].splitlines() == [f"{ns:12,d} ns {calls[name]:5d} calls  {name}"
                                           for name, ns in totals.most_common(3)]

    later = trace_of(trace("nhwc"), "kernel")
    spans = [max(event["end"] for event in side) - min(event["start"] for event in side) for side in (kernels, later)]
    lines = printed["diff"].splitlines()
    assert lines[0] == f"{spans[0]:,d} -> {spans[1]:,d} ns, {spans[1] - spans[0]:+,d} ns"
    for line in lines[1:]:
        delta, times_before, times_after = map(int, numbers(line.replace("->", " "))[:3])
        name = line.split(maxsplit=5)[5]
        rows = [[event["ns"] for event in side if event["name"].startswith(name)] for side in (kernels, later)]
        assert (delta, times_before, times_after) == (sum(rows[1]) - sum(rows[0]), len(rows[0]), len(rows[1]))
    assert len(lines) == 4 and "TRACE DIFFERENCE" in printed["all"]


def test_what_disturbed_it(execute):
    """Mutation: Session.sql on a table without its last row group; noise_reasons dropped."""
    aaco, printed = execute(DISTURBED)
    events = pq.read_table(aaco.latest / "telemetry/system_events.parquet", columns=["tier"])["tier"].to_pylist()
    assert printed["run"].splitlines() == [f"{tier} {count}" for tier, count in sorted(Counter(events).items())]
    processes = latencies_ms(aaco.latest)
    assert [len(each) for each in processes] == [200, 200]
    for line, (number, measured) in zip(printed["process"].splitlines(), enumerate(processes), strict=True):
        assert line == f"{number} {np.median(measured):.6f} ms over {len(measured)}"
    iterations = pq.read_table(aaco.latest / "metrics/inference_iters.parquet").to_pylist()
    known = {(row["process"], row["iteration"]): row for row in iterations if row["phase"] == "measurement"}
    slowest = sorted(((-ms, number, turn) for number, each in enumerate(processes) for turn, ms in enumerate(each)))
    for line, (negative, number, turn) in zip(printed["slowest"].splitlines(), slowest[:5], strict=True):
        assert line.startswith(f"{number} {turn} {-negative:.6f} ms ")
        reasons = known[number, turn]["noise_reasons"]
        assert line.endswith("; ".join(reasons or ["no recorded reason"]))
    said = dict(line.split(" ", 1) for line in (printed["disturbed"] + printed["cost"]).splitlines())
    judged = [row["clean"] for row in known.values()]
    assert None not in judged and float(said["clean_pct"]) == pytest.approx(100 * sum(judged) / len(judged), abs=1e-3)
    events = json.loads(gzip.decompress((aaco.latest / "profiler/raw/ort_profile.json.gz").read_bytes()))
    warmup = json.loads((aaco.latest / "runtime/ort_config.json").read_text())["profile"]["warmup"]
    runs = sorted((event["ts"], event["dur"]) for event in events if event["name"] == "model_run")[warmup:]
    kernels = sum(ns for _, _, ns in profiled(aaco.latest))
    closure = float(said["closure_ratio"].split()[0])
    assert closure == pytest.approx(kernels / (1000 * sum(length for _, length in runs)), rel=1e-3)


def test_your_own_collector(execute):
    """Mutations: plug-ins are not asked when events are read again; their metrics are not loaded."""
    aaco, printed = execute(COLLECTOR)
    watched, = (path for path in aaco.folder.glob("sessions/2*/2*") if (path / "telemetry/raw").exists())
    raw = (watched / "telemetry/raw/open_files-000.bin").read_bytes()
    counts = np.frombuffer(raw, "<i8", offset=16)[1::2]
    assert raw.startswith(b"OPENFILE") and len(counts) > 1 and counts.max() > 3
    assert printed["run"].split() == f"open_files {len(counts)} samples, at most {float(counts.max())} files".split()
    assert printed["metric"].split() == [str(float(counts.max())), "files"]
    assert printed["absent"].startswith("None - the run was made without --telemetry")
    told = json.loads((watched / "runtime/ort_config.json").read_text())["passes"][0]["telemetry"]["tiers"]
    assert told["open_files"]["samples"] == len(counts) and "T1" in told


def trace(layout: str) -> list[dict]:
    """The events of a recording that last, with start, end and ns in whole ns."""
    text = gzip.decompress((ROOT / f"tests/captures/torch_h200/resnet50_{layout}.json.gz").read_bytes())
    events = [event for event in json.loads(text, parse_float=Decimal)["traceEvents"] if event["ph"] == "X"]
    for event in events:
        event["start"], event["ns"] = int(1000 * event["ts"]), int(1000 * event["dur"])
        event["end"] = event["start"] + event["ns"]
    return events


def trace_of(events: list[dict], *categories: str) -> list[dict]:
    return sorted((event for event in events if event["cat"] in categories), key=lambda event: event["start"])


def idleness(work: list[dict], events: list[dict]) -> tuple[int, int, dict[str, tuple[int, int]]]:
    """Span and idle time of the device, and the gaps by cause as far as this recording needs it: the next launch came
    late, of which a wait took its part since the call before it, all of it where the host did not pause after that; or
    it was there and this is the way from one kernel to the next."""
    calls = trace_of(events, "cuda_runtime", "cuda_driver")
    launches = {event["args"]["correlation"]: event for event in calls}
    waits = [(call["end"], call["end"] - (before["end"] if call["start"] - before["end"] < PAUSE_NS else call["start"]))
             for before, call in pairwise(calls) if call["name"] == "cudaDeviceSynchronize"]
    spent, count, reach = Counter(), Counter(), work[0]["end"]
    for event in work[1:]:
        if (gap := event["start"] - reach) > 0:
            launch = launches[event["args"]["correlation"]]
            late = launch["end"] > reach
            assert late or gap <= KERNEL_WAIT_NS
            took = next((took for end, took in reversed(waits) if end <= launch["start"] and end > reach), None)
            waited = min(gap, took) if late and took is not None else 0
            if late and took is not None and gap - waited < PAUSE_NS:
                waited = gap  # launching again after the queue was drained
            spent["sync_wait"] += waited
            spent["host_wait" if late else "kernel_wait"] += gap - waited
            count[("sync_wait" if waited > gap - waited else "host_wait") if late else "kernel_wait"] += 1
        reach = max(reach, event["end"])
    return (reach - work[0]["start"], spent.total(), {cause: (ns, count[cause]) for cause, ns in spent.items()})
