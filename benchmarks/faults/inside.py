"""The measured process with a fault inside: `python -m benchmarks.faults.inside PLANT COMMAND...`.

It is put before the command line of the product's own worker (runner.surroundings) and becomes that worker: the plant
sets the CPUs and the control group, and what the host does between two inferences, or feeds other shapes in turn.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from msgspec.structs import replace

from aaco.runner import provider, worker
from aaco.runner.job import Job
from aaco.runner.surroundings import Rest

CHUNK = 512 << 10
READ, WRITE = 256 << 10, 16 << 10
FILE_BYTES = 64 << 20


def python_work() -> Callable[[], None]:
    """A turn of the interpreter, as of a tokenizer or a post-processing."""
    words = [f"word{number % 97}" for number in range(200)]

    def turn() -> None:
        counts: dict[str, int] = {}
        for word in words:
            counts[word.upper()] = counts.get(word.upper(), 0) + len(word)

    return turn


def page_faults() -> Callable[[], None]:
    """New memory, touched and given back."""
    def turn() -> None:
        memory = mmap.mmap(-1, CHUNK)
        array = np.frombuffer(memory, np.uint8)
        array[::mmap.PAGESIZE] = 1
        del array
        memory.close()

    return turn


def direct_reads() -> Callable[[], None]:
    """Reads past the page cache from all over a file."""
    descriptor, path = tempfile.mkstemp(prefix="aaco-faults-", dir=os.environ.get("AACO_FAULTS_DISK"))
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(1 << 20) * (FILE_BYTES >> 20))
        os.fsync(file.fileno())
    reader, into = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, READ)
    Path(path).unlink()
    places = itertools.cycle(np.random.default_rng(0).permutation(FILE_BYTES // READ).tolist())

    def turn() -> None:
        os.preadv(reader, [into], READ * next(places))

    return turn


def synced_writes() -> Callable[[], None]:
    """Writes that are waited for, as of a log."""
    descriptor, path = tempfile.mkstemp(prefix="aaco-faults-", dir=os.environ.get("AACO_FAULTS_DISK"))
    Path(path).unlink()
    line = os.urandom(WRITE)

    def turn() -> None:
        os.pwrite(descriptor, line, 0)
        os.fsync(descriptor)

    return turn


WORK = {"python": python_work, "pages": page_faults, "reads": direct_reads, "syncs": synced_writes}


class Disturbed(Rest):
    """Between two inferences the host does its work until it has taken its share of the time, on the average."""

    def __init__(self, turn: Callable[[], None], each_ns: float) -> None:
        super().__init__(0, 0)
        self.turn, self.each_ns, self.owed = turn, each_ns, 0.0

    def after(self, end_ns: int) -> None:
        """Do the work that is owed by now."""
        self.owed += self.each_ns
        start = time.monotonic_ns()
        while (spent := time.monotonic_ns() - start) < self.owed:
            self.turn()
        self.owed -= spent


def shapes_in_turn(scales: list[float]) -> Callable[[Any, Job], provider.BoundModel]:
    """A bind that feeds the inputs at other lengths of their first axis, one after the other."""
    plain = provider.bind

    def bind(session: Any, job: Job) -> provider.BoundModel:
        with np.load(job.inputs) as arrays:
            fed = {name: arrays[name] for name in arrays.files}
        bound = []
        for number, scale in enumerate(scales):
            path = f"{job.inputs}.{number}.npz"
            np.savez(path, **{name: np.resize(array, (max(1, round(len(array) * scale)), *array.shape[1:]))
                              for name, array in fed.items()})
            bound.append(plain(session, replace(job, inputs=path)))
        turns = itertools.cycle(bound)
        return provider.BoundModel(lambda: next(turns).run(), bound[0].produced, bound[0].vary)

    return bind


def _take_older_runtimes() -> None:
    """ONNX Runtime before 1.23 cannot say which provider takes which node; with one provider there is no question."""
    if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
        ort.InferenceSession.get_provider_graph_assignment_info = lambda session: []


def main() -> None:
    """Put the plant in place and become the worker."""
    _take_older_runtimes()
    plant = json.loads(sys.argv[1])
    os.sched_setaffinity(0, set(plant["cpus"]))
    if plant["group"]:
        Path(plant["group"], "cgroup.procs").write_text(str(os.getpid()))
    if plant["work"]:
        turn = WORK[plant["work"]]()
        worker.Rest = lambda burst_ns, rest_ns: Disturbed(turn, plant["each_ns"])
    if plant["shapes"]:
        provider.bind = shapes_in_turn(plant["shapes"])
    worker.main()


if __name__ == "__main__":
    main()
