"""What the lake keeps of a bundle: one row of facts. The raw evidence stays in the bundle."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping

import pyarrow as pa
from msgspec import Struct

from aaco.core.errors import BadBundle, first_line
from aaco.core.tables.spec import FLAG, INT, REAL, TEXT, TableSpec

BEFORE = "ingested by an earlier version of aaco, which did not keep it"  # of facts that a later version added
MOST_KERNELS = 200  # by name, those that took the most time: of the others only the sum is kept

# Parquet calls what is in a list `element`: under another name a file that was read would be written with other bytes.
SAMPLES = pa.list_(pa.field("element", pa.struct([
    ("metric", pa.string()), ("process", pa.int64()), ("value", pa.float64()), ("unit", pa.string()),
    ("direction", pa.string()), ("iterations", pa.int64())])))
KERNELS = pa.list_(pa.field("element", pa.struct([
    ("family", pa.string()), ("kernel_name", pa.string()), ("calls", pa.int64()), ("total_ns", pa.int64())])))
DEVICE_TIMES = pa.list_(pa.field("element", pa.struct([
    ("capture", pa.int64()), ("device_id", pa.int64()), ("rank", pa.int64()), ("own_ns", pa.float64())])))
LABELS = pa.list_(pa.field("element", pa.struct([("name", pa.string()), ("value", pa.string())])))
HEALTH = pa.list_(pa.field("element", pa.struct([
    ("device_id", pa.int64()), ("state", pa.string()), ("evidence", pa.string())])))
FACTS = TableSpec("fleet_facts", "facts.parquet", "One row per session of the fleet.", {
    "session_id": (TEXT, "the session's id, unique over machines"),
    "time_ns": (INT, "when it was created, by its node's clock, since the epoch"),
    "month": (TEXT, "of that time, UTC, YYYY-MM"),
    "model": (TEXT, "the model's name; null: not recorded"),
    "device": (TEXT, "what it ran on, by name; null: not recorded"),
    "devices": (INT, "how many of them the machine has"),
    "backend": (TEXT, "the provider that ran it"),
    "fingerprint": (TEXT, "12 hex digits over what must be equal for sessions to be comparable"),
    "machine": (TEXT, "id of the hardware; equal machines share it"),
    "node": (TEXT, "id of the host; null: not recorded"),
    "batch": (INT, "samples per inference"),
    "environment": (TEXT, "SHA-256 of the environment; null: not recorded"),
    "git_commit": (TEXT, "of the code under test"),
    "git_branch": (TEXT, "of the code under test"),
    "tag": (TEXT, "the session's tag"),
    "tool_version": (TEXT, "the version of aaco that recorded it"),
    "synthetic_weights": (FLAG, "whether the model's weights were made up"),
    "samples": (SAMPLES, "each process's value of each metric"),
    "why_no_samples": (TEXT, "the reason if there are none"),
    "kernels": (KERNELS, f"the {MOST_KERNELS} kernels that took the most time, by name"),
    "kernels_left_out": (INT, "how many more there were"),
    "left_out_ns": (INT, "time of those"),
    "why_no_kernels": (TEXT, "the reason if there are none"),
    "fp32_flops": (REAL, "measured peak of what ran it, operations a second; null: not calibrated"),
    "dram_bytes_per_s": (REAL, "measured bandwidth of its memory; null: not calibrated"),
    "devices_used": (INT, "on how many devices it ran"),
    "why_no_devices_used": (TEXT, "the reason if that is not known"),
    "device_times": (DEVICE_TIMES, "each device's time in a judged step, or in the window where steps are not counted, "
                                   "without waits for a late one; null: recorded before version 2"),
    "why_no_device_times": (TEXT, "the reason if there are none"),
    "straggler": (INT, "place in device_times of the device that the others wait for throughout"),
    "straggler_pct": (REAL, "share of the time that this takes"),
    "why_no_straggler": (TEXT, "the reason if none is named"),
    "labels": (LABELS, "what a scheduler calls the work: job, partition, pod, ...; null: recorded before version 3"),
    "why_no_labels": (TEXT, "the reason if there are none"),
    "health": (HEALTH, "each device's state by its telemetry, with the evidence; null: recorded before version 3"),
    "why_no_health": (TEXT, "the reason if there is none"),
}, never_null=("session_id", "time_ns", "month", "fingerprint"), version=3)
# The columns that a version added. Of rows of an earlier version they are null.
ADDED = {2: ("fp32_flops", "dram_bytes_per_s", "devices_used", "why_no_devices_used", "device_times",
             "why_no_device_times", "straggler", "straggler_pct", "why_no_straggler"),
         3: ("labels", "why_no_labels", "health", "why_no_health")}


class BundleFacts(Struct, frozen=True):
    """A bundle's row, and the bytes of the Parquet file of only this row. sha256: of those bytes, its name."""

    session_id: str
    month: str
    model: str | None
    device: str | None
    node: str | None
    time_ns: int
    content: bytes

    @property
    def sha256(self) -> str:
        """Return the digest of the content; equal facts have equal bytes."""
        return hashlib.sha256(self.content).hexdigest()

    def earlier_digests(self) -> Iterator[str]:
        """Yield the digest of the same facts as each earlier version wrote them."""
        table = parse(self.content, self.session_id)
        for version in range(FACTS.version - 1, 0, -1):
            table = table.drop_columns(ADDED[version + 1])
            stamp = {**table.schema.metadata, b"aaco.version": str(version).encode()}
            yield hashlib.sha256(content(table.replace_schema_metadata(stamp))).hexdigest()


def content(table: pa.Table) -> bytes:
    """Return the bytes of a Parquet file with these facts: the same rows give the same bytes."""
    import pyarrow.parquet as pq

    target = io.BytesIO()
    pq.write_table(table, target, compression="zstd", write_page_checksum=True)
    return target.getvalue()


def parse(content: bytes, where: str) -> pa.Table:
    """Return the facts of a file's bytes. Raise BadBundle, also for those that a later version wrote."""
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        raise BadBundle(f"{where}: unreadable Parquet: {first_line(error)}", "aaco fleet ingest BUNDLE") from error
    require_version(table.schema.metadata or {}, where)
    return FACTS.conform(table, where)


def require_version(stamp: Mapping[bytes, bytes], where: str, spec: TableSpec = FACTS) -> None:
    """Raise BadBundle for a file that holds no facts, or those of a later version. stamp: the file's metadata."""
    version = stamp.get(b"aaco.version", b"")
    if stamp.get(b"aaco.table") != spec.name.encode() or not version.isdigit():
        raise BadBundle(f"{where}: no facts of a fleet", "name another --lake")
    if int(version) > spec.version:
        raise BadBundle(f"{where}: facts of version {int(version)}; this version of aaco reads up to {spec.version}",
                        "upgrade aaco on this machine")
