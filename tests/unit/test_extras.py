"""What is said where an optional package is not installed."""

import pytest

from aaco.core import extras
from aaco.core.errors import Exit, Missing
from aaco.runner import registry


def test_a_module_of_an_extra_is_named_with_it_and_another_is_a_defect():
    """Mutation: submodules are not recognised."""
    found = extras.missing(ModuleNotFoundError("x", name="opentelemetry.exporter"))
    assert found and found.exit_code == Exit.MISSING
    assert "opentelemetry, which is not installed" in found.what and "'aaco[otlp]'" in found.fix
    assert extras.missing(ModuleNotFoundError("x", name="aaco.nothing")) is None
    assert extras.missing(ModuleNotFoundError("x")) is None


def test_a_backend_needs_an_onnx_runtime(monkeypatch):
    """Mutation: it is missed only by the process that is to measure."""
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(Missing, match="onnxruntime, which is not installed") as raised:
        registry.backend("cuda", registry.backends())
    assert "'aaco[cuda]'" in raised.value.fix
