"""Buffers of CUPTI's records, whole, cut and of any bytes: against a walk that is slow and obvious."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.core.tables import ALL
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.cupti.inside import spool
from aaco.profiler.formats.nvidia import cupti as parser
from aaco.profiler.formats.nvidia import cupti_records as records

KINDS = st.sampled_from([*records.TYPES, 17, 38])
SIZES = st.fixed_dictionaries({kind: st.integers(0, 3).map(
    lambda more, kind=kind: 8 * more + (records.TYPES[kind].itemsize + 7 & ~7 if kind in records.TYPES else 48))
    for kind in (*records.TYPES, 17)})


def walked(buffer: bytes, sizes: dict[int, int]) -> tuple[dict[int, list[int]], int]:
    """Where records of each kind begin, and the bytes that are none."""
    found: dict[int, list[int]] = {}
    at = 0
    while at + 8 <= len(buffer):
        kind = int.from_bytes(buffer[at:at + 4], "little")
        if kind not in sizes or at + sizes[kind] > len(buffer):
            break
        found.setdefault(kind, []).append(at)
        at += sizes[kind]
    return found, len(buffer) - at


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS, max_size=20), SIZES, st.integers(0, 60))
def test_every_record_is_found_and_every_byte_counted(kinds, sizes, cut):
    """Mutation: a step of the known length instead of the stepped one."""
    whole = b"".join(kind.to_bytes(4, "little") + bytes([place] * (sizes.get(kind, 48) - 4))
                     for place, kind in enumerate(kinds))
    buffer = whole[:max(len(whole) - cut, 0)]
    found, others, rest = records.split(buffer, sizes)
    places, left = walked(buffer, sizes)
    assert rest == left
    assert {kind: len(rows) for kind, rows in found.items()} | others == {kind: len(at) for kind, at in places.items()}
    for kind, rows in found.items():
        size = records.TYPES[kind].itemsize
        assert [row.tobytes() for row in rows] == [buffer[at:at + size] for at in places[kind]]


SAID = ("cupti", "pid", "clock", "without", "ended", "dropped", "lost_bytes", "error", "clock_end", "1", "5", "what")
ANY = st.recursive(st.one_of(st.none(), st.booleans(), st.text(max_size=5), st.integers(-9, 1 << 70), st.floats()),
                   lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner,
                                                                                         max_size=3)), max_leaves=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KINDS, st.binary(min_size=300, max_size=300)), max_size=6), SIZES,
       st.dictionaries(st.sampled_from(SAID), ANY, max_size=5))
def test_whatever_a_tracer_might_write_it_is_read_or_refused(data, sizes, said):
    """Chunks that are whole, records of any bytes, words of any kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1.cupti"
        made = spool.CuptiSpool(str(path))
        for tag in (spool.HEAD, spool.SIZE, spool.NAME, spool.CALL):
            made.add_json(tag, said)
        made.add_json(spool.SIZE, sizes)
        made.add(spool.DATA, b"".join(kind.to_bytes(4, "little") + noise[:sizes.get(kind, 48) - 4]
                                      for kind, noise in data))
        made.state.update(said)
        made.write_state()
        made.close()
        try:
            *pieces, facts = parser.parse(path)
        except BadCapture:
            return
        assert isinstance(facts, CaptureFacts)
        for piece in pieces:
            assert piece.schema.equals(ALL[piece.schema.metadata[b"aaco.table"].decode()].schema)
            piece.validate(full=True)
        left = sum(part.count for reason, part in facts.left_out.items() if reason.startswith("kernel: "))
        assert facts.kernels.count == left + sum(
            piece.num_rows for piece in pieces if piece.schema.metadata[b"aaco.table"] == b"kernels")
