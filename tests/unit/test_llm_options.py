"""Options of `aaco llm` that would have no effect are refused, before anything is asked."""

from __future__ import annotations

import pytest

from aaco import cli

SERVER = ["http://127.0.0.1:1", "--model", "ref"]
DECODER = ["llama-tiny"]


@pytest.mark.parametrize(("words", "refused"), [
    ([*SERVER, "--tolerance", "5%"], "--tolerance is not for one endpoint"),
    ([*DECODER, "--tolerance", "5%"], "--tolerance is not for one endpoint"),
    ([*SERVER, "--strict"], "--strict"),
    ([*SERVER, "--against", ":2", "--full"], "--full is not for --against"),
    ([*SERVER, "--against", ":2", "--preset", "llm-server"], "--preset is not for --against"),
    ([*SERVER, "--against", ":2", "--rate", "1:4"], "--against is not for a load that rises"),
    ([*SERVER, "--rate", "1:4", "--tolerance", "5%"], "--tolerance is not for a load that rises"),
    ([*SERVER, "--rate", "1:4", "--strict"], "--strict is not for a load that rises"),
    ([*SERVER, "--rate", "1:4", "--full"], "--full is not for a load that rises"),
    ([*DECODER, "--rate", "1:4", "--batches", "1,2"], "--batches is not for a load that rises"),
    ([*DECODER, "--rate", "1:4"], "a load that rises is for a server"),
    ([*DECODER, "--against", ":2"], "--against is for a server"),
    ([*DECODER, "--batches", "1,2", "--against", ":2"], "--against is not for --batches"),
    ([*DECODER, "--batches", "1,2", "--preset", "llm-server"], "--preset is not for --batches"),
    ([*DECODER, "--batches", "1,2", "--strict"], "--strict is not for --batches"),
    ([*DECODER, "--batches", "1,2", "--full"], "--full is not for --batches"),
])
def test_an_option_without_an_effect_is_refused(words: list[str], refused: str, capsys: pytest.CaptureFixture[str]):
    """Mutation: what a mode leaves out is ignored."""
    assert cli.outcome(cli.app, "aaco", ["llm", *words]) == 2
    assert refused in " ".join(capsys.readouterr().err.split())
