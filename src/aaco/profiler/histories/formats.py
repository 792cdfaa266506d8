"""Choose the reader of a history: the most specific formats are tried first."""

from __future__ import annotations

from pathlib import Path

from aaco.core import files
from aaco.core.errors import BadCapture
from aaco.profiler.histories import (
    asv,
    google_benchmark,
    hyperfine,
    plain_csv,
    plain_json,
    postgresql,
    pytest_benchmark,
    samples,
)
from aaco.profiler.histories.samples import ImportedHistory
from aaco.profiler.io import jsonfile

KNOWN = (google_benchmark.FORMAT, pytest_benchmark.FORMAT, hyperfine.FORMAT, asv.FORMAT, plain_json.FORMAT,
         plain_csv.FORMAT, postgresql.FORMAT)


def read(path: Path) -> ImportedHistory:
    """Return the history in a file, in a folder of asv's results, or in a table of PostgreSQL.

    Raise BadCapture for any other, UsageError, StorageError.
    """
    if postgresql.recognises(path):
        return postgresql.parse(path)
    if files.is_folder(path):
        if not asv.holds(path):
            raise BadCapture(f"{path}: a folder without benchmarks.json or machine.json of asv",
                             "name a file, or asv's folder of results")
        return asv.parse_folder(path)
    if not files.is_file(path):
        raise BadCapture(f"{path}: no such file", "check the path")
    digest = files.sha256(path)[:16]
    if jsonfile.head(path, 64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return _read_document(path, digest)
    if plain_csv.recognises(path):
        return plain_csv.parse(path, path.stem)
    raise _unknown_format(path)


def _read_document(path: Path, digest: str) -> ImportedHistory:
    document = samples.document(path)
    if asv.recognises(document):
        return asv.parse(document, digest, path)
    for reader in (google_benchmark, pytest_benchmark, hyperfine):
        if reader.recognises(document):
            return reader.parse(document, digest)
    if plain_json.recognises(document):
        return plain_json.parse(document, path.stem)
    raise _unknown_format(path)


def _unknown_format(path: Path) -> BadCapture:
    return BadCapture(f"{path}: not a history of a form this version reads", f"known: {', '.join(KNOWN)}")
