"""Proposers: what a command prints is data, of which only the kernel's own patch is taken."""

from __future__ import annotations

import difflib
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.errors import UsageError
from aaco.optimize.kernels import proposers
from aaco.optimize.kernels.edit_proof import check_edited
from aaco.optimize.kernels.patches import patched
from aaco.optimize.kernels.prompt import kernel_prompt
from aaco.optimize.kernels.proposers import ask_command
from aaco.optimize.kernels.source import find_kernel
from aaco.optimize.kernels.variants import Refused

pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
TEXT = b"""#define SIZE 128
__device__ float twice(float x) { return 2 * x; }
__global__ void k(const float *in, float *out, int n)
{
	for (int i = threadIdx.x; i < n; i += SIZE)
		out[i] = twice(in[i]);
}
__global__ void other(float *out) { out[0] = 1; }
"""
KERNEL = find_kernel(TEXT, "k")
FUNCTION = TEXT[KERNEL.begin:KERNEL.end]
BETTER = TEXT.replace(b"twice(in[i])", b"2 * in[i]")


def diff(after: bytes, before: bytes = TEXT, context: int = 3) -> bytes:
    lines = [text.decode("latin-1").splitlines(keepends=True) for text in (before, after)]
    return "".join(difflib.unified_diff(*lines, "a/k.cu", "b/k.cu", n=context)).encode("latin-1")


def says(answer: bytes, *before: str) -> list[str]:
    return [sys.executable, "-c", f"import sys\n{';'.join(before)}\nsys.stdin.read()\n"
                                  f"sys.stdout.buffer.write({answer!r})"]


def prompt(**how):
    return kernel_prompt(KERNEL, "k.cu", None, None, **how)


@pytest.mark.parametrize("answer", [
    diff(BETTER), diff(BETTER, context=0), diff(BETTER).replace(b"@@ -3", b"@@ -1"), FUNCTION.replace(
        b"twice(in[i])", b"2 * in[i]"), b"Here it is:\n```cpp\n" + FUNCTION.replace(b"twice(in[i])", b"2 * in[i]")
    + b"\n```\nIt is faster.\n", b"```diff\n" + diff(BETTER) + b"```\n",
    diff(BETTER).replace(b"\n", b"\r\n")])
def test_a_diff_or_a_whole_function_is_taken(answer):
    proposal = ask_command(says(answer), KERNEL, prompt())
    assert (proposal.text, proposal.proposer) == (BETTER, "command")


@pytest.mark.parametrize(("answer", "reason"), [
    (b"", "empty"), (b" \n", "empty"), (b"no idea", "not_found"), (FUNCTION, "unchanged"),
    (diff(TEXT.replace(b"return 2 * x", b"return 3 * x")), "outside_kernel"),
    (diff(BETTER) + b"--- a/other.cu\n+++ b/other.cu\n@@ -1 +1 @@\n-a\n+b\n", "outside_kernel"),
    (FUNCTION + b"\n__device__ int more;", "outside_kernel"), (b"#include <a>\n" + FUNCTION, "outside_kernel"),
    (FUNCTION.replace(b"const float", b"float"), "signature"),
    (FUNCTION.replace(b"int n)", b"int n) __restrict__"), "signature"),
    (FUNCTION.replace(b"float *out", b"float *__restrict__ out"), "signature"),
    (FUNCTION.replace(b"void k", b"void __launch_bounds__(128) k"), "signature"),
    (FUNCTION.replace(b"{\n", b"{\n#define SIZE 64\n", 1), "directive"),
    (FUNCTION.replace(b"{\n", b'{\n\tasm(".incbin \\"/etc/passwd\\"");\n', 1), "assembly"),
    (FUNCTION + FUNCTION, "several_definitions"),
    (b"@@ -3,2 +3,2 @@\n no such line\n-twice\n+once\n", "bad_patch"), (b"@@ -3,9 +3,9 @@\n x\n", "bad_patch"),
    (b"@@ -1 +1 @@\n?x\n", "bad_patch"), (b"@@ junk\n", "bad_patch"), (b"@@ -0,0 +1 @@\n+int x;\n", "bad_patch"),
    (b"```\n" + FUNCTION + b"\n```\n```\n" + FUNCTION + b"\n```\n", "bad_patch"),
    (b"\xff\xfe\0", "not_text"),
])
def test_what_is_no_patch_of_the_kernel_is_refused_by_name(answer, reason):
    """Mutations: what stands around a function is dropped; a hunk is put where it nearly fits."""
    with pytest.raises(Refused) as refused:
        ask_command(says(answer), KERNEL, prompt())
    assert refused.value.reason == reason, refused.value


@pytest.mark.parametrize(("command", "words"), [
    (says(b"", "import time", "time.sleep(60)"), "gave no answer in 1 s"), (["yes"], "printed more than 1 MiB"),
    (says(b"", "sys.exit('no key')"), "exits with 1: no key")])
def test_a_command_that_does_not_answer_is_refused(command, words):
    with pytest.raises(Refused, match=f"no_answer.*{words}"):
        ask_command(command, KERNEL, prompt(), 1 if "sleep" in str(command) else 30)


def test_a_command_that_is_not_there():
    with pytest.raises(UsageError, match="no-such-proposer is not on PATH"):
        ask_command(["no-such-proposer"], KERNEL, prompt())


def test_what_is_printed_as_an_error_is_no_part_of_the_answer():
    """Mutation: both streams are one."""
    command = says(FUNCTION.replace(b"twice(in[i])", b"2 * in[i]"), "print('warming up', file=sys.stderr)")
    assert ask_command(command, KERNEL, prompt()).text == BETTER


def test_a_diff_of_a_file_with_carriage_returns_keeps_them():
    text = TEXT.replace(b"\n", b"\r\n")
    kernel = find_kernel(text, "k")
    assert patched(kernel, diff(BETTER)) == BETTER.replace(b"\n", b"\r\n")
    mixed = text.replace(b"1; }\r\n", b"1; }\n")
    assert patched(find_kernel(mixed, "k"), diff(BETTER)) == BETTER.replace(b"\n", b"\r\n").replace(b"1; }\r", b"1; }")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([b"", b"\tint x = 1;", b"}", b"{", b"@@ -1 +1 @@", b"-a",
                                                             b"#if 0", b"// }"])), max_size=4), st.integers(0, 4))
def test_a_diff_of_any_edit_gives_that_edit_or_a_refusal(changes, context):
    """difflib is the other reader: what is taken is what its lines say, and it passes the proof."""
    lines = TEXT.split(b"\n")
    for at, line in changes:
        lines[min(at, len(lines) - 2)] = line
    after = b"\n".join(lines)
    if after == TEXT:
        return
    try:
        text = patched(KERNEL, diff(after, context=context))
    except Refused as refusal:
        assert refusal.reason == "bad_patch"
        return
    assert text == after


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda junk: FUNCTION[:90] + junk + FUNCTION[90:]),
                 st.binary(max_size=60).map(lambda junk: diff(BETTER)[:120] + junk + diff(BETTER)[120:])))
def test_whatever_is_printed_only_refusals_are_raised_and_nothing_outside_changes(answer):
    try:
        text = patched(KERNEL, answer)
        edited = check_edited(KERNEL, text)
    except Refused:
        return
    assert text[:edited.begin] == TEXT[:KERNEL.begin] and text[edited.end:] == TEXT[KERNEL.end:]


def test_the_prompt_has_what_is_known_and_no_credentials_or_folders():
    """Mutations: the source is not redacted; folders stay."""
    secret = "gh" + "p_" + "a1B2" * 9
    text = TEXT.replace(b"{\n\tfor", f"{{\n\t// token {secret} in /home/user/project/k.cu\n\tfor".encode())
    asked = kernel_prompt(find_kernel(text, "k"), "k.cu", None, None, refused=[Refused("compile_error", "line 3")])
    document = asked.document()
    for written in (json.dumps(document), asked.markdown()):
        assert secret not in written and "/home/user" not in written and "in k.cu" in written
        assert "SIZE" in written and "compile_error" in written and "no capture is given" in written
    assert document["macros"] == {"SIZE": " 128"} and document["line"] == 3
    assert document["why_absent"].keys() == {"launch", "resources", "profile"}


def test_the_command_reads_the_prompt(tmp_path):
    program = ("import json, sys\nasked = json.load(sys.stdin)\n"
               "print(asked['source'].replace('twice(in[i])', '2 * in[i]'))")
    assert ask_command([sys.executable, "-c", program], KERNEL, prompt()).text == BETTER
    assert proposers.ATTEMPTS == 2
