"""What a model computed: the outputs of one inference, kept with its timings so that two sessions can be compared.

A digest of every output is kept, and its elements if there are few, else an evenly spaced sample of them: which ones
depends only on the shape, so samples of two sessions hold the same elements. Imported by the measured process: light.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core import files
from aaco.core.errors import BadBundle

FILE = "runtime/outputs.npz"
LIMIT = 1 << 16  # elements kept of an output
BUDGET = 1 << 20  # and of all of them
MOST_BYTES = 64 << 20  # of elements in a file that is read; ours hold 8 MiB at most, but text may be long
UNREADABLE = (ValueError, TypeError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error)
FIX = "aaco info SESSION  # checks every file's hash"


class Produced(Struct, frozen=True):
    """An output as the runtime gave it; `array` is None where it has no form here, and `why_not` says why.

    dtype is numpy's (or ml_dtypes') name of what the model computed; bfloat16 comes as float32, which holds it exactly.
    """

    name: str
    dtype: str
    array: NDArray[Any] | None
    why_not: str = ""


class Output(Struct, frozen=True):
    """An output as it was kept: its digest and, of `elements` in all, those in `values` (None: none were kept)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    sha256: str | None
    not_finite: int | None
    values: NDArray[Any] | None
    why_not_kept: str = ""

    @property
    def whole(self) -> bool:
        """Whether every element was kept."""
        return self.values is not None and len(self.values) == self.elements


def keep(path: Path, produced: Sequence[Produced], limit: int = LIMIT, budget: int = BUDGET) -> list[dict[str, Any]]:
    """Write the elements that are kept; returns the facts of every output, in order. Raises StorageError.

    limit: elements kept of an output. budget: of all of them.
    """
    left, facts, arrays = budget, [], {}
    for index, output in enumerate(produced):
        if output.array is None:
            facts.append({"name": output.name, "dtype": output.dtype, "shape": None, "elements": None, "sha256": None,
                          "not_finite": None, "kept": 0, "why_not_kept": output.why_not})
            continue
        values = _sample(output.array, min(limit, left))
        left -= len(values)
        arrays[f"output_{index}"] = values
        facts.append(_facts(output, output.array, len(values)))
    files.write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    return facts


def load(folder: Path, facts: Sequence[Mapping[str, Any]], most_bytes: int = MOST_BYTES) -> list[Output]:
    """The outputs of a session's folder, from the facts that `keep` returned. Raises BadBundle, also for a file that
    holds more bytes than this."""
    path = folder / FILE
    try:
        kept = _read(path, most_bytes)
        return [_output(index, fact, kept) for index, fact in enumerate(facts)]
    except FileNotFoundError as error:
        raise BadBundle(f"{path}: missing", FIX) from error
    except UNREADABLE as error:
        raise BadBundle(f"{path}: not the outputs of a run: {' '.join(str(error).split())}", FIX) from error


def are_numbers(path: Path) -> bool:
    """Return whether these are outputs of numbers, in which letters mean nothing; an array of single bytes may be text.
    """
    with suppress(*UNREADABLE):
        return all(array.dtype.kind in "bfc" or (array.dtype.kind in "iu" and array.dtype.itemsize > 1)
                   for array in _read(path, MOST_BYTES).values())
    return False


def digest(array: NDArray[Any]) -> str:
    """SHA-256 over type, shape and elements in C order."""
    state = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    if array.size:
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _facts(output: Produced, array: NDArray[Any], kept: int) -> dict[str, Any]:
    counted = np.issubdtype(array.dtype, np.inexact)
    why = "" if kept or not array.size else f"the {BUDGET:,} elements that are kept of a run were used up before"
    return {"name": output.name, "dtype": output.dtype, "shape": list(array.shape), "elements": array.size,
            "sha256": digest(array), "kept": kept, "why_not_kept": why,
            "not_finite": int(array.size - np.isfinite(array).sum()) if counted else None}


def _sample(array: NDArray[Any], most: int) -> NDArray[Any]:
    """At most so many elements of the flat array, evenly spaced, first and last among them."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat if len(flat) <= most else flat[np.linspace(0, len(flat) - 1, most).astype(np.int64)]


def _read(path: Path, most_bytes: int) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(path) as zipped:
        if sum(item.file_size for item in zipped.infolist()) > most_bytes:
            raise ValueError("more than a run keeps")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _output(index: int, fact: Mapping[str, Any], kept: Mapping[str, NDArray[Any]]) -> Output:
    shape, count, why = tuple(map(int, fact["shape"] or ())), fact["elements"], str(fact["why_not_kept"] or "")
    values = kept.get(f"output_{index}")
    if values is not None and (values.ndim != 1 or len(values) != fact["kept"] or len(values) > count):
        raise ValueError(f"output {index} holds {values.shape} of {count} elements")
    if values is not None and count and not len(values):
        values = None
    return Output(str(fact["name"]), str(fact["dtype"]), shape, int(count or 0), fact["sha256"], fact["not_finite"],
                  values, why)
