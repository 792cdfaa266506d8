"""runner.measured: what becomes of a process that ended otherwise than it said."""

from __future__ import annotations

import io
import json

import pytest

from aaco.core.errors import AacoError, Missing
from aaco.runner import measured


@pytest.mark.parametrize(("code", "kind"), [(6, Missing), (134, AacoError), (-6, AacoError)])
def test_an_error_is_told_whatever_the_exit_code(tmp_path, code, kind):
    """A tracer's last words may be a signal. Mutation: the code looked up without asking, which is a traceback."""
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps({"error": {"what": "no provider", "fix": "install it"}}))
    with pytest.raises(AacoError, match="no provider") as raised:
        measured._check_outcome(code, path, io.BytesIO())
    assert type(raised.value) is kind and raised.value.fix == "install it"
