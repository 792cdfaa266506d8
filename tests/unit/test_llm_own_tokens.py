"""The text of answers counted here: beside the server's count, and in no other figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.analytics.llm.load import OwnTokenCount
from aaco.core.documents import encode
from aaco.core.errors import UsageError
from aaco.llm import own_tokens
from aaco.llm.record import Kind, ReadRecorder
from aaco.report.sections.findings.endpoint import sections
from tests.fakes.llm_server import DONE, event, sse
from tests.unit import test_llm_summary as summaries

HEAD = json.dumps({"status": 200, "content-type": "text/event-stream"}).encode()


def usage(tokens: int) -> bytes:
    return sse({"choices": [], "usage": {"completion_tokens": tokens}})


TWO_CHOICES = sse({"model": "ref", "choices": [{"index": 1, "text": "four"}, {"index": 0, "text": "one two"}]}) + sse(
    {"model": "ref", "choices": [{"index": 1, "text": " five"}, {"index": 0, "text": " three"}]})
ANSWERS = [
    event("one tw") + event("o three") + usage(4) + DONE,  # a word in two chunks: 3
    TWO_CHOICES + usage(5) + DONE,  # 3 and 2
    event("é 中 ") + event("word") + usage(2) + DONE,  # 3
    event("not", model="ref") + event("counted") + DONE,  # 1, of which the server says nothing
    event("cut short") + usage(9), event("of another", model="other") + usage(9) + DONE]


@pytest.fixture
def reads(tmp_path: Path) -> Path:
    """The answers, a byte at a time."""
    recorder = ReadRecorder(tmp_path / "reads")
    for request, answer in enumerate(ANSWERS):
        recorder.add(request, Kind.DISPATCH, 1_000, 1_500)
        recorder.add(request, Kind.HEAD, 0, 9_000, HEAD)
        for at in range(len(answer)):
            recorder.add(request, Kind.BODY, 0, 10_000 + at, answer[at:at + 1])
        recorder.add(request, Kind.END, 0, 90_000)
    recorder.close()
    return tmp_path / "reads"


def words(text: str) -> int:
    return len(text.split())


def test_whole_answers_are_counted_beside_the_server(reads: Path, tmp_path: Path):
    """By words, by hand. Mutations: what failed is counted; choices are one text; chunks are counted one by one."""
    (tmp_path / "tokenizer.json").write_text("{}")
    counted = own_tokens.count(reads, ["ref"], tmp_path, words)
    assert counted.tokenizer.startswith("tokenizer.json sha256 ")
    assert replace(counted, tokenizer="") == OwnTokenCount("", 12, 3, 11, 11, 2, -1, 1)


def test_the_difference_is_in_words_and_in_the_document_and_moves_no_time():
    """Mutation: the document leaves it out."""
    own = OwnTokenCount("tokenizer.json sha256 ab", 12, 3, 10, 13, 2, -2, -1)
    without, document = (summaries.found(summaries.many(), own_tokens=given) for given in (None, own))
    assert document.own_tokens == own and replace(document, own_tokens=None) == without
    rows = {row.label: row.text for _, rows in sections(encode(document)) for row in rows}
    assert rows["Own count"] == "10 tokens by tokenizer.json, 13 by the server (-3); 2 of 3 answers differ, from -2 " \
                                "to -1 in an answer"


def test_a_tokenizer_of_the_library_counts_and_what_is_none_is_refused(tmp_path: Path):
    tokenizers = pytest.importorskip("tokenizers", reason="the extra tokenizer is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2, "<s>": 3}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 3)])
    made.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        assert own_tokens.counter(path)("a b, a") == 4  # without the <s> that begins a text
    (tmp_path / "wrong.json").write_text('{"model": {"type": "BPE"}}')
    with pytest.raises(UsageError, match=r"wrong\.json: no tokenizer: "):
        own_tokens.counter(tmp_path / "wrong.json")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"tokenizer\.json: no such file"):
        own_tokens._file(tmp_path)
