"""The pattern that finds credentials in whole columns finds whatever `redact` would change."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.redaction import HINT, columns, redact
from aaco.core.redaction.columns import redact_column
from aaco.tracelake.ingest import text
from tests.property.test_redaction import SHAPES

PARTS = ("password", "PASSWD", "pass", "_pwd", "token", "Token", "api_key", "account-key", "secretary", "cookie", "x",
         "webhook", "connection_string", "credentials", "Authorization", "Bearer ", "basic ", "://", "user", ":", "@",
         "=", " = ", "=>", "?sig=", "&X-Amz-Credential=", "-u ", "--user=", "-U", "--proxy-user ", '"', "'", '\\"',
         "{", "}", ", ", "\n", " ", "\u00a0", "\u017f", "\u212a", "é", "hunter2secret", "1234567", "null", "a" * 45,
         "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", "AKIA" + "A1" * 8, "hf_" + "b" * 33,
         "sk-" + "c1" * 12, "eyJ" + "d" * 20, "ghp_" + "e" * 36, "xoxb-1234567890", "/", ".", "-", "_")
PHRASES = ("Authorization: abc123xyz", "bearer abcdefg12", "basic dXNlcjpwYXNz1", "https://user:hunter2@host/x",
           "http://host/x?sig=abcdef", "x&X-Amz-Signature=abcdef", "curl -u me:hunter2", "curl --user=me:hunter2",
           "token=abcdefgh", "--token abcdefgh", "password\u00a0= hunter2", "db_pass = hunter2", "my_pwd=hunter2",
           "api_key: hunter2", "cookie=abcdef", "webhook: abcdef", "connection_string=abcdef", "secret = hunter2",
           "credential='hunter2'", "tool -phunter2secret",
           "tool --pw hunter2", "tool --pass hunter2", "-----BEGIN PRIVATE KEY-----")
TEXTS = st.lists(st.one_of(st.sampled_from(PARTS), st.sampled_from(PHRASES), *SHAPES.values()), max_size=9).map("".join)


@pytest.mark.parametrize("phrase", PHRASES)
def test_each_phrase_is_found(phrase):
    assert redact(phrase) != phrase
    assert pc.match_substring_regex(pa.array([phrase]), HINT).to_pylist() == [True]


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_the_hint_is_in_all_that_would_be_changed(texts):
    """Mutations seen to fail: any one of the alternatives left out of HINT, its case made to count."""
    hinted = pc.match_substring_regex(pa.array(texts), HINT).to_pylist()
    assert [text for text, hint in zip(texts, hinted, strict=True) if not hint and redact(text) != text] == []


@pytest.mark.parametrize("few", [0, columns.FEW])
@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), TEXTS), max_size=20))
def test_a_column_is_redacted_like_its_texts(few, texts):
    """By the pattern, and one by one where they are few."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns, "FEW", few)
        is_redacted_like_its_texts(texts)


def is_redacted_like_its_texts(texts):
    """Assert it of columns of texts, of names and of lists."""
    column = pa.chunked_array([pa.array(texts[:7], pa.string()), pa.array(texts[7:], pa.string())])
    wanted = [None if one is None else redact(one) for one in texts]
    assert redact_column(column).to_pylist() == wanted
    names = text.Names()
    codes = names.codes(pa.chunked_array([chunk.dictionary_encode() for chunk in column.chunks]))
    assert text.codes_as_names(codes, names.values()).to_pylist() == wanted
    lists = pa.chunked_array([pa.array([texts, None, []], pa.list_(pa.string()))])
    assert redact_column(lists).to_pylist() == [wanted, None, []]
    assert redact_column(lists.slice(1)).to_pylist() == [None, []]
