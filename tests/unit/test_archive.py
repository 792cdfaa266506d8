"""A session as one file: what comes back is what went in, no changed byte stays unseen, nothing hostile gets out."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from aaco.core.errors import BadBundle, UsageError
from aaco.tracelake.share import archive, packing, ustar
from aaco.tracelake.share.archive import Contents, File

FORMS = (".tar.zst", ".aaco", ".tar.gz", ".json", ".json.gz")
SMALL = {"session.json": b'{"session_id": "s"}\n', "metrics/empty.json": b"",
         "model/x" + "n" * 120 + ".bin": bytes(513)}
LETTERS = st.characters(min_codepoint=33, max_codepoint=0x4ff, exclude_characters="/\\\x7f\xad")
PART = st.text(LETTERS, min_size=1, max_size=60).filter(lambda part: part.isprintable() and part not in (".", ".."))


def contents_of(content: dict[str, bytes], **more) -> Contents:
    listed = [File(name=name, bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest()) for name, raw in content.items()]
    return Contents(session_id="s", status="complete", tool_version="0", files=listed, **more)


def write(path: Path, content: dict[str, bytes]) -> Contents:
    contents = contents_of(content)
    archive.write(path, contents, lambda name: io.BytesIO(content[name]), archive.form_of(path))
    return contents


def unpacked(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25)
@given(content=st.dictionaries(st.lists(PART, min_size=1, max_size=4).map("/".join), st.binary(max_size=3000),
                               max_size=6))
def test_what_comes_back_is_what_went_in(tmp_path_factory, form, content):
    content |= {"session.json": b"{}"}
    folder = tmp_path_factory.mktemp("trip")
    try:
        contents = write(folder / f"a{form}", content)
    except ValidationError:  # a file and a folder of one name, or a name too long for a disk
        return
    write(folder / f"b{form}", content)
    assert (folder / f"a{form}").read_bytes() == (folder / f"b{form}").read_bytes()  # nothing of the moment in it
    told: list[tuple[int, int]] = []
    found = archive.check(folder / f"a{form}", progress=lambda done, total: told.append((done, total)))
    assert told == [(number, len(found.contents.files)) for number in range(len(found.contents.files))]
    assert not found.problems and found.contents == contents
    archive.extract(folder / f"a{form}", folder / "out")
    assert unpacked(folder / "out") == content


@pytest.mark.parametrize("form", FORMS)
def test_every_flipped_byte_is_found_and_the_file_it_is_in_is_named(tmp_path, form):
    """Mutation: the seal is not looked at; a file's hash is not looked at."""
    path, chance = tmp_path / f"a{form}", Random(1)
    write(path, SMALL)
    whole = path.read_bytes()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = archive.check(path)
        listed = {each.name for each in found.contents.files} if found.contents else set()
        assert found.problems, at
        assert set(found.problems) <= {"the archive", archive.LIST, archive.SEAL, *listed}


@pytest.mark.parametrize("form", [".tar.zst", ".tar.gz", ".json", ".json.gz"])
def test_a_change_that_was_packed_again_is_named(tmp_path, form):
    """As by somebody who unpacked it, changed a letter and packed it: the outer seal fits again."""
    path, chance = tmp_path / f"a{form}", Random(2)
    content = {f"metrics/{number}.bin": chance.randbytes(700) for number in range(5)} | SMALL
    write(path, content)
    kind = "zst" if "zst" in form else "gz" if "gz" in form else ""
    raw = path.read_bytes()
    body = raw[:len(raw) - packing.SEAL_BYTES[kind]]
    with packing.unpacked(io.BytesIO(body), len(body), kind) as stream:
        plain = bytearray(stream.read())
    start = plain.index(content["metrics/3.bin"][:50] if "tar" in form else b'"metrics/3.bin": "') + 20
    plain[start] = ord("A") if plain[start] != ord("A") else ord("B")
    target = packing.Hashing(file := io.BytesIO())
    with packing.packed(target, kind) as packed:
        packed.write(bytes(plain))
    path.write_bytes(file.getvalue() + packing.seal(kind, target.hash.digest()))
    assert archive.check(path).problems == {"metrics/3.bin": "changed since it was written"}
    with pytest.raises(BadBundle, match=r"metrics/3\.bin"):
        archive.extract(path, tmp_path / "out")


@pytest.mark.parametrize("form", FORMS)
def test_cuts_and_additions(tmp_path, form):
    path, chance = tmp_path / f"a{form}", Random(3)
    write(path, SMALL)
    whole = path.read_bytes()
    for changed in (*(whole[:chance.randrange(len(whole))] for _ in range(50)), b"", whole + b"\0", whole + whole,
                    whole[1:], chance.randbytes(5000)):
        path.write_bytes(changed)
        assert archive.check(path).problems
        with pytest.raises(BadBundle):
            archive.extract(path, tmp_path / "never")


def test_other_programs_read_it(tmp_path):
    for form, how in ((".tar.zst", "--zstd"), (".tar.gz", "-z")):
        path = tmp_path / f"a{form}"
        write(path, SMALL | {"näme/ü.txt": b"x"})
        done = subprocess.run(["tar", how, "-tf", str(path), "--quoting-style=literal"], capture_output=True, text=True)
        if form == ".tar.zst" and done.returncode and "zstd" in done.stderr:
            pytest.skip("no zstd program here")
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert done.stdout.split()[0] == "bundle.json" and done.stdout.split()[-1] == "bundle.sha256"
    with tarfile.open(tmp_path / "a.tar.gz") as opened:
        members = {member.name: opened.extractfile(member).read() for member in opened.getmembers()}
    files = {name.removeprefix("s/"): raw for name, raw in members.items() if "/" in name}
    assert files == SMALL | {"näme/ü.txt": b"x"}
    line = members["bundle.sha256"].decode()
    assert line == f"{hashlib.sha256(members['bundle.json']).hexdigest()}  bundle.json\n"
    assert json.loads(members["bundle.json"])["format_version"] == "1.0.0"


@pytest.mark.parametrize("size", [0, 1, 8**11 - 1, 8**11, 2**40])
@pytest.mark.parametrize("name", ["a", "n" * 100, "n" * 101, "ü" * 60, "/".join(["d" * 90] * 10)])
def test_headers_are_those_that_tarfile_reads(name, size):
    made = tarfile.TarInfo.frombuf(b"".join(ustar.headers(name, size))[-512:], "utf-8", "surrogateescape")
    if len(name.encode()) <= 100 and size < 8**11:
        assert (made.name, made.size, made.mode, made.type) == (name, size, 0o644, tarfile.REGTYPE)
    with tarfile.open(fileobj=io.BytesIO(b"".join(ustar.headers(name, size)) + bytes(1024))) as opened:
        member = opened.next()
        assert (member.name, member.size) == (name, size)


@pytest.mark.parametrize("name", [
    "../x", "a/../../x", "/etc/x", "a//b", "./a", "a/.", "", "a/", "a\\b", "a\nb", "a\0b", "\x1b[31m", "\u202egnp",
    "session.json/x", "n" * 256, "/".join("d" * 40), "ü" * 200, "\ud800"])
def test_names_that_lead_elsewhere_are_no_files_of_a_session(name):
    """Mutation: any name is taken."""
    with pytest.raises((ValidationError, UnicodeEncodeError)):
        contents_of({"session.json": b"{}", name: b"x"})


def tarred(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive made by tarfile, sealed as ours are."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for member, raw in members:
            member.size = len(raw)
            made.addfile(member, io.BytesIO(raw))
    target = packing.Hashing(file := io.BytesIO())
    with packing.packed(target, "zst") as packed:
        packed.write(plain.getvalue())
    path.write_bytes(file.getvalue() + packing.seal("zst", target.hash.digest()))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, 0o644
    return made


@pytest.mark.parametrize("second", [
    member("s/session.json", tarfile.SYMTYPE, "/etc/passwd"), member("s/session.json", tarfile.LNKTYPE, "/etc/passwd"),
    member("s/session.json", tarfile.CHRTYPE), member("s/session.json", tarfile.FIFOTYPE),
    member("s/session.json", tarfile.DIRTYPE),
    member("../session.json"), member("/s/session.json"), member("session.json"), member("s/session.json", b"S")])
def test_links_devices_and_strangers_are_refused(tmp_path, second):
    """Mutation: headers are not compared."""
    listed = archive._listed(contents_of({"session.json": b"{}"}))
    inside = b"{}" if second.isreg() else b""
    path = tarred(tmp_path / "a.tar.zst", (member("bundle.json"), listed), (second, inside))
    (tmp_path / "out").mkdir()
    with pytest.raises(BadBundle, match=r"session\.json"):
        archive.extract(path, tmp_path / "out")
    assert not unpacked(tmp_path / "out")


@pytest.mark.parametrize("change", [
    {"format": "other"}, {"format_version": "2.0.0"}, {"format_version": "1"}, {"session_id": "../s"},
    {"session_id": ""},
    {"files": []}, {"files": [{"name": "a", "bytes": 1, "sha256": "0" * 64}]}, {"files": None},
    {"files": [{"name": "session.json", "bytes": -1, "sha256": "0" * 64}]},
    {"files": [{"name": "session.json", "bytes": 2**60, "sha256": "0" * 64}]},
    {"files": [{"name": "session.json", "bytes": 1, "sha256": "x"}]},
    {"files": [{"name": "session.json", "bytes": 1, "sha256": "0" * 64}] * 2}])
def test_lists_that_are_none(tmp_path, change):
    document = json.loads(archive._listed(contents_of({"session.json": b"{}"}))) | change
    path = tarred(tmp_path / "a.tar.zst", (member("bundle.json"), json.dumps(document).encode()))
    assert set(archive.check(path).problems) == {"bundle.json"}


def test_a_bomb_is_refused_by_what_it_says_and_stops_at_what_it_said(tmp_path):
    """Mutation: the size is not asked for."""
    path = tmp_path / "a.tar.zst"
    write(path, {"session.json": bytes(1 << 20)})
    assert path.stat().st_size < 1000
    with pytest.raises(BadBundle, match="more than the"):
        archive.extract(path, tmp_path / "out", most_bytes=(1 << 20) - 1)
    assert not (tmp_path / "out").exists()
    listed = archive._listed(contents_of({"session.json": b"{}"}))
    huge = tarred(tmp_path / "b.tar.zst", (member("bundle.json"), listed), (member("s/session.json"), bytes(1 << 20)))
    (tmp_path / "small").mkdir()
    with pytest.raises(BadBundle, match="something else"):
        archive.extract(huge, tmp_path / "small")
    assert not unpacked(tmp_path / "small")
    for form in (".json", ".json.gz"):
        archive_of_ones = tmp_path / f"c{form}"
        archive_of_ones.write_bytes(gzip.compress(b"1" * 10_000) if "gz" in form else b"[" * 10_000)
        assert archive.check(archive_of_ones).problems


def test_a_file_that_changes_under_our_hands_is_no_bundle(tmp_path):
    contents = contents_of({"session.json": b"{}"})
    with pytest.raises(BadBundle, match="changed while"):
        archive.write(tmp_path / "a.tar.zst", contents, lambda _: io.BytesIO(b"[]"), "tar.zst")
    assert not list(tmp_path.iterdir())


def test_names_of_files_say_their_form(tmp_path):
    with pytest.raises(UsageError, match="form"):
        archive.form_of(Path("x.zip"))
    with pytest.raises(UsageError, match="no such file"):
        archive.check(tmp_path / "none.tar.zst")
    assert pa.Codec.is_available("zstd")
