"""Every parser keeps the contract of profiler/capture.py, whatever it is given: it reads, or raises BadCapture.

Parameterised over the parsers that are found; tests/contract/formats_table.py names the captures of each. Each test was
seen to fail: a parser that lets one KeyError through, recognises by file name, or holds a whole text fails here.
"""

from __future__ import annotations

import functools
import gzip
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.core.tables import ALL
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats import registry
from tests.contract import hostile
from tests.contract.formats_table import CAPTURES, MADE

pytestmark = pytest.mark.captures
FORMATS = sorted(registry.parsers())
SEEDS = 50
MEMORY_MB = 1500
RESIDENT_MB = 700
PROGRAM = Path(__file__).with_name("read_bounded.py")
NASTY = [b"null", b"-1", b"1e400", b"NaN", b'"', b"[", b"{", b"}", b"]", b",", b"\\", b"\n", b"\x00", b"\xff\xfe",
         b"9" * 40, b"18446744073709551615", b"-9223372036854775808", b"\xed\xa0\x80", b"\x1b[2J"]


def files(captures: Path, form: str) -> list[Path]:
    """The captures of a format, smallest first."""
    found = {path for pattern in CAPTURES.get(form, ()) for path in captures.glob(pattern)}
    if not found:
        pytest.skip(f"no captures of {form} among the third-party captures")
    return sorted(found, key=lambda path: (path.stat().st_size, path))


@functools.cache
def all_files(captures: Path) -> list[Path]:
    return sorted(path for path in captures.rglob("*") if path.is_file())


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def parser(form):
    return registry.parsers()[form]


@pytest.fixture
def smallest(captures, form, parser, tmp_path) -> Path:
    """A copy of the format's smallest capture, or one that was made, to be harmed."""
    if form in MADE:
        (tmp_path / "capture").mkdir()
        return MADE[form](tmp_path / "capture")
    path = hostile.copy(parser, files(captures, form)[0], tmp_path / "capture")
    if path.stat().st_size > hostile.LARGEST:
        pytest.fail(f"the smallest capture of {form} is too large to be read hundreds of times")
    return path


def read(parser, path: Path) -> list[pa.Table] | None:
    """The pieces; None where the parser says BadCapture, which must name the file and something to try."""
    try:
        *pieces, facts = parser.parse(path)
    except BadCapture as error:
        assert error.fix
        assert path.name in error.what
        assert len(error.what) < 2000
        return None
    assert isinstance(facts, CaptureFacts)
    return pieces


def keep_the_contract(pieces) -> None:
    for piece in pieces:
        spec = ALL[piece.schema.metadata[b"aaco.table"].decode()]
        assert piece.schema.equals(spec.schema)
        piece.validate(full=True)


def test_every_parser_names_its_captures():
    assert set(CAPTURES) == set(FORMATS), "add the format to tests/contract/formats_table.py"


def test_the_format_is_the_name_a_user_gives(form, parser):
    assert form == parser.FORMAT
    assert form.replace("-", "").replace("_", "").isalnum()
    assert form == form.lower()


def test_a_parser_recognises_its_own_captures_and_no_other(captures, form, parser):
    """Fails when a parser looks at names, or at marks that another format has too."""
    own = set(files(captures, form))
    seen = {path for path in all_files(captures) if parser.recognises(path)}
    assert seen == own, sorted(map(str, seen ^ own))[:10]


def test_captures_read_and_every_record_is_accounted_for(captures, form, parser):
    for path in files(captures, form)[:3]:
        *pieces, facts = parser.parse(path)
        keep_the_contract(pieces)
        assert facts.format == form
        kinds = {reason.split(": ")[0] for reason in facts.left_out}
        assert kinds <= facts.records.keys(), kinds
        kernels = [piece for piece in pieces if piece.schema.metadata[b"aaco.table"] == b"kernels"]
        if facts.kernels is None:
            assert not sum(piece.num_rows for piece in kernels)
            continue
        left = [part for reason, part in facts.left_out.items() if reason.startswith("kernel: ")]
        assert facts.kernels.count == sum(piece.num_rows for piece in kernels) + sum(part.count for part in left)
        took = sum(value or 0 for piece in kernels for value in piece["dur_ns"].to_pylist())
        assert facts.kernels.ns == took + sum(part.ns for part in left)


@pytest.mark.parametrize("harm", ["cut", "flipped"])
def test_cut_or_flipped_it_is_read_or_refused(smallest, parser, harm):
    content = smallest.read_bytes()
    for seed in range(SEEDS):
        smallest.write_bytes(getattr(hostile, harm)(content, seed))
        pieces = read(parser, smallest)
        if pieces is not None:
            keep_the_contract(pieces)
        parser.recognises(smallest)


def test_cut_or_flipped_inside_gzip(captures, form, parser, tmp_path):
    zipped = [path for path in files(captures, form) if path.read_bytes()[:2] == b"\x1f\x8b"]
    if not zipped:
        pytest.skip(f"no capture of {form} is zipped")
    for number, content in enumerate(hostile.damaged_zip(hostile.text(zipped[0]))):
        path = tmp_path / f"{number}.gz"
        path.write_bytes(content)
        assert read(parser, path) is None
        parser.recognises(path)


@settings(max_examples=30, derandomize=True, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.01) | st.just(0.0), st.binary(max_size=8) | st.sampled_from(
    NASTY)), min_size=1, max_size=5))
def test_fuzzed_it_is_read_or_refused(smallest, parser, pieces):
    content = smallest.read_bytes()
    try:
        smallest.write_bytes(hostile.spliced(content, pieces))
        found = read(parser, smallest)
        if found is not None:
            keep_the_contract(found)
    finally:
        smallest.write_bytes(content)


def test_empty_missing_and_a_folder(form, parser, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    for name in ("empty", "missing"):
        assert not parser.recognises(tmp_path / name)
        assert read(parser, tmp_path / name) is None
    (tmp_path / "folder").mkdir()
    parser.recognises(tmp_path / "folder")
    assert read(parser, tmp_path / "folder") is None


def test_noise(captures, form, parser, tmp_path):
    head = hostile.text(files(captures, form)[0])
    for seed in range(10):
        path = tmp_path / f"noise{seed}"
        path.write_bytes(hostile.garbage(head[:200 * seed], seed))
        parser.recognises(path)
        read(parser, path)


def test_a_file_of_another_format_is_read_or_refused(captures, form, parser):
    """As when a user names the wrong format: --format."""
    for other in FORMATS:
        found = {path for pattern in CAPTURES.get(other, ()) for path in captures.glob(pattern)}
        if other != form and found:
            read(parser, min(found, key=lambda path: path.stat().st_size))


def bounded(pairs: list[str]) -> list[str]:
    found = subprocess.run([sys.executable, str(PROGRAM), str(MEMORY_MB), *pairs], capture_output=True, text=True,
                           timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    return found.stdout.splitlines()


@pytest.mark.parametrize("kind", ["zipped_bomb", "gigantic"])
def test_a_bomb_takes_no_memory(captures, tmp_path, kind):
    """768 MiB of one string, in a MB of gzip or in a file with a hole, under a limit of memory, for every parser."""
    pairs = []
    for form in FORMATS:
        found = {path for pattern in CAPTURES.get(form, ()) for path in captures.glob(pattern)}
        if not found:
            continue
        head = hostile.text(min(found, key=lambda path: path.stat().st_size))
        path = tmp_path / form
        getattr(hostile, kind)(path, head[:len(head) // 2], 768 << 20)
        pairs.append(f"{form}={path}")
    lines = bounded(pairs)
    assert [line.split()[0] for line in lines] == [pair.split("=")[0] for pair in pairs]
    for line in lines:
        assert int(line.split()[1]) < RESIDENT_MB, line


def test_a_file_that_may_not_be_read(smallest, parser):
    parser.recognises(smallest)
    read(parser, smallest)  # whatever it imports late, it has imported before the rights are given up
    smallest.chmod(0)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        assert not parser.recognises(smallest)
        assert read(parser, smallest) is None
    finally:
        if root:
            os.seteuid(0)


def test_a_zipped_capture_reads_as_the_plain_one(captures, form, parser, tmp_path):
    """For the formats that are found zipped."""
    zipped = [path for path in files(captures, form) if path.read_bytes()[:2] == b"\x1f\x8b"]
    if not zipped:
        pytest.skip(f"no capture of {form} is zipped")
    plain = tmp_path / "plain"
    plain.write_bytes(gzip.decompress(zipped[0].read_bytes()))
    *one, facts = parser.parse(zipped[0])
    *other, same = parser.parse(plain)
    assert facts == same
    assert all(a.equals(b) for a, b in zip(one, other, strict=True))
