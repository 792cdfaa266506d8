"""The digital twin on any machine: what must hold whatever was measured."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.analytics.what_if.model import BatchChoice, BatchMeasurement, what_if_model
from aaco.analytics.what_if.roofs import MachineRoofs
from aaco.analytics.what_if.work import Amount, ModelNode

amounts = st.floats(0, 1e12)
nodes = st.lists(st.builds(ModelNode, st.text(max_size=3), st.sampled_from(("gemm", "conv", "copy")),
                           st.sampled_from(("float32", "float16", "int64", None)),
                           st.builds(Amount, amounts, amounts), st.builds(Amount, amounts, st.floats(1, 1e9))),
                 min_size=1, max_size=5)
machines = st.builds(MachineRoofs, st.just("m"), st.just("measured"), st.floats(1e8, 1e13),
                     st.fixed_dictionaries({"fp32_flops": st.floats(1e9, 1e15), "fp16_flops": st.floats(1e9, 1e15)}))


@st.composite
def twins(draw, smallest=1):
    """A twin whose measured latencies rise with the batch."""
    batches = sorted(draw(st.sets(st.integers(1, 64), min_size=smallest, max_size=6)))
    rises = [draw(st.floats(1, 3)) for _ in batches]
    times, time = [], draw(st.floats(0.01, 1000))
    for rise in rises:
        time *= rise
        times.append(time)
    return what_if_model(draw(nodes), [BatchMeasurement(batch, ms) for batch, ms in zip(batches, times, strict=True)],
                         draw(machines),
                         len(batches) > 1 and draw(st.booleans()))


@settings(max_examples=40)
@given(twins(), st.integers(1, 256), st.integers(1, 256))
def test_a_larger_batch_is_never_faster_where_it_was_not_measured_to_be(found, one, other):
    low, high = sorted((one, other))
    assert found.latency_ms(low) <= found.latency_ms(high) * (1 + 1e-9)


@settings(max_examples=40)
@given(twins())
def test_a_measured_batch_is_predicted_as_it_was_measured(found):
    for one in found.measured:
        assert abs(found.latency_ms(one.batch) / one.latency_ms - 1) < 1e-6


@settings(max_examples=40)
@given(twins(), st.integers(1, 128), st.floats(1, 100), st.floats(1, 100))
def test_more_bandwidth_or_arithmetic_is_never_slower(found, batch, wider, faster):
    here = found.nodes.roofs
    better = replace(here, bytes_per_s=here.bytes_per_s * wider,
                     rates={name: rate * faster for name, rate in here.rates.items()})
    same = found.at(BatchChoice(batch, roofs=here)).latency_ms.value
    assert found.at(BatchChoice(batch, roofs=better)).latency_ms.value <= same * (1 + 1e-9)
    assert abs(same / found.latency_ms(batch) - 1) < 1e-6


@settings(max_examples=40)
@given(twins(smallest=3), st.integers(1, 256))
def test_an_interval_holds_its_point_and_shares_are_shares(found, batch):
    prediction = found.at(BatchChoice(batch))
    assert 0 < prediction.latency_ms.low <= prediction.latency_ms.value <= prediction.latency_ms.high
    assert all(0 <= share <= 1 + 1e-9 for share in prediction.shares.values())
    assert abs(sum(prediction.shares.values()) - 1) < 1e-6
