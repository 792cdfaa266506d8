"""benchmarks.gpu.compare: what it plants, what it claims of made verdicts, and a case that fails."""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace

import onnx
import pytest

from aaco.core.errors import Missing
from aaco.core.tables import PAIRS
from aaco.governance.interleaved.duet_verdict import DEVICE
from aaco.governance.verdict_document import Counts, MetricVerdict
from benchmarks.gpu import _device, compare


def said(status="regressed", ci=(4.8, 5.2), absent=""):
    """A finished comparison whose verdict on the device's time is this."""
    found = MetricVerdict(
        metric=DEVICE, unit="ms", direction="lower_is_better", status=status, why="", baseline_value=0.8,
        current_value=0.8, effect_pct=sum(ci) / 2, ci=ci, p_value=0.5, q_value=0.5, p_regression=0.5, mde80_pct=0.1,
        sigma_session=0.001, n_units=Counts(baseline=5, current=5), replication_unit="process")
    verdict = SimpleNamespace(metrics=[] if absent else [found], metrics_absent={DEVICE: absent, "latency_ms": "loud"})
    return SimpleNamespace(session=None, verdict=verdict)


@pytest.fixture
def of(monkeypatch, tmp_path):
    """The claims of a case, of this verdict and these times of the device alone."""
    def claims(case, compared, apart=(100.0, 105.0), device=(1.0, 1.01), host=(1.0, 1.1)):
        times = {"baseline_device_ms": device, "baseline_ms": host, "current_ms": host}
        table = PAIRS.build(process=[0, 1], kind=["change"] * 2, pair=[0, 0], **times)
        monkeypatch.setattr(compare.compare, "compare", lambda *given: compared)
        monkeypatch.setattr(compare.store, "read", lambda *given: table)
        spans = {side: cycle([apart[side]]) for side in (0, 1)}
        monkeypatch.setattr(compare, "_apart", lambda side, settings, folder: next(spans[int(folder.name[0])]))
        return [claim.met for claim in case(_device.settings(sessions_dir=tmp_path / "sessions"))]

    return claims


def planted(settings):
    return compare._planted(settings, "more", {})


def test_what_is_planted_is_that_many_products(tmp_path):
    for count in (compare.PRODUCTS, compare.PRODUCTS + compare.MORE):
        model = onnx.load(compare._chain(tmp_path / "chain.onnx", count))
        onnx.checker.check_model(model, full_check=True)
        assert [node.op_type for node in model.graph.node] == ["MatMul"] * count


@pytest.mark.parametrize("compared, apart, met", [
    (said(), (100.0, 105.0), [True, True]), (said("inconclusive"), (100.0, 105.0), [False, True]),
    (said(), (100.0, 107.0), [True, False]), (said(ci=(5.1, 5.2)), (100.0, 105.0), [True, False])])
def test_a_planted_change_must_be_found_with_its_size(of, compared, apart, met):
    """Mutation: the interval not held against what was measured apart."""
    assert of(planted, compared, apart) == met


def test_a_thing_with_itself_must_be_steadier_on_the_device(of):
    assert of(compare._with_itself, said("inconclusive", (-1, 1))) == [True, True]
    assert of(compare._with_itself, said("equivalent", (-1, 1)), host=(1.0, 1.001)) == [True, False]
    assert of(compare._busy_host, said("equivalent", (-1, 1))) == [True, None]


def test_a_case_that_fails_has_missed_and_the_others_go_on(monkeypatch):
    """Mutation: a device time that is absent is no claim."""
    monkeypatch.setattr(compare.compare, "compare", lambda *given: said(absent="CUPTI dropped 3 records"))
    found = list(compare.claims(None))
    assert len(found) == 4 and {claim.met for claim in found} == {False}
    assert found[0].measured == f"{DEVICE} absent: CUPTI dropped 3 records"

    def refuse(*given):
        raise Missing("CUDAExecutionProvider is not in this ONNX Runtime", "")

    monkeypatch.setattr(compare.compare, "compare", refuse)
    assert [claim.met for claim in compare.claims(None)] == [None] * 4
