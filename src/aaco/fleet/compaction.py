"""Many small files become few large ones, for each month, model and device; a manifest says which they are.

LAKE/data/month=/model=/device=/SHA256.parquet   facts in the order of time
LAKE/manifests/SHA256.json                       the list of these files; never changed
LAKE/months/SHA256.parquet                       the facts of those of a month, without kernels; never changed
LAKE/sums/SHA256.arrow                           what was summed over each of them; never changed
A compaction writes new files, verifies that no session is lost, and then makes its manifest the present one.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from urllib.parse import quote

import msgspec
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from aaco.core import files as core_files
from aaco.core.errors import BadBundle
from aaco.core.records import as_dict
from aaco.fleet import facts, sums
from aaco.fleet.catalog import LANDING, Catalog, LakeState, landing_file
from aaco.fleet.lakes import open_store
from aaco.fleet.store import FIX, Place, Store, each

MOST_ROWS = 1 << 16  # of a compacted file: some 64 to 256 MB
DATA, MANIFESTS, MONTHS = "data", "manifests", "months"
KERNELS = "kernels"  # most of a file's bytes, which one question reads
SCHEMA_VERSION = 1  # of a manifest
Partition = tuple[str, str | None, str | None]


class DataFile(Struct, frozen=True):
    """A compacted file, as a manifest lists it. month, model and device are those of all its sessions. summed: whether
    its kernels are in the manifest's sums."""

    path: str
    sha256: str
    rows: int
    month: str
    model: str | None
    device: str | None
    summed: bool = False

    @property
    def partition(self) -> Partition:
        """Return the month, model and device."""
        return self.month, self.model, self.device


class MonthFile(Struct, frozen=True):
    """A file with the facts of all compacted files of a month but their kernels: to open many small files takes longer
    than to read them. A month with one file, or with large ones, has none."""

    path: str
    sha256: str
    rows: int
    month: str


class LakeManifest(Struct, frozen=True):
    """manifests/SHA256.json. Fields are added, never renamed.

    A Struct, which msgspec checks: pydantic would take a tenth of a question's time to import.
    """

    schema_version: int = SCHEMA_VERSION
    files: list[DataFile] = field(default_factory=list)
    months: list[MonthFile] = field(default_factory=list)
    sums: str | None = None

    @property
    def rows(self) -> int:
        """Return how many sessions there are in all files."""
        return sum(file.rows for file in self.files)


class Compacted(Struct, frozen=True):
    """What a compaction did: sessions taken out of landing, retired sessions dropped, files written and removed, and
    how many files there are now."""

    sessions: int
    dropped: int
    written: int
    removed: int
    files: int


def read_manifest(lake: Store, sha256: str | None) -> LakeManifest:
    """Return the manifest of this digest; the empty one for None. Raise BadBundle if it is not as it was written."""
    if sha256 is None:
        return LakeManifest()
    path = _manifest_file(sha256)
    content = _checked(lake, path, sha256)
    return _parse_manifest(content, f"{lake.name}/{path}")


def _parse_manifest(content: bytes, where: str) -> LakeManifest:
    """Return a manifest. Raise BadBundle, also for one that a later version wrote."""
    document = core_files.parse_json(content, where)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BadBundle(f"{where}: manifest of a fleet format {version}, this version of aaco reads up to "
                        f"{SCHEMA_VERSION}", "upgrade aaco on this machine")
    try:
        return msgspec.convert(document, LakeManifest)  # what a later version added is passed over
    except msgspec.ValidationError as error:
        raise BadBundle(f"{where}: not a manifest of a fleet: {error}", FIX) from error


def read_sums(lake: Store, sha256: str | None) -> pa.Table:
    """Return the sums of this digest; none for None. Raise BadBundle if they are not as they were written."""
    if sha256 is None:
        return sums.KERNEL_SUMS.build()
    path = sums.sums_file(sha256)
    return sums.parse(_checked(lake, path, sha256), f"{lake.name}/{path}")


def compact(place: Place) -> Compacted:
    """Move everything in landing into large files, and drop what was retired. Raise AacoError.

    Killed at any moment it leaves the lake as it was; what it wrote by then is removed by a later one.
    """
    lake = open_store(place)
    with Catalog.open(lake, write=True) as catalog, lake.compacting():
        before = catalog.state()
        old = read_manifest(lake, before.manifest)
        listed, dropped = _compacted(lake, old, before)
        _require_complete(old, listed, before, dropped)
        new = _with_months(lake, old, _with_sums(lake, old, listed))
        written = {file.path for file in new.files} - {file.path for file in old.files}
        if before.pending or new != old:
            catalog.commit(before, _write_manifest(lake, new))
        removed = _remove_leftovers(lake, catalog, _files_of(before, old))
        return Compacted(len(before.pending), dropped, len(written), removed, len(new.files))


def _require_complete(old: LakeManifest, files: Sequence[DataFile], before: LakeState, dropped: int) -> None:
    """Raise BadBundle if a session would be lost or counted twice."""
    expected, rows = old.rows + len(before.pending) - dropped, sum(file.rows for file in files)
    if rows != expected:
        raise BadBundle(f"a compaction would make {rows:,} sessions of {expected:,}: nothing was changed", FIX)


def _compacted(lake: Store, old: LakeManifest, before: LakeState) -> tuple[list[DataFile], int]:
    """Write what has to be; return the new list of files, and how many retired sessions are in none of them."""
    landed = _landed(lake, before)
    held = defaultdict(list)
    for file in old.files:
        held[file.partition].append(file)
    listed: list[DataFile] = []
    dropped = 0
    for partition in sorted({*held, *landed}, key=_order):
        tables = list(landed.get(partition, ()))
        for file in held[partition]:
            table = None if file.rows >= MOST_ROWS and not before.retired else read_file(lake, file)
            if table is None or (not tables and not _holds(table, before.retired)):
                listed.append(file)
            else:
                tables.append(table)
        whole = pa.concat_tables(tables) if tables else facts.FACTS.build()
        kept = _without(whole, before.retired)
        dropped += whole.num_rows - kept.num_rows
        listed += _write_partition(lake, partition, kept)
    return sorted(listed, key=lambda file: file.path), dropped


def _with_sums(lake: Store, old: LakeManifest, files: Sequence[DataFile]) -> LakeManifest:
    """Write the sums of the kernels of these files; those of a file that was there before are taken over."""
    held = read_sums(lake, old.sums)
    places: dict[str, list[int]] = {file.path: [] for file in files if file.summed}
    for place, path in enumerate(held["file"].to_pylist()):
        if path in places:
            places[path].append(place)
    tables = {path: held.take(rows) for path, rows in places.items()}
    tables |= sums.of_tables((file.path, read_file(lake, file)) for file in files if file.path not in tables)
    if not tables:
        return LakeManifest(files=list(files))
    content, sha256 = sums.content(tables.values())
    if sha256 != old.sums:
        lake.write(sums.sums_file(sha256), content)
    return LakeManifest(files=[replace(file, summed=file.path in tables) for file in files], sums=sha256)


def _with_months(lake: Store, old: LakeManifest, new: LakeManifest) -> LakeManifest:
    """Write the file of each month of several small files; that of a month that is as it was before is taken over."""
    held, before, after = {file.month: file for file in old.months}, _by_month(old), _by_month(new)
    months = [held[month] if month in held and before[month] == files else _write_month(lake, month, files)
              for month, files in sorted(after.items())
              if len(files) > 1 and sum(file.rows for file in files) <= MOST_ROWS]
    return replace(new, months=months)


def _by_month(manifest: LakeManifest) -> dict[str, list[DataFile]]:
    months = defaultdict(list)
    for file in manifest.files:
        months[file.month].append(file)
    return months


def _write_month(lake: Store, month: str, files: Sequence[DataFile]) -> MonthFile:
    """Write the facts of a month's files but their kernels, in the order of time and id."""
    tables = each(lambda file: read_file(lake, file).drop_columns(KERNELS), files)
    content = facts.content(_ordered(pa.concat_tables(tables)))
    sha256 = hashlib.sha256(content).hexdigest()
    path = f"{MONTHS}/{sha256}.parquet"
    lake.write(path, content)
    return MonthFile(path=path, sha256=sha256, rows=sum(file.rows for file in files), month=month)


def _landed(lake: Store, before: LakeState) -> dict[Partition, list[pa.Table]]:
    """Return the facts in landing by partition, each verified by its name. Raise BadBundle."""
    landed: dict[Partition, list[pa.Table]] = defaultdict(list)
    for table in each(lambda sha256: _read_checked(lake, landing_file(sha256), sha256),
                      [sha256 for _, sha256 in before.pending]):
        row = table.select(["month", "model", "device"]).to_pylist()[0]
        landed[row["month"], row["model"], row["device"]].append(table)
    return landed


def read_file(lake: Store, file: DataFile) -> pa.Table:
    """Return the facts of a compacted file, its bytes verified. Raise BadBundle, StorageError."""
    return _read_checked(lake, file.path, file.sha256)


def _read_checked(lake: Store, path: str, sha256: str) -> pa.Table:
    return facts.parse(_checked(lake, path, sha256), f"{lake.name}/{path}")


def _checked(lake: Store, path: str, sha256: str) -> bytes:
    content = lake.read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise BadBundle(f"{lake.name}/{path}: changed since it was written", FIX)
    return content


def _holds(table: pa.Table, retired: Collection[str]) -> bool:
    return _without(table, retired).num_rows < table.num_rows


def _without(table: pa.Table, retired: Collection[str]) -> pa.Table:
    if not retired:
        return table
    return table.filter(pa.array([name not in retired for name in table["session_id"].to_pylist()], pa.bool_()))


def _write_partition(lake: Store, partition: Partition, table: pa.Table) -> Iterator[DataFile]:
    """Write sessions in the order of time and id, in files of at most MOST_ROWS."""
    ordered = _ordered(table)
    for begin in range(0, ordered.num_rows, MOST_ROWS):
        part = ordered.slice(begin, MOST_ROWS)
        content = facts.content(part)
        sha256 = hashlib.sha256(content).hexdigest()
        path = f"{DATA}/{_folder(partition)}/{sha256}.parquet"
        lake.write(path, content)
        month, model, device = partition
        yield DataFile(path=path, sha256=sha256, rows=part.num_rows, month=month, model=model, device=device)


def _ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([("time_ns", "ascending"), ("session_id", "ascending")])


def _folder(partition: Partition) -> str:
    """Return the folders of a partition, in Hive's way: any name is a name of one folder."""
    return "/".join(f"{name}={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(value, safe=' ')[:200]}"
                    for name, value in zip(("month", "model", "device"), partition, strict=True))


def _order(partition: Partition) -> tuple[str, ...]:
    return tuple(part or "" for part in partition)


def _write_manifest(lake: Store, manifest: LakeManifest) -> str:
    content = (json.dumps(as_dict(manifest), indent=1) + "\n").encode()
    sha256 = hashlib.sha256(content).hexdigest()
    lake.write(_manifest_file(sha256), content)
    return sha256


def _manifest_file(sha256: str) -> str:
    return f"{MANIFESTS}/{sha256}.json"


def _files_of(state: LakeState, manifest: LakeManifest) -> set[str]:
    """Return all files that a state of the lake names."""
    named = {file.path for file in manifest.files} | {file.path for file in manifest.months}
    named |= {landing_file(sha256) for _, sha256 in state.pending}
    return named | ({_manifest_file(state.manifest)} if state.manifest else set()) | (
        {sums.sums_file(manifest.sums)} if manifest.sums else set())


def _remove_leftovers(lake: Store, catalog: Catalog, before: Collection[str]) -> int:
    """Remove the files of the state before that the present one does not name, and those of writers that were killed;
    return how many.

    A file in landing that no row names may belong to an ingest that runs now: it stays. A reader that began before
    looks again at the present state.
    """
    state = catalog.state()
    named = _files_of(state, read_manifest(lake, state.manifest))
    landed = {landing_file(sha256) for sha256 in catalog.compacted()}
    written = chain.from_iterable(map(lake.leftovers, (DATA, MANIFESTS, MONTHS, sums.SUMS)))
    leftovers = {*before, *lake.old_catalogs(), *written,
                 *landed.intersection(lake.leftovers(LANDING))} - named
    each(lake.remove, sorted(leftovers))
    return len(leftovers)
