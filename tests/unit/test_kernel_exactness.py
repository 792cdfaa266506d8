"""How exact a candidate's numbers must be, what is kept of a measured gain, and which inputs are changed."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from aaco.optimize.kernels import acceptance, exactness, inputs, widening
from aaco.optimize.kernels.inputs import number_type
from aaco.optimize.kernels.widening import NotWidened, double_symbol, double_text, wide_launch
from tests.fakes import kernel_captures

NAN, INFINITY = math.nan, math.inf


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


@pytest.mark.parametrize(("before", "after", "outcome"), [
    ((1.0, NAN), (1.0, NAN), "equal"), ((1.0, 2.0), (1.0, NAN), "wrong"), ((NAN, 1.0), (1.0, 1.0), "wrong"),
    ((1.0, INFINITY), (1.0, 3.0), "wrong"), ((INFINITY, 1.0), (-INFINITY, 1.0), "wrong"),
    ((1.0, 2.0), (1.0000001, 2.0), "as exact"), ((1.0, 2.0), (1.0000004, 2.0), "less exact"),
    ((1.0, 2.0), (1.1, 2.0), "wrong"), ((0.0, 2.0), (1e-45, 2.0), "as exact"),
    ((0.0, 2.0), (1e-20, 2.0), "less exact")])
def test_numbers_without_a_reference(before: tuple[float, ...], after: tuple[float, ...], outcome: str) -> None:
    """Mutation: NaN anywhere equals anything."""
    assert exactness.compare(floats(*before), floats(*after), "float32").outcome == outcome


def test_nan_of_another_payload_at_the_same_place_is_equal() -> None:
    assert exactness.compare(b"\1\0\xc0\x7f" + floats(1.0), floats(NAN, 1.0), "float32").outcome == "as exact"


def test_a_candidate_may_have_twice_the_baselines_own_error_and_no_more() -> None:
    """Mutation: ten times."""
    reference = np.linspace(1, 2, 1000)
    unit = 2.0**-23
    own = floats(*(reference + 3 * unit))
    assert exactness.compare(own, floats(*(reference - 5 * unit)), "float32", reference).outcome == "as exact"
    assert exactness.compare(own, floats(*(reference + 8 * unit)), "float32", reference).outcome == "less exact"


def test_one_number_that_all_but_cancels_out_hides_no_error_of_the_others() -> None:
    """Mutation: only the largest error counts."""
    reference = np.array([1e-6, *np.linspace(1, 2, 999)])
    own, worse = reference.copy(), reference.copy()
    own[0] = worse[0] = 1.1e-6
    worse[1:] += 4 * 2.0**-23
    assert exactness.compare(floats(*own), floats(*worse), "float32", reference).outcome == "less exact"


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_the_distance_of_adjacent_numbers_is_numpys(kind: str) -> None:
    numbers = np.array([1.0, 1.5, -3.0, 0.0, 6.1e-5, 1000.0], kind)
    assert exactness.spacing(numbers.astype(np.float64), kind) == pytest.approx(
        np.abs(np.spacing(numbers)).astype(np.float64), rel=1e-12)


def process(percent: float, pairs: int = 5) -> list[tuple[float, float]]:
    return [(100.0, 100.0 - percent)] * pairs


def test_a_gain_is_kept_if_its_interval_lies_above_nothing() -> None:
    """Mutation: the estimate decides alone. Mutation: a gain of 1 % is kept."""
    steady = [process(5 + wobble) for wobble in (-0.1, 0, 0.1, 0.05, -0.05, 0)]
    assert acceptance.judge(steady, 20).kept
    noisy = [process(5 + wobble) for wobble in (-9, 9, -7, 8, -5, 6)]
    assert "holds 0" in acceptance.judge(noisy, 20).why
    assert "below 2 %" in acceptance.judge([process(1.0)] * 6, 20).why
    assert not acceptance.judge([process(-5.0)] * 6, 20).kept


def test_one_process_shows_nothing() -> None:
    assert not acceptance.judge([process(20)], 1).kept


def test_the_level_is_shared_by_all_that_were_timed() -> None:
    assert acceptance.gain([process(5)] * 6, 20).level == pytest.approx(1 - 0.05 / 20)
    assert acceptance.finalists({"a": 3.0, "b": 0.5, "c": 9.0, "d": 4.0, "e": 5.0}) == ["c", "e", "d"]


@pytest.mark.parametrize(("parameter", "kind"), [
    ("const float *", "float32"), ("float * __restrict__", "float32"), ("const double*", "float64"),
    ("__half const *", "float16"), ("float4 *", "float32"), ("int *", None), ("float", None), ("float **", None),
    ("const void *", None), ("Node *", None), ("__nv_bfloat16 *", "bfloat16")])
def test_what_a_parameter_points_to(parameter: str, kind: str | None) -> None:
    assert number_type(parameter) == kind


@pytest.mark.parametrize("count", [1, 2, 3, 64, 300, 1 << 20])
def test_a_variation_is_a_permutation(count: int) -> None:
    for seed in range(5):
        how = inputs.variation(seed, count)
        assert math.gcd(how.step, count) == 1 and 0 <= how.shift < count and 0.6 <= how.factor <= 1


def test_a_kernel_in_double_precision() -> None:
    text = b"""#define HALF(x) (0.5f * (x))
/* float */ extern "C" __global__ void k(const float4 *a, float *out, int n) // float
{ out[0] = expf(a[0].x) + 1e-3f + 2.f * __expf(1.0F) + fmaxf(1.0f, 0x1p3f) + n * 3; }"""
    assert double_text(text) == b"""#define HALF(x) (0.5 * (x))
/* float */ extern "C" __global__ void k(const double4 *a, double *out, int n) // float
{ out[0] = exp(a[0].x) + 1e-3 + 2. * exp(1.0) + fmax(1.0, 0x1p3) + n * 3; }"""
    for hinders in (b"__float_as_int(x)", b"asm(\"\")", b"half2 y;", b"1;\n#include <cuda_fp16.h>\n",
                    b"*reinterpret_cast<int *>(&x)"):
        with pytest.raises(NotWidened, match=r"line [12]: .* has no form in double precision"):
            widening.double_text(b"float x; " + hinders)
    assert double_symbol("_Z5scalePKfPfif") == "_Z5scalePKdPdid"
    assert double_symbol("fused") == "fused"


def test_headers_beside_a_source_become_part_of_it() -> None:
    headers = {"a.h": b'#pragma once\n#include "b.h"\nfloat x;', "b.h": b"float y;"}
    text = b'#include <math.h>\n#include "a.h"\n#include "b.h"\n#include "gone.h"\nfloat z;'
    assert widening.with_headers(text, headers.get) == (b'#include <math.h>\n#pragma once\nfloat y;\nfloat x;\n\n'
                                                        b'#include "gone.h"\nfloat z;')


def test_the_launch_in_double_precision() -> None:
    places = kernel_captures.LAYOUT  # two pointers and two of four bytes
    arguments = struct.pack("<2Qif", 1 << 40, 2 << 40, 7, 1.5)
    captured = kernel_captures.launch(arguments=arguments.hex(), layout=places, dynamic_lds_bytes=64)
    wide = wide_launch(captured, captured, ["const float *", "float *", "int", "const float"])
    assert wide and wide.layout
    assert struct.unpack("<2Qi4xd", bytes.fromhex(wide.arguments)) == (1 << 40, 2 << 40, 7, 1.5)
    assert wide.layout[3].offset == 24 and wide.dynamic_lds_bytes == 128
    assert wide_launch(captured, captured, ["float *"]) is None
