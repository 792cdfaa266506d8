"""Batch sweeps on planted curves whose answers are known in closed form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from aaco.analytics.what_if.sizes import SizePoint, size_curve
from aaco.analytics.what_if.sweep import BatchPoint, curve
from aaco.cli.options import whole_numbers
from aaco.cli.sweep import _over, _refuse_form
from aaco.core.errors import UsageError
from aaco.report.sections.sweep import draw


def planted(latencies_ms, noise=0.0):
    """A curve from {batch: latency of an inference}; the interval reaches `noise` to both sides, relatively."""
    return curve([BatchPoint(batch, ms, ms * (1 - noise), ms * (1 + noise), 1000 * batch / ms, f"session-{batch}")
                  for batch, ms in latencies_ms.items()])


LINEAR = planted(dict.fromkeys((1, 2, 4, 8), 2.0))  # a batch costs what one sample costs
SATURATING = planted({batch: 6.0 + 2.0 * batch for batch in (1, 2, 4, 8, 16, 32, 64, 128)}, noise=0.001)
SUPERLINEAR = planted({1: 8.0, 2: 4.0, 4: 2.0})


def gains(found):
    return [gain.pct.value for gain in found.gains]


def test_linear_scaling_never_saturates_and_has_no_knee():
    assert gains(LINEAR) == [100.0] * 3 and LINEAR.scaling_efficiency.value == 1.0
    assert LINEAR.saturation_batch.value is None
    assert "from 4 to 8 a doubling still gains 100.0 %" in LINEAR.saturation_batch.why_absent
    assert LINEAR.transition_batch.why_absent == "the gain per doubling never drops"
    assert LINEAR.pareto == (8,)  # the same latency, the most throughput


def test_a_fixed_cost_per_inference_saturates_where_the_formula_says():
    """latency = a + c b: a doubling from b gains a / (a + 2 c b), which is under 10 % once b > 9 a / (2 c) = 13.5."""
    assert gains(SATURATING) == pytest.approx([100 * 6 / (6 + 4 * batch) for batch in (1, 2, 4, 8, 16, 32, 64)])
    assert SATURATING.saturation_batch.value == 16
    assert SATURATING.transition_batch.value == 2  # 60, 42.9, 27.3, 15.8, ... %: the drops are 17.1, 15.6, 11.5
    assert SATURATING.pareto == (1, 2, 4, 8, 16, 32, 64, 128)
    expected = [8 / (6 + 2 * batch) for batch in (2, 4, 8, 16, 32, 64, 128)]
    assert SATURATING.scaling_efficiency.value == pytest.approx(sum(expected) / 7)


def test_superlinear_scaling():
    assert gains(SUPERLINEAR) == [300.0, 300.0] and SUPERLINEAR.scaling_efficiency.value == (2 + 4) / 2
    assert SUPERLINEAR.pareto == (4,) and SUPERLINEAR.transition_batch.value is None


def test_flat_throughput_is_saturated_from_the_first_batch():
    found = planted({1: 1.0, 2: 2.0, 4: 4.0}, noise=0.01)
    assert gains(found) == [0.0, 0.0] and found.saturation_batch.value == 1
    assert found.scaling_efficiency.value == (1 / 2 + 1 / 4) / 2
    assert found.pareto == (1,)
    assert [gain.is_distinct for gain in found.gains] == [False, False]


def test_a_dip_before_more_gain_is_no_saturation():
    found = planted({1: 1.0, 2: 2.0, 4: 2.0, 8: 4.0})
    assert gains(found) == [0.0, 100.0, 0.0] and found.saturation_batch.value == 4


def test_batches_that_are_no_doublings_gain_per_doubling():
    assert gains(planted({1: 1.0, 8: 1.0})) == pytest.approx([100.0])  # eightfold in three doublings
    assert gains(planted({2: 1.0, 3: 1.5 / 1.2})) == pytest.approx([100 * (1.2 ** (1 / math.log2(1.5)) - 1)])


def test_a_gain_is_distinct_only_where_the_intervals_do_not_overlap():
    """Throughput 1000 and 1200: intervals of 9 % to both sides leave a gap (1000 / .91 < 1200 / 1.09), 10 % do not."""
    assert planted({1: 1.0, 2: 2 / 1.2}, noise=0.09).gains[0].is_distinct is True
    found = planted({1: 1.0, 2: 2 / 1.2}, noise=0.10)
    assert found.gains[0].is_distinct is False
    assert found.gains[0].pct.low == pytest.approx(100 * (1.2 * 0.9 / 1.1 - 1))
    assert found.gains[0].pct.high == pytest.approx(100 * (1.2 * 1.1 / 0.9 - 1))
    assert "indistinguishable from none" in found.saturation_batch.why_absent
    assert planted({1: 1.0, 2: 2.4}, noise=0.01).gains[0].is_distinct is True  # a loss is told from none as well


@pytest.mark.parametrize("ends", [(None, None), (0.0, 1.2)])
def test_without_intervals_nothing_is_said_about_distinction(ends: tuple[float | None, float | None]):
    """A median of merged reads may be 0 ms, and the throughput of that has no upper end."""
    found = curve([BatchPoint(1, 1.0, *ends, 1000.0), BatchPoint(2, 1.5, 1.4, 1.6, 1333.0)])
    assert found.gains[0].is_distinct is None and found.gains[0].pct.low is None


def test_a_knee_within_the_noise_is_absent():
    shape = {1: 1.0, 2: 1.0, 4: 1.1}  # gains of 100 and 81.8 %
    assert planted(shape, noise=0.001).transition_batch.value == 2
    assert "lies within the gains' intervals" in planted(shape, noise=0.05).transition_batch.why_absent


def test_the_score_is_the_formula():
    assert [point.optimal_score for point in SATURATING.points[:2]] == pytest.approx(
        [125.0 / (8 * 1), 200.0 / (10 * math.log2(3))])
    assert SATURATING.optimal_batch.value == 1 and SUPERLINEAR.optimal_batch.value == 4


@pytest.mark.parametrize(("slo_ms", "best"), [(8.5, 1), (22.1, 8), (22.01, 4), (38.5, 16), (1e6, 128)])
def test_the_best_batch_is_the_fastest_surely_within_the_limit(slo_ms, best):
    """Batch 8 takes 22 ms and its interval reaches 22.022."""
    assert SATURATING.best_under(slo_ms).value == best


def test_a_limit_that_no_batch_meets():
    found = SATURATING.best_under(5)
    assert found.value is None
    assert found.why_absent == "no batch is surely within 5 ms: the median of batch 1 reaches 8.008 ms"


@pytest.mark.parametrize(("batches", "absent"), [
    ((4,), {"scaling_efficiency", "saturation_batch", "transition_batch"}), ((1, 2), {"transition_batch"}),
])
def test_too_few_points_are_absent_with_the_reason(batches, absent):
    found = planted({batch: 1.0 * batch for batch in batches})
    missing = {reading.metric for reading in found.readings if reading.value is None}
    assert missing == absent | {"vram_used_bytes", "rss_peak_bytes", "memory_bound_batch"}
    assert all(reading.why_absent for reading in found.readings if reading.value is None)
    assert found.pareto == (batches[0],) and found.optimal_batch.value == batches[0]


def test_the_document_names_every_session_and_every_reason():
    document = json.loads(json.dumps(curve(SATURATING.points, "no GPU here").document(), allow_nan=False))
    assert document["schema_version"] == 1
    assert [row["session_id"] for row in document["points"]] == [f"session-{2**power}" for power in range(8)]
    first, second, *_ = document["points"]
    assert first["gain_per_doubling_pct"] is None and first["gain_is_distinct"] is None
    assert second["gain_per_doubling_pct"] == pytest.approx(60.0) and second["gain_is_distinct"] is True
    assert document["vram_used_bytes"] == {"value": None, "unit": "bytes", "why_absent": "no GPU here"}


def test_points_may_come_in_any_order():
    assert curve(SATURATING.points[::-1]) == curve(SATURATING.points)


@pytest.mark.parametrize("text", ["", "1,,2", "0,1", "1,x", "-1", "1.5"])
def test_batches_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="--batches"):
        whole_numbers("--batches", text)
    assert whole_numbers("--batches", "1, 2,8") == [1, 2, 8]


@pytest.mark.parametrize("text", ["sequence", "=1,2", "sequence=", "sequence=0", "sequence=1x2"])
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="--over"):
        _over(text)
    assert _over("past + sequence=1, 2") == ("past + sequence", [1, 2])


def sized(latencies_ms, noise=0.0):
    return size_curve([SizePoint(size,
                                 BatchPoint(2, ms, ms * (1 - noise), ms * (1 + noise), 2000 / ms, f"session-{size}"))
                       for size, ms in latencies_ms.items()])


def test_a_latency_grows_per_doubling_of_the_size():
    """In proportion, with the square over two doublings, not at all. Mutation: without the doublings' root."""
    found = sized({256: 16.0, 32: 0.5, 64: 1.0, 257: 16.0})
    assert [each.size for each in found.points] == [32, 64, 256, 257]
    assert [each.value for each in found.growths] == pytest.approx([2.0, 4.0, 1.0])
    wide = sized({1: 1.0, 4: 4.0}, noise=0.1).growths[0]
    assert (wide.low, wide.high) == pytest.approx(((3.6 / 1.1) ** 0.5, (4.4 / 0.9) ** 0.5))
    unknown = size_curve([SizePoint(1, BatchPoint(1, 1.0, None, None, 1.0)),
                          SizePoint(2, BatchPoint(1, 3.0, 2.9, 3.1, 1.0))])
    assert (unknown.growths[0].value, unknown.growths[0].low) == (3.0, None)
    assert json.loads(json.dumps(found.document()))["points"][1]["growth_per_doubling"] == pytest.approx(2.0)


def test_the_largest_size_surely_within_a_limit():
    found = sized({32: 1.0, 64: 2.0, 128: 4.0}, noise=0.01)
    assert found.largest_under(4.04).value == 128 and found.largest_under(4.03).value == 64
    assert found.largest_under(0.5).why_absent == \
        "no size is surely within 0.5 ms: the median of size 32 reaches 1.01 ms"


def test_memory_of_the_batches():
    """Batch 4 is the first with more than nine tenths of the memory in use. Mutation: taking the last one."""
    used = {1: 10, 2: 60, 4: 95, 8: 99}
    points = [BatchPoint(batch, 1.0, None, None, 1.0 * batch, "", share * 10**8, share)
              for batch, share in used.items()]
    found = curve(points)
    assert found.vram_used.value == 99 * 10**8 and found.memory_bound_batch.value == 4
    assert [row["vram_share"] for row in found.document()["points"]] == [0.10, 0.60, 0.95, 0.99]
    small = curve(points[:2]).memory_bound_batch
    assert small.value is None and small.why_absent == "no batch fills the memory: batch 2 uses 60.0 %"


def test_the_picture_has_every_batch_the_knee_the_limit_and_the_memory():
    points = [replace(point, rss_peak_bytes=point.batch * 10**9) for point in SATURATING.points]
    drawn = draw(curve(points), "a model <on> a device", slo_ms=40).standalone()
    root = ElementTree.fromstring(drawn)
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a model <on> a device", "knee: batch 2", "saturated: batch 16", "limit 40 ms",
            "resident set, GB"} <= set(texts)
    assert [text for text in texts if text in map(str, (1, 2, 4, 8, 16, 32, 64, 128))][-8:] == \
        ["1", "2", "4", "8", "16", "32", "64", "128"]
    dots = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(dots) == 3 * 8 and "device memory, GB" not in texts
    heights = [float(dot.get("cy")) for dot in dots]
    assert heights[:8] == sorted(heights[:8], reverse=True) and heights[8:16] == sorted(heights[8:16], reverse=True)


def test_the_largest_resident_set_is_a_reading_or_says_why_not():
    points = [replace(point, rss_peak_bytes=used) for point, used in zip(LINEAR.points, (5, 9, 7, None), strict=True)]
    assert curve(points).rss_peak.value == 9
    assert curve(LINEAR.points, why_no_rss="without --telemetry").rss_peak.why_absent == "without --telemetry"


@pytest.mark.parametrize("name", ["curves.pdf", "curves"])
def test_a_picture_of_no_known_form_is_refused_before_anything_runs(name):
    with pytest.raises(UsageError, match=r"neither \.svg nor \.png"):
        _refuse_form(Path(name))
