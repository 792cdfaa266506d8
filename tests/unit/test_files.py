"""Atomic writes: the whole new file or the whole old one."""

import json
import os
import subprocess

import pytest

from aaco.core import files
from aaco.core.errors import BadBundle, StorageError


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    files.write_json(path, {"old": 1})

    def fill(file):
        file.write(b"half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        files.write_atomically(path, fill)
    assert files.read_json(path) == {"old": 1}
    assert names(tmp_path) == ["a.json"]


def test_nan_is_refused_because_absent_is_null(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"value": float("nan")})
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_json_is_a_bad_bundle(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(BadBundle, match=r"a\.json"):
        files.read_json(tmp_path / "a.json")


def test_a_full_disk_is_a_storage_error_with_a_remedy(tmp_path):
    """On a real full file system of its own: a 64 KiB tmpfs, where the machine lets us mount one."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        with pytest.raises(StorageError, match="No space left") as caught:
            files.write_atomically(tmp_path / "big", lambda file: file.write(b"x" * 1_000_000))
        assert "free some space" in caught.value.fix
        assert names(tmp_path) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_folder_or_a_file_in_the_way_is_told_with_what_to_do(tmp_path):
    """Mutation: a folder in place of the file is blamed on the disk."""
    (tmp_path / "there").write_text("")
    for path, remedy in ((tmp_path, "name a file"), (tmp_path / "there" / "x.html", "-o FILE")):
        with pytest.raises(StorageError) as refused:
            files.write_atomically(path, lambda out: out.write(b""))
        assert remedy in refused.value.fix


def test_sha256_is_the_tools(tmp_path):
    (tmp_path / "f").write_bytes(os.urandom(300_000))
    said = subprocess.run(["sha256sum", tmp_path / "f"], capture_output=True, text=True, check=True).stdout
    assert files.sha256(tmp_path / "f") == said.split()[0]


def test_a_link_is_followed_and_a_pipe_is_written_not_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    files.write_atomically(tmp_path / "link", lambda file: file.write(b"new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_atomically(tmp_path / "pipe", lambda file: file.write(b"x"))
    assert os.read(reader, 9) == b"x"
    assert (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_file_is_written_over_within_its_room_alone(tmp_path):
    """Mutation: no look at the room: a full disk would leave the beginning of the new content over the old."""
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"status": "running"}))
    with path.open("rb") as file:
        os.fdatasync(file.fileno())  # a file system may give out the room only then
    files.overwrite(path, b'{"a": 1}')
    assert json.loads(path.read_text()) == {"a": 1} and path.stat().st_size == 21
    with pytest.raises(StorageError, match="No space left"):
        files.overwrite(path, b" " * (path.stat().st_blocks * 512 + 1))
    assert json.loads(path.read_text()) == {"a": 1}
