"""The record of a load: rows come back, a torn block costs only itself, a damaged one is an error, no key is in it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from aaco.core.errors import BadCapture, StorageError
from aaco.llm import record
from aaco.llm.record import Kind, ReadRecorder
from aaco.llm.stamps import ClockLooks


def written(path: Path, blocks: int = 2, secret: bytes = b"") -> Path:
    recorder = ReadRecorder(path, secret)
    for block in range(blocks):
        for row in range(3):
            recorder.add(row, Kind.BODY, 100 + row, 200 + row, f"block {block} row {row}".encode(), 50)
        recorder.flush()
    recorder.close()
    return path


def test_rows_and_bytes_come_back(tmp_path: Path):
    first, second = record.read(written(tmp_path / "reads"))
    assert first.rows["request"].tolist() == [0, 1, 2] and first.rows["user_ns"].tolist() == [200, 201, 202]
    assert second.content == b"block 1 row 0block 1 row 1block 1 row 2" and second.rows["since_ns"].tolist() == [50] * 3


def test_a_record_cut_anywhere_keeps_its_whole_blocks(tmp_path: Path):
    """Mutation: what is left of a torn block is read."""
    whole = written(tmp_path / "reads").read_bytes()
    counts = []
    for size in range(len(whole) + 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        counts.append(sum(len(block.rows) for block in record.read(tmp_path / "cut")))
    assert set(counts) == {0, 3, 6} and counts == sorted(counts) and counts[-2:] == [3, 6]


def test_a_flipped_byte_is_an_error_or_a_torn_end(tmp_path: Path):
    """Mutation: no checksum."""
    whole = written(tmp_path / "reads").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "bad").write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1:])
        try:
            read = [block.content for block in record.read(tmp_path / "bad")]
        except BadCapture:
            continue
        assert len(read) < 2  # a size that reaches beyond the end


def test_no_secret_reaches_the_file(tmp_path: Path):
    recorder = ReadRecorder(tmp_path / "reads", b"row 1")
    recorder.close()
    first, _ = record.read(written(tmp_path / "reads2", secret=b"row 1"))
    assert first.content == b"block 0 row 0block 0 *****block 0 row 2"


def test_what_cannot_be_written_is_said(tmp_path: Path):
    with pytest.raises(StorageError):
        ReadRecorder(tmp_path)
    recorder = ReadRecorder(tmp_path / "reads")
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), recorder._descriptor)
    recorder.add(0, Kind.BODY, 0, 0, b"x")
    with pytest.raises(StorageError, match="No space"):
        recorder.close()


def test_stamps_around_a_step_of_the_wall_clock_are_not_used():
    """Looks at 1, 2, 3 s; the wall clock is set by 5 ms between the second and the third."""
    seconds = np.array([1, 2, 3]) * 1_000_000_000
    looks = ClockLooks(seconds, np.array([-10**18, -10**18 + 40, -10**18 - 5_000_000]), np.array([100, 100, 100]))
    read_at = np.array([1_500_000_000, 2_500_000_000, 3_500_000_000, 3_600_000_000, 1_600_000_000])
    stamps = np.array([10**18 + 1_499_990_000, 10**18 + 2_499_990_000, 10**18 + 5_000_000 + 3_499_990_000, 0,
                       10**18 + 1_700_000_000])
    assert looks.steps == 1
    assert looks.monotonic(stamps, read_at).tolist() == [1_499_990_000, 0, 3_499_990_000, 0, 0]
