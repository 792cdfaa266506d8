"""What strangers send: counted before it is parsed, and gone afterwards; and pages of tables, which they ask for."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.errors import UsageError
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.runner import iterations
from aaco.tracelake import queries, store
from aaco.tracelake.raw import GZIP
from aaco.tracelake.share import intake


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.integers(-2, 2))
def test_a_packed_file_passes_up_to_what_it_unpacks_to(tmp_path_factory, members: list[bytes], more: int) -> None:
    path = tmp_path_factory.mktemp("packed") / "x.gz"
    path.write_bytes(b"".join(map(gzip.compress, members)))
    size = sum(map(len, members))
    if more < 0 and size + more >= 0:
        with pytest.raises(UsageError, match="unpacks to more"):
            intake.refuse_bomb(path, size + more)
    elif more >= 0:
        intake.refuse_bomb(path, size + more)


@given(st.binary(max_size=400))
def test_what_is_not_packed_or_damaged_is_left_to_its_parser(tmp_path_factory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("raw") / "x"
    path.write_bytes(raw)
    intake.refuse_bomb(path, 1 << 20)
    path.write_bytes(GZIP + raw)
    intake.refuse_bomb(path, 1 << 20)


def test_a_bomb_is_counted_without_the_memory_it_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20), 9))
    assert path.stat().st_size < 1 << 17
    with pytest.raises(UsageError, match="unpacks to more"):
        intake.refuse_bomb(path, 1 << 20)


def test_a_nursery_is_gone_and_so_are_those_that_were_abandoned(tmp_path: Path) -> None:
    old, young = tmp_path / ".upload-old", tmp_path / ".upload-young"
    for folder in (old, young):
        folder.mkdir()
    os.utime(old, (0, time.time() - 2 * intake.ABANDONED_S))
    with pytest.raises(RuntimeError), intake.nursery(tmp_path) as folder:
        (folder / "x").write_text("")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == [".upload-young"]


def test_what_would_fill_the_disk_is_refused(tmp_path: Path) -> None:
    intake.require_room(tmp_path, 0)
    with pytest.raises(UsageError, match="fill the disk"):
        intake.require_room(tmp_path, 1 << 60)


def test_pages_of_a_table_are_its_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROW_GROUP", 7)
    made = queries.QueryableSession(Session.create(tmp_path, {}, "", "0").folder)
    whole = KERNELS.build(kernel_id=range(31), kernel_name=[f"k{number % 3}" for number in range(31)])
    store.write(made, KERNELS, whole)
    for offset in range(0, 35):
        for limit in (1, 6, 7, 8, 40):
            page = made.page("kernels", ["kernel_id", "kernel_name"], offset, limit)
            assert page.to_pylist() == whole.select(["kernel_id", "kernel_name"]).slice(offset, limit).to_pylist()
    assert made.page("copies", None, 0, 5).num_rows == 0


@given(st.integers(0, 20), st.integers(1, 8), st.integers(0, 31))
def test_the_newest_rows_of_a_growing_file_are_whole(tmp_path_factory, count: int, most: int, torn: int) -> None:
    path = tmp_path_factory.mktemp("rows") / "x.i64"
    path.write_bytes(b"".join(iterations.ROW.pack(number, 1, 0, number) for number in range(count)) + bytes(torn))
    assert iterations.last(path, most)[:, 0].tolist() == list(range(count))[-most:]
