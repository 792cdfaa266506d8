"""What is passed beside the traces of a serving engine."""

from __future__ import annotations

import json

import pytest

from aaco.core.errors import UsageError
from aaco.steps.serving_inputs import ServingInputs, read_model


def test_a_document_that_describes_no_model_is_refused(tmp_path):
    """Any JSON object was taken, and said only deep in the report that it has no sizes. Mutation: it is taken."""
    file = tmp_path / "truth.json"
    file.write_text(json.dumps({"config": {"layers": 6}}))
    with pytest.raises(UsageError, match=r"truth\.json: it describes no model"):
        read_model(ServingInputs(model_config=file))
    file.write_text(json.dumps({"num_hidden_layers": 6}))
    model = read_model(ServingInputs(model_config=file))
    assert model and model.shape.layers == 6
