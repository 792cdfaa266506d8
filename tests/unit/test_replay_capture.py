"""Captured kernel launches: what is written comes back, and what was damaged or made up is refused by name."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from pathlib import Path

import jsonschema
import pytest

from aaco.core.errors import AacoError, BadCapture, Missing, UsageError
from aaco.replay import capture as captures
from aaco.replay.blobs import blob_name
from aaco.replay.capture import CaptureWriter
from aaco.replay.documents import RegionUse
from aaco.replay.verify import verify
from tests.fakes import kernel_captures
from tests.fakes.kernel_captures import BASE, PAGE, launch, origin

SECOND = BASE + (64 << 20)
SCHEMAS = Path(__file__).parents[2] / "docs/reference/schemas"


@pytest.fixture(params=["folder", "one.aacocap"])
def written(request, tmp_path):
    """A capture in either form."""
    return kernel_captures.write(tmp_path / request.param)


def change(folder, **fields):
    """Change capture.json by hand."""
    document = json.loads((folder / "capture.json").read_text())
    (folder / "capture.json").write_text(json.dumps(document | fields))


def change_region(folder, **fields):
    """Change the first region of capture.json by hand."""
    regions = json.loads((folder / "capture.json").read_text())["regions"]
    change(folder, regions=[regions[0] | fields, *regions[1:]])


def refused(path, *words):
    """Opening or verifying says these words."""
    with pytest.raises(BadCapture) as caught, captures.open(path) as capture:
        problems = verify(capture).problems
        if problems:
            raise BadCapture("; ".join(problems))
    for word in words:
        assert word in str(caught.value)


def test_what_is_written_comes_back(written):
    with captures.open(written) as capture:
        first, second = capture.regions
        assert capture.launch == launch() and capture.document.captured_from == origin()
        assert b"".join(capture.pages(first, "before")) == bytes(3 * PAGE) + b"in"
        assert list(capture.pages(second, "after")) == [b"\1" * PAGE, b"\2" * PAGE]
        assert capture.changed_pages(first) == [] and capture.changed_pages(second) == [1]
        assert capture.code() == (kernel_captures.CODE / "chase_sm_90.cubin").read_bytes()
        assert verify(capture).problems == () and (verify(capture).pages, verify(capture).digests) == (12, 4)


def test_equal_pages_are_stored_once(tmp_path):
    """Mutation: a blob written for every page."""
    folder = kernel_captures.write(tmp_path / "folder")
    assert len(list((folder / "blobs").iterdir())) == 5  # zeros, the tail, ones, twos, and the code


def test_documents_fit_their_published_schemas(tmp_path):
    folder = kernel_captures.write(tmp_path / "folder")
    with captures.open(folder) as capture:
        captures.remember_roles(capture, "inverted", [RegionUse(base=BASE, read=True, written="none")])
    for name, schema in (("capture", "kernel_capture"), ("roles", "kernel_capture_roles")):
        published = json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
        jsonschema.Draft202012Validator(published).validate(json.loads((folder / f"{name}.json").read_text()))


def test_measured_roles_stay_with_the_capture(written):
    use = RegionUse(base=BASE, read=False, written="all")
    for _ in range(2):  # a second measurement takes the place of the first
        with captures.open(written) as capture:
            captures.remember_roles(capture, "each region inverted", [use])
    with captures.open(written) as capture:
        assert capture.roles.regions == [use] and verify(capture).problems == ()
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_roles_of_another_capture_are_refused(tmp_path):
    """Mutation: the digest of capture.json is not compared."""
    folder = kernel_captures.write(tmp_path / "folder")
    with captures.open(folder) as capture:
        captures.remember_roles(capture, "inverted", [])
    change(folder, not_captured=[])
    refused(folder, "roles.json was measured of another capture.json")


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw[:5], lambda raw: b"",
                                    lambda raw: raw[:9] + bytes([raw[9] ^ 4]) + raw[10:],
                                    lambda raw: raw + b"more" * PAGE])
def test_a_damaged_blob_is_named(tmp_path, damage):
    folder = kernel_captures.write(tmp_path / "folder")
    with captures.open(folder) as capture:
        name = blob_name(capture.regions[1].before[0])
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    refused(folder, name[6:70])


def test_a_blob_of_other_bytes_is_named(tmp_path):
    """Mutation: the digest of what was unpacked is not compared."""
    folder = kernel_captures.write(tmp_path / "folder")
    with captures.open(folder) as capture:
        ones, twos = (blob_name(digest) for digest in capture.regions[1].after)
    shutil.copy(folder / ones, folder / twos)
    refused(folder, "holds other bytes than its name says")


def test_a_missing_blob_is_noticed_when_the_capture_is_opened(tmp_path):
    folder = kernel_captures.write(tmp_path / "folder")
    next((folder / "blobs").iterdir()).unlink()
    with pytest.raises(BadCapture, match="1 blobs are missing"):
        captures.open(folder)


@pytest.mark.parametrize(("fields", "words"), [
    ({"base": BASE + (64 << 20)}, "overlap"), ({"size": 1 << 64}, "less than or equal"), ({"size": 0}, "greater than"),
    ({"base": (1 << 64) - 8}, "beyond the last address"), ({"base": 1 << 64}, "less than"), ({"base": -1}, "greater"),
    ({"size": PAGE}, "pages"), ({"before": ["../../etc/passwd"] * 4}, "pattern"), ({"before": None}, "no digests"),
    ({"symbol": "../x"}, "has a symbol"), ({"role": "secret"}, "role"), ({"size": 12290.5}, "integer")])
def test_impossible_regions_are_refused(tmp_path, fields, words):
    folder = kernel_captures.write(tmp_path / "folder")
    change_region(folder, **fields)
    refused(folder, words)


@pytest.mark.parametrize(("fields", "words"), [
    ({"schema_version": 3}, "format 3"), ({"schema_version": 1}, "not of format 2"), ({"format": "other"}, "format"),
    ({"page_bytes": 4097}, "power of two"), ({"page_bytes": 1 << 40}, "page_bytes"), ({"regions": "none"}, "regions"),
    ({"launch": launch(symbol="gone").model_dump(mode="json")}, "no kernel gone"),
    ({"launch": launch(arguments="00" * 24, layout=[]).model_dump(mode="json")}, "arguments lie elsewhere"),
    ({"launch": launch().model_dump(mode="json") | {"arguments": "00"}}, "lies outside"),
    ({"captured_from": origin(isa="sm_80").model_dump(mode="json")}, "its code is for sm_90")])
def test_impossible_documents_are_refused(tmp_path, fields, words):
    folder = kernel_captures.write(tmp_path / "folder")
    change(folder, **fields)
    refused(folder, words)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"schema_version": NaN}', "\xff"])
def test_what_is_no_document_is_refused(tmp_path, text):
    folder = kernel_captures.write(tmp_path / "folder")
    (folder / "capture.json").write_bytes(text.encode("latin-1"))
    refused(folder, "capture.json")


@pytest.mark.parametrize("name", ["other.txt", "blobs/../x", "blobs/" + "A" * 64 + ".zst", "capture.json/x", ".hidden"])
def test_a_file_that_no_capture_has_is_refused(tmp_path, name):
    path = kernel_captures.write(tmp_path / "one.aacocap")
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr(name, b"")
    refused(path, "is no file of a capture")


def test_a_link_in_a_folder_is_not_followed(tmp_path):
    folder = kernel_captures.write(tmp_path / "folder")
    blob = next((folder / "blobs").iterdir())
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    refused(folder, str(blob))


def test_a_blob_that_nothing_names_is_a_problem(tmp_path):
    folder = kernel_captures.write(tmp_path / "folder")
    (folder / blob_name("0" * 64)).write_bytes(b"hidden")
    refused(folder, "named nowhere")


def rezipped(path, change_entry):
    """The same entries, each as change_entry makes it: a ZipInfo and the content."""
    target = path.with_name("changed.aacocap")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            new.writestr(*change_entry(zipfile.ZipInfo(entry.filename), old.read(entry)))
    return target


def test_a_zip_that_is_compressed_is_refused(tmp_path):
    """A bomb of zip. Mutation: entries of any method are read."""
    def deflated(entry, content):
        entry.compress_type = zipfile.ZIP_DEFLATED
        return entry, content

    refused(rezipped(kernel_captures.write(tmp_path / "one.aacocap"), deflated), "is not stored")


def test_a_bomb_of_zstd_unpacks_no_further_than_its_page(tmp_path):
    import pyarrow as pa

    bomb = pa.Codec("zstd").compress(bytes(256 << 20), asbytes=True)

    def packed(entry, content):
        return entry, bomb if entry.filename.startswith("blobs/") else content

    refused(rezipped(kernel_captures.write(tmp_path / "one.aacocap"), packed), "blobs/")


def test_entries_that_overlap_or_repeat_are_refused(tmp_path):
    path = kernel_captures.write(tmp_path / "one.aacocap")
    with zipfile.ZipFile(path, "a") as opened, pytest.warns(UserWarning, match="Duplicate name"):
        opened.writestr("capture.json", b"{}")
    refused(path, "twice")
    raw = bytearray(kernel_captures.write(tmp_path / "two.aacocap").read_bytes())
    for at in (found for found in range(len(raw)) if raw.startswith(b"PK\1\2", found)):
        struct.pack_into("<II", raw, at + 20, len(raw), len(raw))
    (tmp_path / "two.aacocap").write_bytes(raw)
    refused(tmp_path / "two.aacocap", "its entries overlap")


def test_a_directory_of_a_zip_without_end_is_refused_before_it_is_read(tmp_path):
    """Mutation: the entries are not counted before zipfile makes an object of each."""
    path = kernel_captures.write(tmp_path / "one.aacocap")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, len(raw) - 10, 1 << 31)
    path.write_bytes(raw)
    refused(path, "its directory has")


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_one_file_that_was_cut_is_refused(tmp_path, cut):
    path = kernel_captures.write(tmp_path / "one.aacocap")
    path.write_bytes(path.read_bytes()[:-len(path.read_bytes()) * cut // 40])
    refused(path, "cut short")


def test_every_flipped_byte_of_one_file_is_noticed_or_harmless(tmp_path):
    """No flip raises anything but our errors, and none changes what is read."""
    path = kernel_captures.write(tmp_path / "one.aacocap", {BASE: (b"memory" * 900, b"Memory" * 900)})
    raw, noticed = path.read_bytes(), 0
    with captures.open(path) as capture:
        kept = capture.document, list(capture.pages(capture.regions[0], "before")), capture.code()
    for at in range(0, len(raw), 7):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x20]) + raw[at + 1:])
        try:
            with captures.open(path) as capture:
                pages = list(capture.pages(capture.regions[0], "before"))
                assert (capture.document, pages, capture.code()) == kept
        except AacoError:
            noticed += 1
    assert noticed > len(range(0, len(raw), 7)) * 0.8  # the others are dates and attributes of the zip


def test_too_much_memory_is_refused_before_a_byte_is_written(tmp_path):
    """Mutation: the size is compared when the region is stored."""
    with CaptureWriter(tmp_path / "folder", max_bytes=10) as writer:
        with pytest.raises(UsageError, match="11 bytes of memory are more than the 10"):
            writer.check_room(11)
        with pytest.raises(UsageError, match="--max-bytes 11"):
            writer.add_region(BASE, 11, "device", bytes(11))
        assert list(tmp_path.iterdir()) == []
        writer.add_region(BASE, 10, "device", bytes(10))
        with pytest.raises(UsageError):
            writer.add_region(SECOND, 1, "device", bytes(1))


@pytest.mark.parametrize("name", ["folder", "one.aacocap"])
def test_what_is_not_finished_leaves_nothing(tmp_path, name):
    """Mutation: close() ends the zip."""
    with pytest.raises(ValueError, match="planned"), CaptureWriter(tmp_path / name) as writer:
        writer.add_region(BASE, 10, "device", bytes(10))
        raise ValueError("planned")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_capture_is_not_replaced(written):
    with pytest.raises(UsageError, match="exists already"):
        CaptureWriter(written)


def test_impossible_regions_are_not_written(tmp_path):
    with CaptureWriter(tmp_path / "folder", page_bytes=PAGE) as writer:
        with pytest.raises(BadCapture, match="beyond the last address"):
            writer.add_region((1 << 64) - 4, 8, "device", bytes(8))
        with pytest.raises(ValueError, match="has 8 bytes, not 7"):
            writer.add_region(BASE, 8, "device", bytes(7))
        writer.add_region(BASE, 8, "global", bytes(8), symbol="launches")
        with pytest.raises(BadCapture, match="two regions begin"):
            writer.add_region(BASE, 4, "device", bytes(4))
        writer.add_region(BASE + 4, 8, "device", bytes(8))
        with pytest.raises(BadCapture, match="overlap"):
            writer.finish(launch=launch(), code=b"x", kind="cubin", captured_from=origin())
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_cannot_run_the_code_is_refused(tmp_path):
    with captures.open(kernel_captures.write(tmp_path / "folder")) as capture:
        capture.require("sm_90a", "580.1")
        capture.require("sm_90a")
        with pytest.raises(Missing, match="its code is for sm_90a, this device runs sm_80"):
            capture.require("sm_80")
        with pytest.raises(BadCapture, match=r"captured with driver 580\.1, this is 550"):
            capture.require("sm_90a", "550")


def test_the_state_after_a_launch_that_was_not_captured_is_an_error(tmp_path):
    folder = kernel_captures.write(tmp_path / "folder", {BASE: (b"x", None)})
    with captures.open(folder) as capture, pytest.raises(BadCapture, match="no state after the launch"):
        list(capture.pages(capture.regions[0], "after"))


def test_nothing_there_is_a_mistake_of_usage(tmp_path):
    with pytest.raises(UsageError, match="no such capture"):
        captures.open(tmp_path / "nothing")
    (tmp_path / "text").write_text("no capture")
    refused(tmp_path / "text", "cut short, or not a capture")
    with pytest.raises(BadCapture, match=r"capture\.json: missing"):
        captures.open(tmp_path)
