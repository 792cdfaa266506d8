"""Ten million tokens: the size of the record and its tables, and what a report of them costs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aaco import __version__
from aaco.analytics.llm.load import EndpointLoad
from aaco.core import clocks
from aaco.core.documents import encode
from aaco.core.records import as_dict
from aaco.core.session import Session
from aaco.llm.record import Kind, ReadRecorder
from aaco.tracelake import layout
from benchmarks.claims import Claim

TOKENS, CHUNKS, OPEN = 10_000_000, 250, 1000
WALL = 10**18
HEAD = b'{"status": 200, "content-type": "text/event-stream"}'
WORDS = [" the", " of", "ing", " a", " model", ",", " server", "s", ".", " is", " time", " token"]
CODE = """
import json, re, resource, sys
from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.session import Session
from aaco.llm import key_search
from aaco.tracelake import layout
session = Session.open(sys.argv[1])
if sys.argv[2] == "analyze":
    pipeline.analyze(session, resolve())
elif sys.argv[2] == "search":
    key_search.blank(session.folder / layout.READS, b"sk-of-no-answer-0123456789")
else:
    from aaco.report.renderers import terminal
    terminal.render(pipeline.explain(session, resolve()))
usage = resource.getrusage(resource.RUSAGE_SELF)
peak_kb = int(re.search("VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])  # ru_maxrss has the parent's, too
print(json.dumps([usage.ru_utime + usage.ru_stime, peak_kb / 1024]))
"""


def claims(captures: Path) -> Iterator[Claim]:
    """Claims about disk, memory and CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        session = _recorded(Path(folder))
        cpu_s, rss_mb = _measured(session, "analyze")
        megabytes = sum(path.stat().st_size for path in session.folder.rglob("*") if path.is_file()) / 1e6
        yield Claim(f"{TOKENS:,} tokens on disk, record and tables", "<= 400 MB", f"{megabytes:.0f} MB",
                    megabytes <= 400)
        yield Claim("tables, findings and report from the record", "<= 30 s CPU, 600 MB RSS",
                    f"{cpu_s:.1f} s CPU, {rss_mb:.0f} MB RSS", cpu_s <= 30 and rss_mb <= 600)
        cpu_s, rss_mb = _measured(session, "search")
        yield Claim("a key looked for in the text of all answers, where one was sent", "",
                    f"{cpu_s:.1f} s CPU, {rss_mb:.0f} MB RSS", None)
        cpu_s, rss_mb = _measured(session, "report")
        yield Claim("a report of the session", "<= 30 s CPU, 600 MB RSS", f"{cpu_s:.1f} s CPU, {rss_mb:.0f} MB RSS",
                    cpu_s <= 30 and rss_mb <= 600)


def _measured(session: Session, what: str) -> tuple[float, float]:
    """CPU seconds and the most memory, MB, of a process that does this with the session."""
    command = [sys.executable, "-c", CODE, session.folder, what]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cpu_s, rss_mb = json.loads(done.stdout.splitlines()[-1])
    return cpu_s, rss_mb


def _recorded(folder: Path) -> Session:
    """A session with the record of a load: as many answers at once as OPEN, a chunk of each every 20 ms."""
    requests = max(1, TOKENS // CHUNKS)
    plan = {"model": "m", "backend": "endpoint", "endpoint": "http://h"}
    session = Session.create(folder, plan, "", __version__)
    session.amend(clocks=as_dict(clocks.snapshot()))
    session.write_json(layout.LOAD, encode(EndpointLoad(
        url="http://h", api="chat", model="m", answers_as=[], requests=requests, arrivals="closed", rate_per_s=None,
        concurrency=OPEN, prompts="random words", prompt_tokens="8", max_tokens="250", shared_prefix_pct=0.0, body="{}",
        seed=0, gap_timeout_s=60.0, timeout_s=600.0, terms={})))
    recorder = ReadRecorder(session.folder / layout.READS)
    recorder.add(-1, Kind.CLOCK, WALL, 0, b"100")
    for first in range(0, requests, OPEN):
        _record_wave(recorder, range(first, min(first + OPEN, requests)), 6_000_000_000 * (first // OPEN) + 1)
    recorder.close()
    session.finish("complete")
    return session


def _record_wave(recorder: ReadRecorder, requests: range, start: int) -> None:
    """Answers that begin together and take turns."""
    for request in requests:
        recorder.add(request, Kind.DISPATCH, start, start + request % OPEN * 100)
        recorder.add(request, Kind.FIRST, WALL + start + 50_000_000, start + 50_040_000)
        recorder.add(request, Kind.HEAD, WALL + start + 50_000_000, start + 50_040_000, HEAD)
    for chunk in range(CHUNKS):
        for request in requests:
            at = start + 60_000_000 + chunk * 20_000_000 + request % OPEN * 15_000
            recorder.add(request, Kind.BODY, WALL + at, at + 40_000 + request * 997 % 5000, _chunk(request, chunk), at)
    for request in requests:
        at = start + 60_000_000 + CHUNKS * 20_000_000
        recorder.add(request, Kind.BODY, WALL + at, at + 40_000, b"data: [DONE]\n\n", at)
        recorder.add(request, Kind.END, 0, at + 50_000)


def _chunk(request: int, chunk: int) -> bytes:
    word = WORDS[(request * 31 + chunk * 17) % len(WORDS)]
    return (f'data: {{"id":"chatcmpl-{request:032x}","object":"chat.completion.chunk","created":1795590897,"model":"m",'
            f'"choices":[{{"index":0,"delta":{{"content":"{word}"}},"logprobs":null,"finish_reason":null}}],'
            f'"usage":{{"prompt_tokens":8,"total_tokens":{chunk + 9},"completion_tokens":{chunk + 1}}}}}\n\n').encode()
