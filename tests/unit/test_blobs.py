"""The BPF programs in the package are those of native/bpf, and building them is repeatable."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from aaco.collectors.host import bpf
from aaco.core.errors import Missing

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "native/bpf").glob("*.bpf.c"))
FEATURES = [source.name.removesuffix(".bpf.c") for source in SOURCES]
PACKED = ROOT / "src/aaco/collectors/blobs"
TOOLS = {"PATH": f"{os.environ['PATH']}:/usr/sbin"}
lacking = [tool for tool in ("clang", "llvm-strip", "bpftool", "make") if not shutil.which(tool, path=TOOLS["PATH"])]


def built(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    subprocess.run(["make", "-C", ROOT / "native/bpf", f"BLOBS={folder}/blobs", f"BUILD={folder}/build"], check=True,
                   capture_output=True, env=os.environ | TOOLS)
    return {name: (folder / f"blobs/{name}.blob").read_bytes() for name in FEATURES}


def test_every_source_has_its_blob_and_no_other_is_there() -> None:
    assert sorted(path.stem for path in PACKED.iterdir()) == FEATURES
    assert all(path.stat().st_size < 16_384 for path in PACKED.iterdir())


@pytest.mark.parametrize("source", SOURCES, ids=FEATURES)
def test_a_blob_was_made_from_the_source_as_it_is(source: Path) -> None:
    """Runs without a compiler. Mutation: change a comment of record.h without scripts/blobs."""
    whole = hashlib.sha256()
    for path in (source, *sorted(source.parent.glob("*.h"))):
        whole.update(path.read_bytes())
    facts = bpf.blob(source.name.removesuffix(".bpf.c")).facts
    assert facts["source_sha256"] == whole.hexdigest(), "run scripts/blobs"


@pytest.mark.skipif(bool(lacking), reason=f"not on PATH: {', '.join(lacking)}")
def test_building_twice_gives_the_same_and_what_is_packed(tmp_path: Path) -> None:
    """The bytes are compared where the compilers are those of the packed blobs; else what the loader must know.

    Mutation: flip a bit of a packed blob's instructions and compress it again.
    """
    first, second = built(tmp_path / "first"), built(tmp_path / "second")
    assert first == second
    for name, blob in first.items():
        packed = bpf.blob(name).facts
        facts = json.loads(zlib.decompress(blob).partition(b"\n")[0])
        assert (facts["maps"], facts["programs"]) == (packed["maps"], packed["programs"])
        if (facts["compiler"], facts["bpftool"]) == (packed["compiler"], packed["bpftool"]):
            assert zlib.decompress(blob) == zlib.decompress((PACKED / f"{name}.blob").read_bytes())
        assert str(ROOT).encode() not in zlib.decompress(blob)  # else the bytes depend on the place


def test_the_wheel_brings_the_blobs(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the wheel is built where hatchling is installed")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], check=True, cwd=ROOT,
                   capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert {f"aaco/collectors/blobs/{name}.blob" for name in FEATURES} <= set(names)


def test_an_installation_without_a_blob_says_so() -> None:
    with pytest.raises(Missing, match=r"blobs/nonesuch\.blob: not in this installation"):
        bpf.blob("nonesuch")
