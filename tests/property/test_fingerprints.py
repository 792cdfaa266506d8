"""Fingerprints and drift: ids that do not depend on the run, signatures against plain arithmetic, distances against
scipy, and how often nothing is called drift."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.kernels import drift as drifts
from aaco.analytics.kernels.families import decode
from aaco.analytics.kernels.fingerprints import (
    BINS_PER_OCTAVE,
    COLUMNS,
    GEOMETRY,
    QUANTILES,
    FingerprintCollector,
    identity,
    log_bin,
    quantile,
)
from aaco.core.tables import FINGERPRINTS, KERNELS

NAMES = ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int> >(int)", "attn_fwd",
         "Cijk_Ailk_Bjlk_HHS_BH_MT128x128x32_MI16x16x16x1_SN_GSU4_WG32_8_1.kd", "triton_poi_fused_add_3",
         "addmm_kernel")


def kernels(rows):
    """A kernels table of (name, start, duration, stream, grid), in order of start."""
    rows = sorted(rows, key=lambda row: row[1])
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return KERNELS.build(kernel_id=list(range(len(rows))), kernel_name=list(columns[0]), t_start_ns=list(columns[1]),
                         dur_ns=list(columns[2]), stream_id=list(columns[3]), grid_x=list(columns[4]),
                         capture=[0] * len(rows)).select(list(COLUMNS))


def gathered(*pieces):
    gathering = FingerprintCollector()
    for piece in pieces:
        gathering.add(piece)
    return gathering.table()


ROWS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 2),
                          st.sampled_from([64, 128, None])), max_size=40)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 40), st.randoms(use_true_random=False))
def test_neither_order_nor_pieces_change_a_fingerprint(rows, cut, random):
    """Mutations seen to fail: the number of the name in the id instead of its text, a histogram begun anew per piece,
    the end of a stream's last kernel forgotten between pieces."""
    table = kernels(rows)
    whole = gathered(table)
    assert gathered(table.slice(0, cut), table.slice(cut)).to_pylist() == whole.to_pylist()
    shuffled = list(rows)
    random.shuffle(shuffled)
    mine, other = (found.sort_by("fingerprint") for found in (whole, gathered(kernels(shuffled))))
    columns = [name for name in FINGERPRINTS.columns if name != "gap_p50_ns"]  # of equal starts any may be first
    assert mine.select(columns).to_pylist() == other.select(columns).to_pylist()


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_the_signature_is_what_the_kernels_did(rows):
    found = gathered(kernels(rows)).to_pylist()
    assert sum(row["calls"] for row in found) == len(rows)
    assert sum(row["total_ns"] for row in found) == sum(row[2] for row in rows)
    for row in found:
        mine = [one[2] for one in rows if identity(decode(one[0]).normalised, launch(one)) == row["fingerprint"]]
        assert sum(row["bin_counts"]) == row["calls"] == len(mine)
        assert set(row["log_bins"]) == set(log_bin(np.array(mine)).tolist())
        for column, share in QUANTILES.items():
            exact = float(np.quantile(mine, share, method="inverted_cdf"))
            assert row[column] == pytest.approx(exact, rel=0.012)


def launch(row):
    return [row[4], *[None] * 5]


def test_different_kernels_have_different_ids():
    one = ("gemm", [1, 2, 3, 4, 5, 6])
    others = [("gemm2", one[1]), *(("gemm", [*one[1][:at], 9, *one[1][at + 1:]]) for at in range(6)),
              ("gemm", [None, *one[1][1:]]), ("gemm", [12, 3, 4, 5, 6, None]), ("gemm\x1f1", [2, 3, 4, 5, 6, None])]
    assert len({identity(*each) for each in [one, *others]}) == len(others) + 1


def test_a_stream_is_idle_before_a_kernel_since_its_last_one_ended():
    rows = [("a", 0, 100, 1, 1), ("a", 50, 10, 2, 1), ("a", 150, 10, 1, 1), ("a", 155, 500, 1, 1), ("b", 700, 1, 1, 2),
            ("b", 600, 1, 2, 2)]
    found = {row["normalised"]: row["gap_p50_ns"] for row in gathered(kernels(rows)).to_pylist()}
    assert found["a"] == 0  # 50 after the first, then none: it overlaps
    assert found["b"] == pytest.approx(45, rel=0.012)  # 45 after 655, 540 after 60


def test_counters_are_means_by_fingerprint():
    gathering = FingerprintCollector()
    number = gathering.add(kernels([("a", 0, 1, 1, 1), ("a", 5, 1, 1, 1), ("b", 9, 1, 1, 1)]))
    gathering.add_counters(np.array([*number, -1, number[0]]), pa.array(["X", "X", "Y", "X", "Y"]).dictionary_encode(),
                           np.array([1.0, 3.0, 5.0, 100.0, np.nan]))
    found = {row["normalised"]: row["counters"] for row in gathering.table().to_pylist()}
    assert {name: json.loads(text) for name, text in found.items()} == {"a": {"X": 2.0}, "b": {"Y": 5.0}}


def histogram(values):
    bins, counts = np.unique(log_bin(np.asarray(values)), return_counts=True)
    return bins.tolist(), counts.tolist()


SAMPLE = st.lists(st.integers(1, 10**7), min_size=1, max_size=60)


@settings(max_examples=100, deadline=None)
@given(SAMPLE, SAMPLE)
def test_the_distance_is_scipys(first, second):
    """Mutation: the distribution summed over bins of different width as if all were one bin wide."""
    octaves, _, p_value = drifts.distance(histogram(first), histogram(second))
    bins = [log_bin(np.asarray(sample)) / BINS_PER_OCTAVE for sample in (first, second)]
    assert octaves == pytest.approx(scipy.stats.wasserstein_distance(*bins), abs=1e-9)
    reach = scipy.stats.ks_2samp(*bins, method="asymp").statistic
    many = len(first) * len(second) / (len(first) + len(second))
    assert p_value == pytest.approx(scipy.stats.kstwobign.sf(reach * np.sqrt(many)), abs=1e-9)


def test_nothing_is_called_drift_as_seldom_as_promised():
    """1,000 pairs of one distribution: at most 5 in 100 p-values below 0.05 and 1 in 100 below 0.01 (with room for
    chance), and the distance is on average the one that is expected of no change."""
    random = np.random.default_rng(7)
    found = [drifts.distance(histogram(random.lognormal(10, 0.2, 60)), histogram(random.lognormal(10, 0.2, 90)))
             for _ in range(1000)]
    octaves, expected, p_values = (np.array(column) for column in zip(*found, strict=True))
    assert np.mean(p_values < 0.05) <= 0.065
    assert np.mean(p_values < 0.01) <= 0.018
    assert np.mean(octaves) == pytest.approx(np.mean(expected), rel=0.1)


def test_a_tenth_longer_is_seen():
    random = np.random.default_rng(7)
    seen = [drifts.distance(histogram(random.lognormal(10, 0.1, 100)),
                            histogram(1.1 * random.lognormal(10, 0.1, 100)))[2] < 0.05 for _ in range(200)]
    assert np.mean(seen) > 0.95


def test_kernels_are_paired_one_to_one_and_the_rest_is_new_or_gone():
    """Mutation: the likeness of the names left out."""
    before = gathered(kernels([(name, at * 1000 + call, 500 + at * 10, 1, 64) for at, name in enumerate(NAMES)
                               for call in range(0, 900, 100)]))
    after = gathered(kernels([(name.replace("MT128x128", "MT128x112"), at * 1000 + call, 500 + at * 10, 1, 64)
                              for at, name in enumerate([*NAMES[1:], "ncclDevKernel_Generic"])
                              for call in range(0, 900, 100)]))
    found = drifts.drift(before, after)
    likeness = {pair.normalised.partition("_")[0]: pair.likeness for pair in found.pairs}
    assert likeness == {"attn": 1, "triton": 1, "addmm": 1, "Cijk": pytest.approx(0.98, abs=0.02)}
    assert likeness["Cijk"] < 1
    assert found.new["normalised"].to_pylist() == ["ncclDevKernel_Generic"]
    assert found.gone["family"].to_pylist() == ["fill"]
    assert sum(one.before for one in found.families) == pytest.approx(1)
    assert 0 < found.families_moved < 1


@settings(max_examples=30, deadline=None)
@given(ROWS)
def test_a_recording_does_not_drift_from_itself(rows):
    table = gathered(kernels(rows))
    found = drifts.drift(table, table)
    assert found.families_moved == 0
    assert len(found.pairs) == table.num_rows
    assert not found.new.num_rows
    assert not found.gone.num_rows
    assert not any(pair.drifted for pair in found.pairs)


def test_quantiles_of_a_histogram():
    values = np.random.default_rng(1).integers(1, 10**6, 1000)
    for share in (0.05, 0.5, 0.95):
        exact = np.quantile(values, share, method="inverted_cdf")
        assert quantile(*histogram(values), share) == pytest.approx(exact, rel=0.012)
    assert quantile([], [], 0.5) is None
    assert quantile([-1], [3], 0.5) == 0.0
    assert len(GEOMETRY) == 6
