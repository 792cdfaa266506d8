"""`aaco llm MODEL`: decoders in a process of their own, and what their answers are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from aaco import cli, markers
from aaco.cli import llm
from aaco.core import clocks
from aaco.core.config import Settings, resolve
from aaco.core.errors import ModelError, UsageError
from aaco.core.records import as_dict
from aaco.core.session import Session, sessions
from aaco.core.tables import ENGINE_STEPS, KERNELS, LLM_EVENTS, REQUESTS
from aaco.llm import decoders
from aaco.llm.decoders import OnnxDecoder
from aaco.pipeline import Run, analyze, import_captures
from aaco.runner import ort as passes
from aaco.runner import registry, zoo
from aaco.runner.job import Job
from aaco.runner.ort import Workload
from aaco.steps import readings
from aaco.tracelake import documents, layout, store
from aaco.tracelake.queries import QueryableSession
from aaco.workflows import decode_run, export_trace
from aaco.workflows.decode_run import DecodeRequest
from aaco.workflows.llm_run import LoadRequest
from tests.fakes import nsys

CACHE = Path(os.environ.get("AACO_CACHE_DIR", "~/.cache/aaco")).expanduser() / "models"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve(overrides={"storage": {"sessions_dir": tmp_path / "sessions"}})


def asked(settings: Settings, model: str = "llama-tiny", **given: Any) -> Run:
    fields = {"requests": 6, "prompt_tokens": "8", "max_tokens": "5", **given}
    return decode_run.ask_decoder(DecodeRequest(model, **fields), settings)


def requests(run: Run) -> list[dict[str, Any]]:
    return store.read(run.session, REQUESTS).to_pylist()


def decoder(model: str, tmp_path: Path) -> tuple[OnnxDecoder, Path]:
    path = zoo.build(model, CACHE)
    job = passes.job_of(Workload(path, registry.backends()["cpu"], {}, True), tmp_path)
    return OnnxDecoder(Job(kind="time", rows="", account="", warmup=0, iterations=0, **job)), path


@pytest.mark.parametrize("model", ["llama-tiny", "gpt2-tiny"])
def test_a_cache_answers_as_no_cache_does(tmp_path: Path, model: str):
    """Each token of a batch of unequal prompts is that of a plain pass over the whole text without cache or padding.

    Mutation: positions count the padding; the cache of the step before last.
    """
    made, path = decoder(model, tmp_path)
    drawn = np.random.default_rng(3)
    prompts = [drawn.integers(0, made.vocabulary, length) for length in (11, 4, 7)]
    ids, mask = np.zeros((2, 3, 11), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, 11 - len(prompt):], mask[row, 11 - len(prompt):] = prompt, 1
    made.start(ids, mask, 6)
    answers = [made.chosen]
    for _ in range(5):
        made.step()
        answers.append(made.chosen)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for row, prompt in enumerate(prompts):
        text = prompt.tolist()
        for step in range(6):
            logits = plain_logits(session, text)
            best = np.sort(logits)[-2:]
            assert answers[step][row] == logits.argmax() or best[1] - best[0] < 1e-4
            text.append(int(answers[step][row]))


def plain_logits(session: ort.InferenceSession, text: list[int]) -> np.ndarray:
    """The logits after a text, by one pass on an empty cache."""
    length = len(text)
    fed = {"input_ids": np.array([text]), "attention_mask": np.ones((1, length), np.int64),
           "position_ids": np.arange(length)[None]}
    caches = {item.name: np.zeros((1, item.shape[1], 0, item.shape[3]), np.float32)
              for item in session.get_inputs() if item.name.startswith("past")}
    return np.asarray(session.run(["logits"], fed | caches)[0][0, -1])


def test_every_token_is_counted_where_it_was_made(settings: Settings):
    """Lengths are those that were asked for, times are exact, a batch begins when the one before has ended."""
    run = asked(settings, requests=7, batch=3, prompt_tokens="4:9", max_tokens="2:6")
    rows = requests(run)
    drawn = np.random.default_rng(0)
    prompts, answers = drawn.integers(4, 10, 7).tolist(), drawn.integers(2, 7, 7).tolist()
    assert [(row["prompt_tokens"], row["output_tokens"]) for row in rows] == list(zip(prompts, answers, strict=True))
    assert {(row["tokens_source"], row["cached_tokens"], row["status"]) for row in rows} == {("counted", 0, "ok")}
    for row in rows:
        assert row["t_intended_ns"] <= row["t_send_ns"] < row["t_first_ns"] <= row["t_last_ns"] == row["t_end_ns"]
    assert len({row["t_send_ns"] for row in rows}) == 3
    assert rows[3]["t_intended_ns"] >= max(row["t_end_ns"] for row in rows[:3])
    events = QueryableSession(run.session.folder).table(LLM_EVENTS.name).to_pylist()
    assert len(events) == sum(answers)
    assert {(event["tokens"], event["earliest_ns"]) for event in events} == {(1, None)}
    of_last = [event["t_ns"] for event in events if event["request_id"] == 6]
    assert of_last == sorted(of_last) and of_last[0] == rows[6]["t_first_ns"]
    first, whole = (sum(row[name] - row["t_send_ns"] for row in rows) for name in ("t_first_ns", "t_last_ns"))
    assert run.metrics["prefill_share_pct"].value == pytest.approx(100 * first / whole)


def test_a_rate_makes_a_queue(settings: Settings):
    """2,000 a second are more than it answers: they wait, and together they are answered."""
    run = asked(settings, requests=40, rate_per_s=2000.0, batch=8, max_tokens="12")
    rows = requests(run)
    assert np.diff([row["t_intended_ns"] for row in rows]).tolist() == [500_000] * 39
    sizes = [sum(row["t_send_ns"] == at for row in rows) for at in dict.fromkeys(row["t_send_ns"] for row in rows)]
    assert max(sizes) == 8 and sum(sizes) == 40
    assert all(row["t_send_ns"] >= row["t_intended_ns"] for row in rows)
    ends = {row["t_send_ns"]: row["t_end_ns"] for row in rows}
    assert all(after >= ends[before] for before, after in pairwise(ends))
    endpoint = run.session.folder / "metrics/endpoint.json"
    assert '"label": "queue"' in endpoint.read_text()


def test_analysis_again_gives_the_same(settings: Settings):
    run = asked(settings)
    before = (run.session.folder / "metrics/endpoint.json").read_bytes()
    analyze(run.session, settings)
    assert (run.session.folder / "metrics/endpoint.json").read_bytes() == before


def test_marks_of_prefill_and_decode(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A session around it, or a profiler, sees them: one prefill and four steps for each of 1 + 6 answers."""
    monkeypatch.setenv(markers.PATH, str(tmp_path / "marks"))
    run = asked(settings)
    records = [markers.RECORD.unpack_from(raw) for raw in chunks((tmp_path / "marks").read_bytes())]
    kinds = [markers.KINDS[record[1]] for record in records]
    assert (kinds.count("prefill"), kinds.count("decode")) == (7, 3 + 6 * 4)
    assert {record[6] for record in records if markers.KINDS[record[1]] == "prefill"} == {8}
    assert_steps_hold_marks_and_tokens(run, [record for record in records if record[1] in (
        markers.PREFILL, markers.DECODE)][-30:], tmp_path / "requests.json")


def assert_steps_hold_marks_and_tokens(run: Run, marks: list[Any], path: Path) -> None:
    """Steps, marks and tokens are on one clock, and so they are drawn. Mutation: steps begin with the one before."""
    steps = store.read(run.session, ENGINE_STEPS).to_pylist()
    assert [step["phase"] for step in steps] == (["prefill"] + ["decode"] * 4) * 6
    ended = 0
    for step, (_, kind, begin, length, *_) in zip(steps, marks, strict=True):
        assert markers.KINDS[kind] == step["phase"]
        assert ended <= step["t_start_ns"] <= begin and begin + length <= step["t_end_ns"]
        ended = step["t_end_ns"]
    events = QueryableSession(run.session.folder).table(LLM_EVENTS.name)["t_ns"].to_pylist()
    assert sorted(events) == [step["t_end_ns"] for step in steps]
    export_trace.export(run.session, path, "chrome")
    drawn = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    spans = {name: [(event["ts"], event["ts"] + event["dur"]) for event in drawn if event["name"] == name]
             for name in ("TTFT", "prefill")}
    assert [sum(begin <= start and end <= until + 0.01 for start, end in spans["prefill"])
            for begin, until in spans["TTFT"]] == [1] * 6
    assert "slow_tokens" not in run.explanation.examined


def test_the_kernels_of_a_traced_decoder_are_drawn_under_its_requests(settings: Settings, tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch):
    """The trace is of the session that the variable names, on the wall clock: one kernel in the middle of each step.

    Mutations: the variable is not read; the times are not moved, or the other way.
    """
    traced = import_captures([nsys.example(tmp_path / "report.sqlite")], settings).session
    offsets = clocks.snapshot()
    traced.amend(clocks=as_dict(offsets))
    monkeypatch.setenv("AACO_TRACED_BY", traced.id)
    run = asked(settings, requests=2)
    steps = store.read(run.session, ENGINE_STEPS).to_pylist()
    middle = np.array([(step["t_start_ns"] + step["t_end_ns"]) // 2 for step in steps])
    begin = middle + offsets.realtime_ns - offsets.monotonic_ns
    store.write(traced, KERNELS, KERNELS.build(
        kernel_id=range(len(begin)), kernel_name=["gemm"] * len(begin), t_start_ns=begin, t_end_ns=begin + 10,
        dur_ns=[10] * len(begin), device_id=[0] * len(begin), capture=[0] * len(begin)))
    on_clock(traced, "realtime")
    drawn = kernels_drawn(run, tmp_path / "trace.json")
    assert drawn == pytest.approx(middle.tolist(), abs=2000) and len(drawn) == 2 * 5
    on_clock(traced, "device")
    assert kernels_drawn(run, tmp_path / "trace.json") == []


def on_clock(traced: Session, clock: str) -> None:
    document = documents.require(traced, layout.CAPTURES)
    (capture,) = document["captures"]
    traced.write_json(layout.CAPTURES, document | {"captures": [capture | {"clock": clock}]})


def kernels_drawn(run: Run, path: Path) -> list[float]:
    export_trace.export(run.session, path, "chrome")
    return sorted(event["ts"] * 1000 for event in json.loads(path.read_text())["traceEvents"]
                  if event["ph"] == "X" and event["name"] == "gemm")


def chunks(raw: bytes) -> list[bytes]:
    return [raw[at:at + markers.RECORD.size] for at in range(0, len(raw), markers.RECORD.size)]


@pytest.fixture
def genai_folder(settings: Settings, tmp_path: Path) -> Path:
    """The zoo's decoder as a model of onnxruntime-genai, as `aaco models --genai` writes it."""
    pytest.importorskip("onnxruntime_genai", reason="the extra genai is not installed")
    decode_run.write_genai("llama-tiny", tmp_path / "genai", settings)
    return tmp_path / "genai"


def test_a_folder_for_genai_has_what_the_graph_says(settings: Settings, tmp_path: Path):
    """Mutation: a table of positions is no limit. A model without a cache, and a folder with files, are refused."""
    words = ["models", "--genai", "gpt2-tiny", str(tmp_path / "made")]
    assert cli.outcome(cli.app, "aaco", words) == 0 and cli.outcome(cli.app, "aaco", words) == 2
    document = json.loads((tmp_path / "made/genai_config.json").read_text())
    model, search = document["model"], document["search"]
    assert (model["vocab_size"], model["context_length"], search["max_length"]) == (4096, 1024, 1024)
    assert [model["decoder"][name] for name in ("head_size", "num_key_value_heads", "num_hidden_layers")] == [32, 4, 2]
    assert (tmp_path / "made" / model["decoder"]["filename"]).stat().st_size > 4_000_000
    with pytest.raises(ModelError, match="has no input_ids"):
        decode_run.write_genai("resnet18", tmp_path / "none", settings)
    assert not (tmp_path / "none").exists()


def test_a_folder_for_genai_has_the_weights_beside_the_model(settings: Settings, tmp_path: Path):
    """Mutation: the model alone. A cache of another form is refused."""
    proto = onnx.load(zoo.build("gpt2-tiny", CACHE))
    (tmp_path / "weights").mkdir()
    onnx.save(proto, tmp_path / "big.onnx", save_as_external_data=True, location="weights/all.bin")
    decode_run.write_genai(str(tmp_path / "big.onnx"), tmp_path / "made", settings)
    assert (tmp_path / "made/weights/all.bin").read_bytes() == (tmp_path / "weights/all.bin").read_bytes()
    assert (tmp_path / "made/big.onnx").read_bytes() == (tmp_path / "big.onnx").read_bytes()

    def flat(proto: onnx.ModelProto) -> None:
        cache = next(each for each in proto.graph.input if each.name == "past_key_values.0.key")
        del cache.type.tensor_type.shape.dim[2:]

    with pytest.raises(ModelError, match="not fixed"):
        decode_run.write_genai(changed(zoo.build("gpt2-tiny", CACHE), tmp_path / "flat.onnx", flat),
                               tmp_path / "flat", settings)


@pytest.mark.parametrize("model", ["llama-tiny", "gpt2-tiny"])
def test_genai_answers_as_the_same_model_does_here(settings: Settings, tmp_path: Path, model: str):
    pytest.importorskip("onnxruntime_genai", reason="the extra genai is not installed")
    from aaco.llm.decoders import GenaiDecoder

    decode_run.write_genai(model, tmp_path / "genai", settings)
    theirs, (ours, _) = GenaiDecoder(tmp_path / "genai"), decoder(model, tmp_path)
    assert theirs.padding == 0
    prompts = np.random.default_rng(1).integers(1, 4096, (2, 9))
    theirs.start(prompts, np.ones_like(prompts), 6)
    ours.start(prompts, np.ones_like(prompts), 6)
    for _ in range(5):
        assert theirs.chosen.tolist() == ours.chosen.tolist()
        theirs.step()
        ours.step()


def test_genai_counts_its_prefill(genai_folder: Path, settings: Settings, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch):
    """append_tokens computes the prompt: the first token of 512 takes longer than ten more. Mutation: it is outside.

    Its steps are marked, and in the table, as those of a decoder in ONNX Runtime are.
    """
    monkeypatch.setenv(markers.PATH, str(tmp_path / "marks"))
    fields = {"requests": 3, "prompt_tokens": "512", "max_tokens": "5", "batch": 2}
    run = decode_run.ask_decoder(DecodeRequest(genai=genai_folder, **fields), settings)
    rows = requests(run)
    assert {(row["status"], row["output_tokens"], row["prompt_tokens"]) for row in rows} == {("ok", 5, 512)}
    steps = store.read(run.session, ENGINE_STEPS)
    assert steps["phase"].to_pylist() == ["prefill", *["decode"] * 4] * 2
    assert steps["context_requests"].to_pylist()[::5] == [2, 1]
    kinds = [markers.KINDS[markers.RECORD.unpack_from(raw)[1]] for raw in chunks((tmp_path / "marks").read_bytes())]
    assert (kinds.count("prefill"), kinds.count("decode")) == (1 + 2, 3 + 2 * 4)
    assert run.metrics["prefill_share_pct"].value > 50
    assert "onnxruntime-genai" in (run.session.folder / "runtime/load.json").read_text()
    with pytest.raises(UsageError, match="different lengths"):
        decode_run.ask_decoder(DecodeRequest(genai=genai_folder, **fields | {"prompt_tokens": "2:9"}), settings)


def test_a_folder_without_a_configuration_is_refused(settings: Settings, tmp_path: Path):
    pytest.importorskip("onnxruntime_genai", reason="the extra genai is not installed")
    with pytest.raises(UsageError, match="it has no genai_config"):
        decode_run.ask_decoder(DecodeRequest(genai=tmp_path), settings)


def changed(model: Path, to: Path, change: Callable[[onnx.ModelProto], None]) -> str:
    """The path of a model that was changed."""
    proto = onnx.load(model)
    change(proto)
    onnx.save(proto, to)
    return str(to)


def test_a_decoder_without_its_whole_interface_is_refused(settings: Settings, tmp_path: Path):
    """A cache that is not given back, an input that nobody feeds, a vocabulary of any size."""
    model = zoo.build("gpt2-tiny", CACHE)

    def more(proto: onnx.ModelProto) -> None:
        proto.graph.input.append(onnx.helper.make_tensor_value_info("bias", onnx.TensorProto.FLOAT, [1]))
        proto.graph.node.append(onnx.helper.make_node("Identity", ["bias"], ["bias_out"], name="more"))
        proto.graph.output.append(onnx.helper.make_tensor_value_info("bias_out", onnx.TensorProto.FLOAT, [1]))

    def less(proto: onnx.ModelProto) -> None:
        kept = [output for output in proto.graph.output if output.name != "present.1.value"]
        del proto.graph.output[:]
        proto.graph.output.extend(kept)

    for change, said in ((more, "its input bias"), (less, "is not given back")):
        with pytest.raises(ModelError, match=said):
            asked(settings, changed(model, tmp_path / f"{change.__name__}.onnx", change))


@pytest.mark.parametrize(("given", "error", "said"), [
    ({"model": "resnet18"}, ModelError, "no decoder with a key-value cache"),
    ({"model": "gpt2-tiny", "prompt_tokens": "1020", "max_tokens": "9"}, UsageError, "the decoder failed"),
    ({"rate_per_s": 1.0, "poisson_per_s": 1.0}, UsageError, "two plans"),
    ({"genai": Path("x")}, UsageError, "a model of its own")])
def test_what_cannot_be_is_refused(settings: Settings, given: dict[str, Any], error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        asked(settings, **given)


def test_options_of_the_other_kind_are_refused(settings: Settings, capfd: pytest.CaptureFixture[str]):
    """Each is of one kind, or of both. Mutation: they are taken and not used."""
    server, decoder = (set(kind.__struct_fields__) for kind in (LoadRequest, DecodeRequest))
    assert set(llm.OF_SERVERS) == server - decoder - {"url"} | {"model"}
    assert set(llm.OF_DECODERS) == decoder - server
    for words, said in ((["llama-tiny", "--body", "{}"], "--body is not for a decoder"),
                        (["llama-tiny", "--packet-stamps"], "--packet-stamps is not for a decoder"),
                        (["http://127.0.0.1:9", "--model", "m", "--batch", "2"], "--batch is not for a server"),
                        (["http://127.0.0.1:9"], "name a server and its model"), ([], "name a server")):
        assert cli.outcome(cli.app, "aaco", ["llm", *words]) == 2 and said in capfd.readouterr().err


def test_objectives_decide_the_exit_status(settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Goodput's levels alone decide nothing. Mutation: a missed objective ends with 0."""
    words = ["llm", "llama-tiny", "-n", "12", "--prompt-tokens", "8", "--max-tokens", "6", "--slo", "ttft=1us",
             "--sessions-dir", str(settings.config.storage.sessions_dir)]
    policy = tmp_path / "policy.yaml"
    for objectives, strict, code in (
            ("{metric: prefill_tokens_per_s, min: '1'}, {metric: decode_tokens_per_s, min: '1'}", True, 0),
            ("{metric: decode_tokens_per_s, min: '1e9'}", False, 3), ("{metric: tpot_p99_ms, max: 1 s}", True, 4)):
        policy.write_text(f"objectives: [{objectives}]")
        given = [*words, "--policy", str(policy), *(["--strict"] if strict else [])]
        assert cli.outcome(cli.app, "aaco", given) == code, capfd.readouterr()
    assert cli.outcome(cli.app, "aaco", words) == 0


def test_a_sweep_is_a_session_for_each_pair(settings: Settings, capfd: pytest.CaptureFixture[str]):
    """Its figures are those of the sessions, whatever the order; a model or a batch twice is refused."""
    words = ["llm", "llama-tiny", "-n", "12", "--max-tokens", "4", "--batches", "2,1,2", "--prompt-tokens", "8,16",
             "--sessions-dir", str(settings.config.storage.sessions_dir)]
    assert cli.outcome(cli.app, "aaco", [*words, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    points, made = document["points"], {each.id: each for each in sessions(settings.config.storage.sessions_dir)}
    assert [(point["prompt_tokens"], point["batch"]) for point in points] == [("8", 1), ("8", 2), ("16", 1), ("16", 2)]
    assert {point["session_id"] for point in points} == set(made) and document["curves"].keys() == {"8", "16"}
    for point in points:
        session = made[point["session_id"]]
        load = documents.require(session, layout.LOAD)
        assert (load["prompt_tokens"], load["process"]["batch"]) == (point["prompt_tokens"], point["batch"])
        stored = readings.stored(session)["tpot_p50_ms"]
        assert point["tpot_p50_ms"]["value"] == pytest.approx(stored.value)
        assert point["device_energy_per_output_token_j"]["why_absent"] == "the load was sent without --telemetry"
    for more in (["--batch", "2"], ["--preset", "llm-server"], ["--batches", "1,x"]):
        assert cli.outcome(cli.app, "aaco", [*words, *more]) == 2
    assert cli.outcome(cli.app, "aaco", ["llm", "http://127.0.0.1:9", "--model", "m", "--batches", "1,2"]) == 2


def test_a_kill_keeps_whole_batches(settings: Settings):
    """Mutation: the record is written at the end."""
    folder = settings.config.storage.sessions_dir
    program = subprocess.Popen([sys.executable, "-m", "aaco", "llm", "llama-tiny", "-n", "100000", "--max-tokens", "3",
                                "--prompt-tokens", "4", "--sessions-dir", str(folder)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and not any(
            path.stat().st_size > 4000 for path in folder.glob("*/*/runtime/load.reads")):
        time.sleep(0.1)
    program.send_signal(signal.SIGKILL)
    program.wait()
    (session,) = sessions(folder)
    analyze(session, settings)
    rows = store.read(session, REQUESTS).to_pylist()
    assert session.status == "incomplete" and len(rows) > 10
    assert {row["status"] for row in rows[:-1]} == {"ok"}


@pytest.mark.parametrize(("error", "words"), [
    (MemoryError(), "no memory for 2 answers at once, each with a context of 5,000 tokens"),
    (RuntimeError("bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 9"), "no memory for 2"),
    (RuntimeError("indices\n out of bounds"), "the decoder failed: indices out of bounds")])
def test_a_decoder_that_fails_says_what_it_lacked(error: Exception, words: str):
    """Mutation: memory is no reason of its own."""
    assert decoders._why_failed(error, 2, 5000).startswith(words)
