"""`aaco llm` against llama.cpp's server, where this machine has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from aaco.core.config import resolve
from aaco.core.tables import REQUESTS
from aaco.tracelake import store
from aaco.workflows import llm_run
from aaco.workflows.llm_run import LoadRequest
from tests.fakes import gguf_model, llama_server

needs_server = pytest.mark.skipif(not llama_server.program(), reason=f"no {llama_server.NAME}: {llama_server.VARIABLE}")


def test_the_model_is_whole(tmp_path: Path):
    """A head with as many tensors as layers need, and the same file each time."""
    content = gguf_model.write(tmp_path / "model.gguf").read_bytes()
    assert content[:8] == b"GGUF\x03\0\0\0" and int.from_bytes(content[8:16], "little") == 3 + 9 * gguf_model.LAYERS
    assert len(content) % gguf_model.ALIGNMENT == 0 and len(content) < 20_000_000
    assert gguf_model.write(tmp_path / "again.gguf").read_bytes() == content


@needs_server
def test_llama_cpp_counts_every_token_and_agrees_on_the_time(tmp_path: Path):
    settings = resolve(overrides={"storage": {"sessions_dir": tmp_path / "sessions"}})
    program = llama_server.program()
    assert program
    with llama_server.serving(program, tmp_path, slots=2) as server:
        run = llm_run.ask_endpoint(LoadRequest(server.url, "random", requests=70, concurrency=2, prompt_tokens="8",
                                               max_tokens="20", count_chunks=True, body={"ignore_eos": True},
                                               answers_as=[str(tmp_path / "model.gguf")]), settings)
    rows = store.read(run.session, REQUESTS).to_pylist()
    assert {(row["status"], row["output_tokens"], row["tokens_source"]) for row in rows} == {("ok", 20, "timings")}
    assert run.metrics["itl_p50_ms"].value is not None and run.metrics["client_delay_p99_us"].value is not None
