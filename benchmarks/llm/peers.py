"""What other clients say of the reference server beside us, on the same schedules; each where its program is named.

    AACO_AIPERF=VENV/bin/aiperf AACO_GUIDELLM=VENV/bin/guidellm python -m benchmarks.llm --only peers

They are installed for this alone, each in an environment of its own: pip install aiperf==0.13, guidellm==0.8.1.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aaco.analytics.llm.gaps import EventTally
from aaco.analytics.llm.points import points_of
from aaco.llm.prompts import WORDS
from benchmarks.claims import Claim
from benchmarks.llm import _loads
from tests.fakes.llm_server import Running

REQUESTS, OPEN, LIMIT_S = 80, 4, 180.0
TTFT_MS, PERIOD_MS = 25.0, 5.0
# schedule, chunks with content, tokens of each, chunks of reasoning before them
CASES = {
    "1 token a chunk": ("chunks=20 tokens=1 continuous=1", 20, 1, 0),
    "4 tokens a chunk": ("chunks=20 tokens=4 continuous=1", 20, 4, 0),
    "reasoning first": ("chunks=20 tokens=1 reasoning=10 continuous=1", 20, 1, 10),
    "without a role": ("chunks=20 tokens=1 role=0 continuous=1", 20, 1, 0)}
NEAR_MS, NEAR = 0.2, 0.01
Figures = Mapping[str, float]  # medians, ms, by name; tokens of an answer
NAMES = ("TTFT", "latency", "TPOT", "ICL", "tokens")


def claims(captures: Path) -> Iterator[Claim]:
    """For each schedule the truth beside what each client says; only ours has a bar."""
    peers = {name: (os.environ.get(variable), asked) for name, (variable, asked) in PEERS.items()}
    with _loads.running() as server, tempfile.TemporaryDirectory() as folder:
        tokenizer = _tokenizer(Path(folder))
        for case, (words, chunks, tokens, reasoning) in CASES.items():
            schedule = f"ttft={TTFT_MS * 1e3:.0f} period={PERIOD_MS * 1e3:.0f} {words}"
            truth = _truth(chunks, tokens, reasoning)
            yield _told(case, "aaco", _ours(server, schedule), truth, bar=True)
            for name, (program, asked) in peers.items():
                if program is None:
                    yield Claim(f"{case}: {name}", "none", f"not installed: {PEERS[name][0]} names no program", None)
                else:
                    yield _told(case, name, asked(program, server, schedule, tokenizer, Path(folder)), truth, bar=False)


def _truth(chunks: int, tokens: int, reasoning: int) -> Figures:
    first, rest = TTFT_MS + reasoning * PERIOD_MS, (chunks - 1) * PERIOD_MS
    return {"TTFT": first, "latency": first + rest, "TPOT": rest / (chunks * tokens - 1), "ICL": PERIOD_MS,
            "tokens": chunks * tokens}


def _told(case: str, name: str, figures: Figures, truth: Figures, bar: bool) -> Claim:
    shown = ", ".join(f"{each} {figures[each]:.3f} (true {truth[each]:.3f})" for each in NAMES if each in figures)
    near = all(abs(figures[each] - truth[each]) <= max(NEAR_MS, NEAR * truth[each]) for each in figures)
    return Claim(f"{case}: {name}, medians in ms", "within 1 % or 0.2 ms" if bar else "none", shown,
                 near if bar else None)


def _ours(server: Running, schedule: str) -> Figures:
    load = _loads.asked(server, [schedule] * REQUESTS, most_open=OPEN)
    points = points_of(load.requests)
    tally = EventTally(points, points.is_ok, (0, 0))
    tally.feed(load.events)
    columns = {"TTFT": points.ttft(points.send).ms, "latency": points.latency(points.send).ms, "TPOT": points.tpot.ms,
               "ICL": tally.icl()[0], "tokens": points.tokens}
    return {name: float(np.median(column)) for name, column in columns.items()}


def _aiperf(program: str, server: Running, schedule: str, tokenizer: Path, folder: Path) -> Figures:
    """AIPerf's inter-token latency is our TPOT."""
    _run([program, "profile", "-m", "ref", "--url", server.url, "--endpoint-type", "chat", "--streaming",
          "--tokenizer", str(tokenizer), "--concurrency", str(OPEN), "--request-count", str(REQUESTS), "--isl", "16",
          "--osl", "20", "--extra-inputs", json.dumps({"ref": schedule}), "--use-server-token-count",
          "--artifact-dir", str(folder / "aiperf"), "--ui", "none", "--no-gpu-telemetry"])
    found = json.loads((folder / "aiperf/profile_export_aiperf.json").read_bytes())
    names = {"TTFT": "time_to_first_token", "latency": "request_latency", "TPOT": "inter_token_latency",
             "ICL": "inter_chunk_latency", "tokens": "output_sequence_length"}
    return {name: float(found[theirs]["p50"]) for name, theirs in names.items() if theirs in found}


def _guidellm(program: str, server: Running, schedule: str, tokenizer: Path, folder: Path) -> Figures:
    """GuideLLM's inter-token latency is our TPOT; its own "time per output token" holds the first."""
    out = folder / "guidellm.json"
    backend = {"kind": "openai_http", "target": server.url, "model": "ref", "validate_backend": False,
               "extras": {"body": {"ref": schedule}}}
    words = {"--backend": backend, "--profile": {"kind": "concurrent", "streams": OPEN},
             "--constraint": {"kind": "max_requests", "count": REQUESTS},
             "--tokenizer": {"kind": "hf_auto", "model": str(tokenizer)},
             "--data": {"kind": "synthetic_text", "prompt_tokens": 16, "output_tokens": 20},
             "--output": {"kind": "json", "path": str(out)}}
    _run([program, "run", *(text for option, given in words.items() for text in (option, json.dumps(given))),
          "--disable-console"])
    metrics = json.loads(out.read_bytes())["benchmarks"][0]["metrics"]
    names = {"TTFT": ("time_to_first_token_ms", 1), "latency": ("request_latency", 1e3),
             "TPOT": ("inter_token_latency_ms", 1), "tokens": ("output_token_count", 1)}
    return {name: float(metrics[theirs]["successful"]["median"]) * scale for name, (theirs, scale) in names.items()}


Asked = Callable[[str, Running, str, Path, Path], Figures]
PEERS: dict[str, tuple[str, Asked]] = {"AIPerf": ("AACO_AIPERF", _aiperf), "GuideLLM": ("AACO_GUIDELLM", _guidellm)}


def _run(words: list[str]) -> None:
    """Run a client to its end. Raise CalledProcessError with its last words."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}")


def _tokenizer(folder: Path) -> Path:
    """A tokenizer of whole words, which both load without a network."""
    special: dict[str, Any] = {"[UNK]": 0, "[PAD]": 1, "</s>": 2}
    vocabulary = special | {word: number for number, word in enumerate(WORDS, len(special))}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    path = folder / "tokenizer"
    path.mkdir()
    (path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None, "model": model}))
    (path / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "</s>"}))
    return path
