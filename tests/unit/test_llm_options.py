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
    ([*SERVER, "--certificates", __file__], "--certificates is not for a server without https"),
    ([*SERVER, "--against", "[::1]:2", "--certificates", __file__], "--certificates is not for a server without https"),
    ([*SERVER, "--prompts", __file__, "--shared-prefix", "50"], "--shared-prefix is not for prompts of a file"),
    ([*SERVER, "--trace", __file__, "--shared-prefix", "0"], "--shared-prefix is not for prompts of a file"),
    ([*SERVER, "--rate", "1:4", "--prompts", __file__, "--shared-prefix", "5"], "--shared-prefix is not for prompts"),
    (["http://127.0.0.1:1/v1/completions", "--model", "ref", "--api", "chat"], "--api is not for a URL that names"),
    ([*SERVER, "--trace", __file__, "--prompt-tokens", "9"], "--prompt-tokens is not for prompts of a file"),
    ([*SERVER, "--body", '{"n": 2}'], "several answers to a request have no time per token"),
    ([*SERVER, "--body", '{"temperature": NaN}'], "NaN is no number"),
    ([*SERVER, "--slo", "ttft=1s", "--slo", "ttft=2s"], "two levels of one name"),
    ([*SERVER, "--rate", "1e-300"], "the last request would be due after"),
    ([*SERVER, "--poisson", "5e-324"], "the last request would be due after"),
    ([*SERVER, "--rate", "1:1e300"], "takes more than 10,000,000 requests"),
    ([*SERVER, "-c", "1:1000000000"], "takes more than 10,000,000 requests"),
    ([*SERVER, "-c", "1:1000000000", "-n", "9"], "may open"),
    ([*SERVER, "--against", "https://127.0.0.1:2", "--certificates", __file__], "no file of certificates"),  # of one
])
def test_an_option_without_an_effect_is_refused(words: list[str], refused: str, capsys: pytest.CaptureFixture[str]):
    """Mutation: what a mode leaves out is ignored."""
    assert cli.outcome(cli.app, "aaco", ["llm", *words]) == 2
    assert refused in " ".join(capsys.readouterr().err.split())


def test_an_option_with_an_effect_on_one_of_two_servers_is_taken(capsys: pytest.CaptureFixture[str]):
    words = ["127.0.0.1:1/v1/completions", "--model", "ref", "--against", ":2", "--api", "completions"]
    assert cli.outcome(cli.app, "aaco", ["llm", *words]) == 6
    assert "no server answers" in capsys.readouterr().err
