"""llama.cpp's server: its own time per token against the client's, where this machine has one (AACO_LLAMA_SERVER)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from aaco.analytics.llm.points import points_of
from aaco.llm import client, target
from aaco.llm.parse import Parsing
from benchmarks.claims import Claim
from benchmarks.llm import _loads
from tests.fakes import llama_server

REQUESTS, TOKENS, OPEN, NEAR_PCT = 16, 200, (1, 4), 1.0
BODY: dict[str, Any] = {"model": "random", "stream": True, "max_tokens": TOKENS, "ignore_eos": True,
                        "timings_per_token": True, "stream_options": {"include_usage": True}}


def claims(captures: Path) -> Iterator[Claim]:
    """A claim for each number of requests that are open at once."""
    program = llama_server.program()
    if not program:
        yield Claim("llama.cpp's own time per token", "", "not measured: no llama-server (AACO_LLAMA_SERVER)", None)
        return
    with tempfile.TemporaryDirectory() as folder, \
            llama_server.serving(program, Path(folder), max(OPEN), ["taskset", "-c", "1"]) as server:
        for most_open in OPEN:
            yield _compared(server.url, most_open, Path(folder) / f"{most_open}.reads")


def _compared(url: str, most_open: int, path: Path) -> Claim:
    """The time per output token of every request, by the server's timings and by the client's stamps."""
    to = target.parse(url)
    prompts = [[{"role": "user", "content": f"{number} tell me of the sea"}] for number in range(REQUESTS)]
    requests = [target.encode(to, BODY | {"messages": messages}) for messages in prompts]
    with _loads.on_cpu(0):
        client.run(client.Load(requests, None, most_open), target.reach(to), path)
    parsing = Parsing(path)
    for _ in parsing.events():
        pass
    points = points_of(parsing.requests())
    theirs = np.array([_per_token_ms(content) for _, content in sorted(_loads.contents(path).items())])
    off_pct = 100 * np.abs(points.tpot.ms / theirs - 1)
    ours, mean_pct = points.tpot.ms.mean(), 100 * abs(points.tpot.ms.mean() / theirs.mean() - 1)
    text = f"{theirs.mean():.3f} / {ours:.3f} ms: {mean_pct:.2f} % off, one request {off_pct.max():.2f} %"
    return Claim(f"TPOT of llama.cpp's server and of the client, {most_open} at once, {REQUESTS} x {TOKENS} tokens",
                 f"within {NEAR_PCT:g} %", text, bool(points.has_tpot.all() and mean_pct <= NEAR_PCT))


def _per_token_ms(content: bytes) -> float:
    """The time per token after the first in the last timings of an answer."""
    timings = [json.loads(line[6:])["timings"] for line in content.split(b"\n\n") if b'"timings"' in line]
    return float(timings[-1]["predicted_per_token_ms"])
