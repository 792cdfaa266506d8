"""The kernels by which a replay compares and poisons memory (native/replay/memory.cu), compiled for this processor."""

from __future__ import annotations

import ctypes
import shutil
import struct

import pytest

from tests.fakes import cuda_gpu

pytestmark = pytest.mark.skipif(not shutil.which("clang++"), reason="not on PATH: clang++")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return cuda_gpu.compiled_kernels(tmp_path_factory.mktemp("kernels"))


def count(kernel, left: bytes, right: bytes, *more) -> int:
    """What a kernel counts of two states of memory."""
    total = ctypes.c_uint64(0)
    kernel(left, right, ctypes.c_uint64(len(left)), *more, ctypes.byref(total))
    return total.value


@pytest.mark.parametrize("size", [1, 15, 16, 64, 100])
def test_differing_bytes_are_counted(kernels, size):
    right = bytes(range(size))
    for wrong in ({}, {0}, {size - 1}, {0, size // 2, size - 1}):
        left = bytes(byte ^ (0x80 if at in wrong else 0) for at, byte in enumerate(right))
        assert count(kernels.differing, left, right) == len(wrong)


def test_what_is_inverted_is_where_the_mask_has_ones(kernels):
    live, expected = ctypes.create_string_buffer(b"\0" * 40, 40), bytes(range(40))
    mask = bytes(255 if at % 3 == 0 else 0 for at in range(40))
    kernels.invert(live, expected, mask, ctypes.c_uint64(40))
    assert live.raw == bytes(at ^ 255 if at % 3 == 0 else 0 for at in range(40))
    kernels.invert(live, expected, None, ctypes.c_uint64(40))
    assert live.raw == bytes(at ^ 255 for at in range(40))


def written(kernels, live: bytes, expected: bytes, before: bytes | None) -> list[int]:
    """The places of the mask, which are as many as are counted."""
    mask, total = ctypes.create_string_buffer(len(live)), ctypes.c_uint64(0)
    kernels.written(mask, live, expected, before, ctypes.c_uint64(len(live)), ctypes.byref(total))
    places = [at for at, byte in enumerate(mask.raw) if byte]
    assert total.value == len(places)
    return places


def test_a_counter_is_left_out_of_the_mask_with_all_its_bytes(kernels, tmp_path):
    """Mutation: its upper bytes, which do not change while it counts, stay in: inverted, it is another number."""
    before, after = bytearray(200), bytearray(200)
    after[64:68] = (0x184).to_bytes(4, "little")
    live = bytearray(byte ^ 255 for byte in after)
    for place in (3, 64, 65, 66, 67, 199):
        live[place] = after[place]
    assert written(kernels, bytes(live), bytes(after), None) == [3, 64, 65, 66, 67, 199]
    assert written(kernels, bytes(live), bytes(after), bytes(before)) == [3, 199]
    mutant = cuda_gpu.compiled_kernels(tmp_path, "!is_changed(before, expected, at, n)", "before[at] == expected[at]")
    assert written(mutant, bytes(live), bytes(after), bytes(before)) == [3, 66, 67, 199]


FORMS = {"float64": (8, 0, "<d"), "float32": (4, 1, "<f"), "float16": (2, 2, "<e")}


def beyond(kernels, name: str, left: bytes, right: bytes, relative: float = 0.0, absolute: float = 0.0) -> int:
    size, kind, _ = FORMS.get(name, (2, 3, ""))
    return count(kernels.beyond, left, right, ctypes.c_uint(size), ctypes.c_uint(kind), ctypes.c_double(relative),
                 ctypes.c_double(absolute))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("wrong", "right", "relative", "absolute", "allowed"), [
    (1.0, 1.0, 0, 0, True), (1.0, 1.0078125, 0.01, 0, True), (1.0, 1.0078125, 0.001, 0, False),
    (-1.0, 1.0, 0.5, 0, False), (0.0, 0.25, 0, 0.25, True), (0.0, 0.25, 0.99, 0, False),
    (-0.0, 0.0, 0, 0, True), (float("nan"), 1.0, 9, 9, False), (float("inf"), 1.0, 9, 9, False),
    (float("inf"), float("inf"), 0, 0, True), (-2.5, -2.515625, 0.01, 0, True)])
def test_numbers_within_the_tolerance(kernels, name, wrong, right, relative, absolute, allowed):
    size, _, form = FORMS[name]
    left, other = (struct.pack(form, 3.0) + struct.pack(form, value) + b"\1" for value in (wrong, right))
    assert beyond(kernels, name, left, other, relative, absolute) == (0 if allowed else size)


def test_numbers_of_bfloat16(kernels):
    one, next_one = b"\x80\x3f", b"\x81\x3f"  # 1 and 1.0078125
    assert [beyond(kernels, "bfloat16", one, next_one, limit) for limit in (0.01, 0.001)] == [0, 2]


def test_small_whole_numbers_are_no_floating_point_numbers(kernels):
    """Mutation: subnormal numbers are compared as any others: 5 and 6 differ by nothing."""
    left, right = struct.pack("<2I", 5, 7), struct.pack("<2I", 6, 7)
    assert beyond(kernels, "float32", left, right, 0.5, 1.0) == 4


def test_what_is_left_at_the_end_must_be_equal(kernels):
    assert beyond(kernels, "float32", b"\0" * 4 + b"ab", b"\0" * 4 + b"aa", 1.0, 1.0) == 1
