"""Outputs: what is kept of them, and whether two runs' agree, against a slow element-by-element oracle."""

from __future__ import annotations

import math
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aaco.core.errors import BadBundle
from aaco.governance import agreement
from aaco.governance.agreement import PRECISIONS, Tolerance, agree, overall
from aaco.report.sections import outputs as report
from aaco.tracelake import outputs
from aaco.tracelake.outputs import Produced
from aaco.tracelake.share import redact_bundle


def kept(tmp_path, *produced):
    return outputs.load(tmp_path, outputs.keep(tmp_path / outputs.FILE, list(produced)))


def output(values, dtype=None, name="y", elements=None):
    values = np.asarray(values)
    return outputs.Output(name, dtype or values.dtype.name, (elements or values.size,), elements or values.size,
                          outputs.digest(values), None, values.reshape(-1))


def one(left, right, *more, **rest):
    found, = agree([left], [right], *more, **rest)
    return found


# What is kept


def test_what_is_kept_comes_back(tmp_path):
    small, text = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([["a", "bcd"]])
    bad = np.array([1.0, np.nan, np.inf, -np.inf])
    found = kept(tmp_path, Produced("a", "float32", small), Produced("b", "str", text),
                 Produced("c", "x", None, "it is no tensor"), Produced("d", "float64", bad),
                 Produced("e", "int64", np.zeros((0, 4), np.int64)), Produced("f", "bool", np.array(True)))
    assert [(item.name, item.shape, item.elements, item.whole) for item in found] == [
        ("a", (2, 3), 6, True), ("b", (1, 2), 2, True), ("c", (), 0, False), ("d", (4,), 4, True),
        ("e", (0, 4), 0, True), ("f", (), 1, True)]
    assert found[0].values.tolist() == [0, 1, 2, 3, 4, 5] and found[1].values.tolist() == ["a", "bcd"]
    assert (found[2].why_not_kept, found[2].sha256) == ("it is no tensor", None)
    assert [item.not_finite for item in found] == [0, None, None, 3, None, None]


@pytest.mark.parametrize(("dtype", "why"), [
    ("<f4", ""), ("<i8", ""), ("u1", redact_bundle.IN_BINARY), ("S16", redact_bundle.IN_BINARY)])
def test_letters_among_the_bytes_of_numbers_are_no_credential(tmp_path, dtype, why):
    """As in one of twenty files of random numbers; single bytes may be a text. Mutation: such a file is left out."""
    path = tmp_path / outputs.FILE
    values = np.frombuffer(b"\0\0\0\0-pA1b2C3d4E5\0\0\0\0\0\0\0\0", dtype="u1")[:16].view(dtype)
    outputs.keep(path, [Produced("y", dtype, values)])
    assert redact_bundle._redact_file(path, tmp_path / "copy") == (False, why)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert redact_bundle._redact_file(path, tmp_path / "copy")[1] == redact_bundle.IN_BINARY


def test_a_large_output_is_sampled_evenly_and_digested_whole(tmp_path):
    """Mutations: the first elements only; a digest of the sample."""
    large = np.arange(3_000_000, dtype=np.float32)
    found, = kept(tmp_path, Produced("y", "float32", large))
    assert len(found.values) == outputs.LIMIT and not found.whole
    assert (found.values[0], found.values[-1]) == (0, 2_999_999)
    assert set(np.diff(found.values)) <= {45.0, 46.0}
    changed = large.copy()
    changed[7] = -1
    assert outputs.digest(changed) != found.sha256 == outputs.digest(large)
    assert (tmp_path / outputs.FILE).stat().st_size < 300_000


def test_the_elements_of_all_outputs_have_a_budget(tmp_path):
    found = kept(tmp_path, *(Produced(f"y{index}", "float32", np.ones(70_000, np.float32)) for index in range(18)))
    assert sum(len(item.values) for item in found if item.values is not None) == outputs.BUDGET
    assert found[-1].values is None and "used up" in found[-1].why_not_kept
    assert found[-1].sha256 == found[0].sha256


def test_the_digest_tells_type_shape_and_bits():
    ones = np.ones(4, np.float32)
    others = [ones.reshape(2, 2), ones.view(np.int32), ones * np.float32(1 + 2**-23), -ones]
    assert len({outputs.digest(item) for item in (ones, *others)}) == 5
    assert outputs.digest(ones) == outputs.digest(np.ones(8, np.float32)[::2])


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "missing", "object", "other", "bomb"])
def test_damaged_outputs_are_a_bad_bundle(tmp_path, damage):
    path = tmp_path / outputs.FILE
    facts = outputs.keep(path, [Produced("y", "float32", np.arange(500, dtype=np.float32))])
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "object":
        np.savez(path, output_0=np.array([{}], object))
    elif damage == "other":
        np.savez(path, output_0=np.zeros(499, np.float32))
    elif damage == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("output_0.npy", b"\0" * (outputs.MOST_BYTES + 1))
    else:
        path.write_bytes({"cut": content[:700], "empty": b"", "flip": content[:300] + b"\xff" + content[301:]}[damage])
    with pytest.raises(BadBundle, match="outputs"):
        outputs.load(tmp_path, facts)


# Whether they agree


def slow(left, right, relative, of_largest):
    """One element after the other, in words."""
    def largest(side):
        return max((abs(value) for value in side if math.isfinite(value)), default=0.0)

    absolute, wrong = of_largest * min(largest(left), largest(right)), 0
    for a, b in zip(left, right, strict=True):
        if a == b or (math.isnan(a) and math.isnan(b)):
            continue
        if not (math.isfinite(a) and math.isfinite(b)) or abs(a - b) > absolute + relative * max(abs(a), abs(b)):
            wrong += 1
    return wrong


floats = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=300)
@given(arrays.arrays(np.float32, st.integers(1, 30), elements=floats), st.data(),
       st.sampled_from([0.0, 1e-3, 0.1]), st.sampled_from([0.0, 1e-4, 0.05]))
def test_mismatches_are_those_of_the_slow_oracle(left, data, relative, of_largest):
    factor = data.draw(arrays.arrays(np.float32, len(left), elements=st.sampled_from(
        [1.0, 1.0, 1.0005, 1.05, -1.0, 0.0])))
    with np.errstate(all="ignore"):
        right = (left * factor).astype(np.float32)
    found = one(output(left), output(right), tolerance=Tolerance(relative, of_largest))
    wrong = slow(left.astype(float).tolist(), right.astype(float).tolist(), relative, of_largest)
    same_bits = left.tobytes() == right.tobytes()
    assert found.mismatches == wrong
    assert (found.status == "different") == (wrong > 0) and (found.status == "equal" or not same_bits)
    back = one(output(right), output(left), tolerance=Tolerance(relative, of_largest))
    assert (back.status, back.mismatches, back.max_abs) == (found.status, found.mismatches, found.max_abs)


@pytest.mark.parametrize(("dtype", "within", "beyond"), [
    ("float64", 1e-11, 1e-7), ("float32", 3e-5, 1e-2), ("float16", 4e-3, 1e-1), ("bfloat16", 1e-2, 3e-1)])
def test_the_tolerance_is_that_of_the_type(dtype, within, beyond):
    """Mutation: one tolerance for all types."""
    values = np.random.default_rng(0).normal(size=1000)
    for error, status in ((within, "close"), (beyond, "different")):
        noisy = values * (1 + error * np.sign(values))
        assert one(output(values, dtype), output(noisy, dtype)).status == status
    found = one(output(values, "float64"), output(values * (1 + within), dtype))
    assert (found.precision, found.status) == (dtype, "close")  # the coarser of the two sets what may be asked


def test_what_the_runs_computed_in_sets_the_tolerance():
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    quantised = values + np.float32(0.02) * np.abs(values).max()
    assert one(output(values), output(quantised)).status == "different"
    assert one(output(values), output(quantised), ["float32", "int8"]).status == "close"
    assert one(output(values), output(quantised), ["float16"]).status == "different"
    assert list(PRECISIONS) == sorted(PRECISIONS, key=lambda name: PRECISIONS[name].of_largest)


def test_an_8_bit_output_may_be_a_step_off_and_an_index_may_not():
    steps = np.array([0, 127, 255], np.uint8)
    assert one(output(steps), output(steps + np.array([1, 1, 0], np.uint8))).status == "close"
    assert one(output(steps), output(np.array([0, 129, 255], np.uint8))).status == "different"
    huge = np.array([2**60, 5], np.int64)
    found = one(output(huge), output(huge + np.array([1, 0])), ["int8"])
    assert (found.status, found.mismatches, found.precision) == ("different", 1, "exact")
    assert one(output(np.array(["cat"])), output(np.array(["dog"]))).status == "different"
    assert one(output(np.array([True])), output(np.array([False]))).status == "different"


def test_no_number_where_there_was_one_is_different():
    found = one(output(np.array([1.0, 2.0])), output(np.array([1.0, np.nan])))
    assert (found.status, found.mismatches, found.max_abs) == ("different", 1, math.inf)
    assert agreement.document([found], {})["outputs"][0]["max_abs"] is None
    same = np.array([np.nan, np.inf, -np.inf, -0.0])
    assert one(output(same), output(np.array([np.nan, np.inf, -np.inf, 0.0]))).status == "equal"


def test_a_sample_is_never_called_equal():
    values = np.ones(10, np.float32)
    left, right = output(values, elements=100), output(values, elements=100)
    assert one(left, right).status == "equal"  # every bit: the digests are of the whole
    other = outputs.Output("y", "float32", (100,), 100, "another digest", None, values)
    found = one(left, other)
    assert (found.status, found.compared, found.elements) == ("close", 10, 100) and "a sample of 10 of 100" in found.why


def test_what_cannot_be_compared_says_so():
    values = output(np.ones(4, np.float32))
    missing = outputs.Output("y", "float32", (4,), 4, "digest", None, None, "the budget was used up")
    assert (one(values, missing).status, one(values, output(np.ones(5, np.float32))).status) == ("unknown", "different")
    assert "shape [4] against [5]" in one(values, output(np.ones(5, np.float32))).why
    found = agree([values, output(np.ones(1), name="a")], [values, output(np.ones(1), name="b")])
    assert [(item.name, item.status) for item in found] == [("y", "equal"), ("a", "different"), ("b", "different")]
    assert overall(found) == "different" and overall([]) == "unknown"


def test_the_text_stays_narrow_and_clean():
    hostile = output(np.ones(3, np.float32), name="\x1b[31m" + "x" * 300)
    side = {"session_id": "s", "model": "m" * 200, "backend": "CPUExecutionProvider", "onnxruntime": "1",
            "graph_optimization": "all", "computed_in": ["float32"]}
    found = agree([hostile] * 50, [output(np.ones(3, np.float32) * 2, name=hostile.name)])
    text = report.render(agreement.document(found, {"expected": side, "actual": side}))
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 80
    assert text.startswith("DIFFERENT") and "10 more outputs" in text
