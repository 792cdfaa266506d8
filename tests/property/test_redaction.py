"""Credentials: planted ones of every known shape are redacted, and what only resembles them passes untouched."""

from __future__ import annotations

import gzip
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.redaction import REDACTED, find_credentials, is_suspicious, looks_secret, redact
from tests.growth import times_dearer

WORDS = string.ascii_letters + string.digits


def text(alphabet, least, most=None):
    return st.text(alphabet, min_size=least, max_size=most or least)


def made(pattern, *parts):
    """Shapes are put together here, so that no scanner takes this file for a leak."""
    return st.tuples(*parts).map(lambda found: pattern.format(*found))


with_digit = text(WORDS, 24, 60).map(lambda found: found + "7")
SHAPES = {
    "aws": made("{}{}", st.sampled_from(["AK" + "IA", "AS" + "IA"]), text(string.ascii_uppercase + string.digits, 16)),
    "github": made("gh{}_{}", st.sampled_from("pousr"), text(WORDS, 36)),
    "github_pat": made("github_" + "pat_{}_{}", text(WORDS, 22), text(WORDS, 59)),
    "huggingface": made("h" + "f_{}", text(string.ascii_letters, 34)),
    "openai": made("s" + "k-{}{}", st.sampled_from(["", "proj-", "ant-api03-"]), with_digit),
    "slack": made("xox{}-{}-{}", st.sampled_from("abeoprs"), text(string.digits, 12), text(WORDS, 24)),
    "jwt": made("ey" + "J{}.ey" + "J{}.{}", text(WORDS + "-_", 12, 40), text(WORDS + "-_", 12, 99), text(WORDS, 43)),
    "gitlab": made("glp" + "at-{}", text(WORDS, 20)),
    "google": made("AI" + "za{}", text(WORDS + "-_", 35)),
}
plain_values = text(WORDS + "!#$%^*()+/_-.~?<>", 4, 40).filter(
    lambda value: value.strip(string.digits + "+-.") and REDACTED not in value)
NAMES = ("password", "PASSWORD", "passwd", "db_pass", "PGPASSWORD", "mysql_pwd", "api_key", "apiKey", "X-Api-Key",
         "client_secret", "AWS_SECRET_ACCESS_KEY", "secretAccessKey", "access_token", "HF_TOKEN", "authToken", "token",
         "private_key", "passphrase", "credentials", "Set-Cookie", "connection_string", "AccountKey", "slack_webhook")
NAMED = {
    "json": lambda name, value: (json.dumps({"a": 1, name: value, "b": [2]}), value),
    "json in json": lambda name, value: (json.dumps({"body": json.dumps({name: value, "b": 1})}), value),
    "python": lambda name, value: (repr({name: value}), value),
    "variable": lambda name, value: (f"export {name}={value} other=1", value),
    "yaml": lambda name, value: (f"{name}: {value}\nother: 1", value),
    "option": lambda name, value: (f"program --{name}={value} --other", value),
    "quoted": lambda name, value: (f'{name} = "{value} and more" rest', f"{value} and more"),
    "query": lambda name, value: (f"https://host/path?x=1&{name}={value}", value),
}
HEADS = {
    "bearer": made("-H 'Authorization: Bearer {}'", plain_values),
    "basic": made('"Authorization": "Basic {}"', text(WORDS, 8, 40)),
}


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data(), around=st.sampled_from(["{}", "a {} b", '{{"x": "{}"}}', "opt={}", "({})", "/a/{}/x", "x,{}"]))
def test_a_credential_of_known_shape_is_redacted_wherever_it_stands(shape, data, around):
    """Mutation: taking any one alternative out of the shapes."""
    secret = data.draw(SHAPES[shape])
    whole = around.format(secret)
    assert secret not in redact(whole)
    assert redact(whole) == around.format(REDACTED) or "opt=" in around
    assert looks_secret("anything", whole)
    assert is_suspicious("ANYTHING", whole)


@pytest.mark.parametrize("form", NAMED)
@given(name=st.sampled_from(NAMES), value=plain_values)
def test_whatever_goes_under_the_name_of_a_credential_is_redacted(form, name, value):
    """Mutation: stopping a quoted value at its first space; forgetting the quotes of JSON inside JSON."""
    if form in ("variable", "query", "option"):
        value = value.replace("&", "").replace("#", "")
    if form in ("yaml", "quoted", "variable", "option", "query") and value.startswith((">", "?", "<")):
        value = "x" + value
    if value.lower() in ("null", "none", "true", "false"):  # which say that there is none
        value += "x"
    whole, secret = NAMED[form](name, value)
    left = redact(whole)
    assert REDACTED in left and len(left) <= len(whole) - len(secret) + len(REDACTED)
    assert secret in "".join(find_credentials(whole)) and looks_secret(name, value)
    if form.startswith("json"):
        found = json.loads(left)
        assert (json.loads(found["body"]) if "body" in found else found)[name] == REDACTED
    assert ("other" in whole.replace(secret, "")) <= ("other" in left)


@given(value=plain_values, user=st.sampled_from(["me", "root", "a.b", "x9"]), host=text(string.ascii_lowercase, 3, 9))
def test_passwords_in_addresses_and_logins(value, user, host):
    secret = value.replace("/", "").replace('"', "") + "x"
    for whole in (f"postgres://{user}:{secret}@{host}/db", f"see https://{user}:{secret}@{host}:443/x?y=1",
                  f"curl -u {user}:{secret} http://{host}", f"curl --user={user}:{secret} {host}"):
        left = redact(whole)
        assert REDACTED in left and f":{secret}" not in left and host in left


@pytest.mark.parametrize("head", HEADS)
@given(data=st.data())
def test_authorization_headers(head, data):
    whole = data.draw(HEADS[head])
    left = redact(whole)
    assert REDACTED in left and (left == whole.split("r ")[0] + "r <withheld>'" or head != "bearer")


@given(st.text(WORDS + "+/=\n", max_size=300), st.sampled_from(["", "RSA ", "EC ", "OPENSSH "]), st.booleans())
def test_private_keys_are_redacted_even_when_cut_short(body, kind, whole):
    dashes = "-" * 5
    end = f"{dashes}END {kind}PRIVATE KEY{dashes} rest" if whole else ""
    planted = f"before {dashes}BEGIN {kind}PRIVATE KEY{dashes}\n{body}\n{end}"
    assert redact(planted) == f"before {REDACTED}" + (" rest" if whole else "")


hexadecimal = text("0123456789abcdef", 64)
kernel_parts = st.sampled_from(["Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI16x16x16x1_SN_", "1LDSB1_AFC1_AFEM1_", "_ASEM8_",
                                "void at::native::vectorized_elementwise_kernel<4, ", "std::array<char*, 3>>(int, ",
                                "ck::tensor_operation::device::", "flash_fwd_splitkv_combine_key_kernel<true, ",
                                "_ZN2at6native18elementwise_kernelILi128ELi4E", "triton_red_fused__to_copy_add_mean_",
                                "token_softmax_reducev_fwd", "query_key_value", "paged_attention_v2_kernel<", ", 0> "])
versions = made("{}.{}.{}{}", *[st.integers(0, 99)] * 3, st.sampled_from(["", "+cu121", "rc1", ".dev20251101"]))
paths = st.lists(text(string.ascii_letters + "._-", 1, 20), min_size=1, max_size=6).map(
    lambda parts: "/" + "/".join(parts))
INNOCENTS = {
    "sha256": hexadecimal, "digest": hexadecimal.map("image@sha256:{}".format), "uuid": st.uuids().map(str),
    "kernel": st.lists(kernel_parts, min_size=1, max_size=300).map(lambda parts: "".join(parts)[:7071]),
    "version": versions, "path": paths, "number": st.floats(allow_nan=False).map(str),
    "facts": st.sampled_from([
        "max_tokens=5", '{"eos_token": "</s>", "pad_token_id": 0}', "tokens_per_s: 31.5", "--max-token 8", "sk-learn",
        '{"key_shape": [1, 2], "pass": 3, "signature": "f(x)"}', "http://host:8080/a@b", "host:8080", "next_token: 5",
        "ssh://git@host/x", "docker -u 1000:1000", "Basic operations", "author: me", '"use_auth_token": false',
        "a::secret::b(int)", "keyboard=us", "compass=1", "bearer of", "monkey: banana", '"password": null'])}


@pytest.mark.parametrize("kind", INNOCENTS)
@given(data=st.data())
def test_what_is_no_credential_passes_untouched(kind, data):
    """Mutation: a name that is merely part of a longer word; `key` or `pass` among the names."""
    innocent = data.draw(INNOCENTS[kind])
    assert redact(innocent) == innocent
    assert not looks_secret("kernel_name", innocent) and not find_credentials(innocent)
    for name in ("Name", "correlation_key", "pass", "n_tokens", "next_token_ids", "signature", "author", "sha256"):
        assert not looks_secret(name, innocent)


@given(st.text(), st.sampled_from(["password", "token", '"', "\\", "=", ":", "Bearer ", "-u a:b", "://a:b@", "sk-1"]),
       st.text())
def test_redacting_twice_changes_no_more(before, middle, after):
    once = redact(before + middle + after)
    assert redact(once) == once


@pytest.mark.parametrize("piece", [
    "a", "password", "token=\"", "secret\\\"", "://:", "sk-", "ey" + "Ja.", "-u ", "authorization ", "_pwd", "&key=",
    "-----BEGIN PRIVATE KEY-----", "--secret ", "passw", "credential", "SG.aaaaaaaaaaaaaaaaaa", "0a", "Ab1", "@:/"])
def test_no_text_takes_more_than_linear_time(piece):
    """Mutation: an unbounded quantifier before the point where a pattern can fail."""
    def search(length):
        whole = piece * (length // len(piece))
        return redact(whole), is_suspicious("x", whole)

    assert times_dearer(lambda: search(25_000), lambda: search(200_000)) < 24  # linear: 8, square: 64


@pytest.mark.captures
def test_of_real_captures_only_the_credential_they_came_with_is_taken(captures):
    """Their publishers left a Hugging Face token in some; it was replaced by the word REDACTED before it came here."""
    path = captures / "kineto/mi300_gaunernst_bert-small-uncased__1016001.json.gz"
    whole = gzip.decompress(path.read_bytes()).decode()
    assert {secret.rstrip("X") for secret in find_credentials(whole)} == {"REDACTED"}
