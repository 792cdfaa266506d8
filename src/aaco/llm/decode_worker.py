"""The process in which a decoder answers: reads prompts, makes tokens, and records when each was on the host.

A batch is answered as a whole: it begins once the one before has ended, with as many requests as are due, `batch` at
most. What a shorter answer has beyond its length is computed, as the others go on, and is not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from aaco import markers
from aaco.core.arrays import Ints
from aaco.core.errors import UsageError
from aaco.llm import stamps
from aaco.llm.decoders import Decoder, GenaiDecoder, OnnxDecoder
from aaco.llm.record import NO_STAMP, Kind, ReadRecorder
from aaco.runner.job import Job
from aaco.runner.worker import answer, no_garbage_collection

START_NS = 1_000_000  # before the first request is due
WARMUP_TOKENS = 4


class DecodeJob(Struct, frozen=True):
    """What to answer, as JSON on stdin. Paths are absolute.

    runtime: the fields of a runner's job, of a model in ONNX Runtime; genai: the folder of a model of
    onnxruntime-genai. prompts, answers: tokens of each request. due_ns: since the start; None: each when it can.
    """

    parent: int
    outcome: str
    record: str
    runtime: dict[str, Any] | None
    genai: str
    prompts: list[int]
    answers: list[int]
    due_ns: list[int] | None
    batch: int
    seed: int


def main() -> None:
    """Answer the job on stdin."""
    job = DecodeJob(**json.load(sys.stdin))
    answer(job.parent, Path(job.outcome), lambda: run(job))


def run(job: DecodeJob) -> dict[str, Any]:
    """Answer every request and record it; return what answered. Raise AacoError."""
    with markers.phase("load"):
        decoder: Decoder = GenaiDecoder(Path(job.genai)) if job.runtime is None else OnnxDecoder(Job(**job.runtime))
    if not decoder.pads and job.batch > 1 and len(set(job.prompts)) > 1:
        raise UsageError("prompts of different lengths in a batch of onnxruntime-genai", "--prompt-tokens N")
    drawn = np.random.default_rng(job.seed)
    tokens = np.setdiff1d(np.arange(decoder.vocabulary), decoder.padding)
    prompts = [drawn.choice(tokens, length) for length in job.prompts]
    with markers.phase("warmup"):
        first = range(min(job.batch, len(prompts)))
        for _ in _steps(decoder, [prompts[number] for number in first], [WARMUP_TOKENS] * len(first)):
            pass
    recorder = ReadRecorder(Path(job.record))
    try:
        with no_garbage_collection(), markers.phase("measurement"):
            _answer_all(decoder, job, prompts, recorder)
    finally:
        recorder.close()
    return {"engine": decoder.engine}


def _answer_all(decoder: Decoder, job: DecodeJob, prompts: Sequence[Ints], recorder: ReadRecorder) -> None:
    """Answer batch after batch."""
    start = free = stamps.now() + START_NS
    _look(recorder)
    done = 0
    while done < len(prompts):
        due = [free] * job.batch if job.due_ns is None else [start + at for at in job.due_ns[done:done + job.batch]]
        _sleep_until(due[0])
        at = stamps.now()
        members = range(done, min(done + max(sum(moment <= at for moment in due), 1), len(prompts)))
        _answer_batch(decoder, job, members, due, prompts, recorder)
        _look(recorder)
        done, free = members.stop, stamps.now()


def _answer_batch(decoder: Decoder, job: DecodeJob, members: range, due: Sequence[int], prompts: Sequence[Ints],
                  recorder: ReadRecorder) -> None:
    lengths = [job.answers[number] for number in members]
    at, add = stamps.now(), recorder.add
    for number, intended in zip(members, due, strict=False):
        add(number, Kind.DISPATCH, intended, at)
        add(number, Kind.PROMPT, NO_STAMP, at, str(len(prompts[number])).encode())
    for index, (begin, at) in enumerate(_steps(decoder, [prompts[number] for number in members], lengths), 1):
        answering = 0
        for number, length in zip(members, lengths, strict=True):
            if index <= length:
                add(number, Kind.TOKEN, NO_STAMP, at)
                answering += 1
            if index == length:
                add(number, Kind.END, NO_STAMP, at)
        add(-1, Kind.STEP, begin, at, b"%s %d" % (b"decode" if index > 1 else b"prefill", answering))


def _steps(decoder: Decoder, prompts: Sequence[Ints], lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield when the step of each token of the longest answer began, and when that was on the host, CLOCK_MONOTONIC ns.
    """
    longest = max(map(len, prompts))
    ids, mask = np.zeros((2, len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt):], mask[row, longest - len(prompt):] = prompt, 1
    begin = stamps.now()
    with markers.prefill(sum(map(len, prompts))):
        decoder.start(ids, mask, max(lengths))
        _ = decoder.chosen
    yield begin, stamps.now()
    for _ in range(1, max(lengths)):
        begin = stamps.now()
        with markers.decode(len(prompts)):
            decoder.step()
            _ = decoder.chosen
        yield begin, stamps.now()


def _look(recorder: ReadRecorder) -> None:
    """Record both clocks, and hand over what was recorded until now."""
    real, monotonic, width = stamps.look()
    recorder.add(-1, Kind.CLOCK, real, monotonic, str(width).encode())
    recorder.flush()


def _sleep_until(moment: int) -> None:
    if (wait := moment - stamps.now()) > 0:
        time.sleep(wait / stamps.NS)


if __name__ == "__main__":
    main()
