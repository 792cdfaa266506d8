"""The source model: where a kernel is, and the proof that an edit changed nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.errors import Missing
from aaco.optimize.kernels import lexing, source
from aaco.optimize.kernels.edit_proof import check_edited
from aaco.optimize.kernels.grammar import LAUNCH_BOUNDS
from aaco.optimize.kernels.source import RESTRICT, find_kernel
from aaco.optimize.kernels.variants import Refused

pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
ROOT = Path(__file__).parents[2]
TESTBEDS = sorted((ROOT / "native" / "testbeds").glob("*.hip.cpp"))
TEXT = b"""// __global__ void k() { }
#define SIZE 128
__device__ float half_of(float x) { return x / 2; }
extern "C" __global__ void k(const float *a, float *out, int n)
{
	const char *text = "}"; /* } */
	for (int i = threadIdx.x; i < n; i += SIZE) // }
		out[i] = half_of(a[i]);
}
template <int N> __global__ __launch_bounds__(256, 2) void other(float *out) { out[0] = N; }
void launch(float *a, int n) { other<3><<<1, 2>>>(a); }
"""


def _edit(old: bytes, new: bytes, text: bytes = TEXT) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new)


def _reason(text: bytes, name: str = "k", **how) -> str:
    with pytest.raises(Refused) as refused:
        find_kernel(text, name, **how)
    return refused.value.reason


@pytest.mark.parametrize("path", TESTBEDS, ids=lambda path: path.name)
def test_the_kernel_of_each_testbed_is_found(path):
    text = path.read_bytes()
    kernel = find_kernel(text, path.name.partition(".")[0])
    assert text[kernel.begin:].startswith(b'extern "C" __global__ void') and kernel.end == len(text.rstrip())
    assert text[kernel.body[0]:kernel.body[0] + 1] == b"{" and kernel.body[1] == kernel.end
    assert all(text[loop.begin:].startswith((b"for", b"while")) for loop in kernel.loops)
    assert len(kernel.loops) == sum(token.text in (b"for", b"while") for token in kernel.body_tokens)


def test_a_kernel_has_its_template_head_attributes_and_parameters():
    kernel = find_kernel(TEXT, "other")
    assert TEXT[kernel.begin:kernel.end].startswith(b"template <int N> __global__ __launch_bounds__(256, 2) void")
    assert [parameter.name for parameter in find_kernel(TEXT, "k").parameters] == [b"a", b"out", b"n"]
    assert [parameter.is_pointer for parameter in find_kernel(TEXT, "k").parameters] == [True, True, False]


def test_loops_have_their_unroll_directive():
    body = b"__global__ void k(int n) {\n#pragma unroll 4\nfor (;n;) { while (n) n--; }\ndo n++; while (n < 3);\n}"
    assert [(loop.kind, loop.pragma and body[slice(*loop.pragma)]) for loop in find_kernel(body, "k").loops
            ] == [("for", b"#pragma unroll 4"), ("while", None), ("do", None)]


@pytest.mark.parametrize(("text", "reason", "line"), [
    (b"__global__ void k(int) { }\n__global__ void k(float) { }", "several_definitions", "lines 1 and 2"),
    (b"#if A\n__global__ void k(int) { }\n#else\n__global__ void k(int) { }\n#endif", "several_definitions", "2 and 4"),
    (b"void k(int) { }\n__global__ void q() { }", "not_found", "it defines q"),
    (b"__global__ void k(int);", "not_found", "no kernel k"),
    (b"#define END }\n__global__ void k(int n) {\n END\n}", "macro_braces", "line 3: the macro END"),
    (b"#define A B\n#define B do { } while (0)\n__global__ void k() {\nA;\n}", "macro_braces", "line 4: the macro A"),
    (b"#define CAT(a, b) a##b\n__global__ void k() {\nCAT(x, y);\n}", "macro_pastes", "line 3"),
    (b"#define k other\n__global__ void k() {\n}", "macro_name", "line 2: the macro k"),
    (b"__global__ void k(\n#if A\nint a\n#endif\n) { }", "directive_in_signature", "line 2"),
    (b"__global__ void k(int n) {\n if (n { }\n}", "syntax", "line 2"),
    (b"__global__ void k(int n) {\n#if A\n if (n) {\n#else\n {\n#endif\n }\n}", "syntax", "line"),
    (b"__global__ void k(int n) {\n#if 0\n }\n#endif\n n = 1; }", "syntax", "line"),
    (b"__global__ void k(int n) {\n /* }\n", "syntax", "line 2"),
    (b"__global__ void k(int n) <%\n %>", "hidden", "<%"),
    (b"__global__ void k(int n) {\n n \\\n = 1; }", "hidden", "line 2"),
    ("__global__ void k(int n) {\n n = 1; // \u202e }\n}".encode(), "hidden", "line 2"),
    (b"__global__ void k(int n) {\n // ??/\n n = 1; }", "hidden", "trigraphs"),
    (b"__global__ void k(int n) {\n\0}", "not_text", "line 2"),
])
def test_what_hides_a_kernel_is_refused_with_the_line(text, reason, line):
    """Mutations: macros of macros are not followed; a second definition is passed over; digraphs are."""
    with pytest.raises(Refused, match=line) as refused:
        find_kernel(text, "k")
    assert refused.value.reason == reason


def test_a_kernel_of_an_include_and_macros_of_an_include():
    header = {"k.cuh": b"#define CLOSE }\n\n__global__ void k(int n) { }"}
    with pytest.raises(Refused, match=r"in_include: k is defined in k.cuh, line 3") as refused:
        find_kernel(b'#include "k.cuh"\n', "k", header)
    assert "k.cuh" in refused.value.fix
    assert _reason(b'#include "k.cuh"\n__global__ void q() { CLOSE', "q", headers=header) == "macro_braces"


def test_a_file_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(source, "MOST_BYTES", 100)
    assert _reason(TEXT) == "too_large"


def test_without_tree_sitter_the_extra_is_named(monkeypatch):
    """Mutation: the ModuleNotFoundError itself, which reads like a defect."""
    monkeypatch.setitem(sys.modules, "tree_sitter_cpp", None)
    with pytest.raises(Missing, match="tree_sitter_cpp, which is not installed") as raised:
        find_kernel(TEXT, "k")
    assert "aaco[kernels]" in raised.value.fix


@pytest.mark.parametrize("text", [TEXT.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + TEXT, TEXT.rstrip(),
                                  b"\xef\xbb\xbf" + TEXT.replace(b"\n", b"\r\n"), TEXT.replace(b"// }", b"// \xe9 }")])
def test_line_ends_byte_order_marks_and_other_encodings_are_kept(text):
    edited = _edit(b"half_of(a[i])", b"0.5f * a[i]", text)
    kernel = check_edited(find_kernel(text, "k"), edited)
    assert kernel.line(kernel.begin) == 4
    assert find_kernel(text, "k").replaced() == text


def test_a_file_of_20000_lines():
    many = b"".join(b"__device__ float f%d(float x) { return x < %d ? x : 2; }\n" % (i, i) if i % 20 == 0 else
                    b"extern int x%d;\n" % i for i in range(20_000))
    kernel = find_kernel(many + TEXT, "k")
    assert kernel.line(kernel.begin) == 20_004


@pytest.mark.parametrize(("old", "new", "reason"), [
    (b"return x / 2;", b"return x / 3;", "outside_kernel"),
    (b"void launch", b" void launch", "outside_kernel"),
    (b"// __global__", b"// a __global__", "outside_kernel"),
    (b"out[i] = half_of(a[i]);\n}", b"out[i] = half_of(a[i]);\n}\n__device__ int more;", "outside_kernel"),
    (b"out[i] = half_of(a[i]);\n}", b"out[i] = 1; /*\n}", "syntax"),
    (b"out[i] = half_of(a[i]);\n}", b"out[i] = 1; }\n__device__ void more() { }", "outside_kernel"),
    (b"const float *a", b"float *a", "signature"),
    (b"float *out, int n)", b"float *__restrict__ out, int n)", "signature"),
    (b"__global__ void k(const", b"__global__ void __launch_bounds__(64) k(const", "signature"),
    (b"float *out, int n)", b"float *out, int n, int m = 3)", "signature"),
    (b'extern "C" __global__ void k(const', b"__global__ void k(const", "signature"),
    (b"\tfor (int", b"#define launch launch_2\n\tfor (int", "directive"),
    (b"\tfor (int", b"#pragma nv_diag_suppress 1\n\tfor (int", "directive"),
    (b"\tfor (int", b"#pragma unroll 2 \\\n junk\n\tfor (int", "directive"),
    (b"\tfor (int", b"#include \"/etc/passwd\"\n\tfor (int", "directive"),
    (b"\tfor (int", b"_Pragma(\"push_macro(\\\"SIZE\\\")\")\n\tfor (int", "directive"),
    (b"void k(const", b"void q(const", "not_found"),
])
def test_an_edit_that_leaves_the_body_is_refused(old, new, reason):
    """Mutations: the text after the kernel is not compared; nor the signature; nor directives."""
    with pytest.raises(Refused) as refused:
        check_edited(find_kernel(TEXT, "k"), _edit(old, new))
    assert refused.value.reason == reason


def test_what_an_edit_may_add_to_a_signature_is_permitted_by_name():
    """Mutations: a permission for one is one for both; with a permission nothing is compared."""
    bounds = _edit(b"__global__ void k(const", b"__global__ void __launch_bounds__(SIZE) k(const")
    restricted = _edit(b"float *out, int n)", b"float *__restrict__ out, int n)")
    check_edited(find_kernel(TEXT, "k"), bounds, frozenset({LAUNCH_BOUNDS}))
    check_edited(find_kernel(TEXT, "k"), restricted, frozenset({RESTRICT}))
    both = frozenset({LAUNCH_BOUNDS, RESTRICT})
    for edited, other in ((bounds, frozenset({RESTRICT})), (restricted, frozenset({LAUNCH_BOUNDS})),
                          (_edit(b"const float *a", b"float *__restrict__ a"), both)):
        with pytest.raises(Refused, match="signature"):
            check_edited(find_kernel(TEXT, "k"), edited, other)


def test_unroll_directives_are_no_edit_of_what_follows():
    for directive in (b"#pragma unroll 4", b"#pragma nounroll", b"# pragma unroll"):
        check_edited(find_kernel(TEXT, "k"), _edit(b"\tfor (int", directive + b"\n\tfor (int"))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40), st.integers(0, len(TEXT)), st.integers(0, 30))
def test_an_edit_that_passes_left_every_byte_outside_of_the_body(new, at, length):
    """Whatever replaces whatever: the definition, cut out, leaves the same bytes. Nothing but Refused is raised."""
    edited = TEXT[:at] + new + TEXT[at + length:]
    try:
        kernel = check_edited(find_kernel(TEXT, "k"), edited)
    except Refused:
        return
    old = find_kernel(TEXT, "k")
    assert edited[:kernel.begin] == TEXT[:old.begin] and edited[kernel.end:] == TEXT[old.end:]
    assert [token.text for token in kernel.signature] == [token.text for token in old.signature]


PIECES = [b"{", b"}", b"/*", b"*/", b"//", b"\n", b"\\\n", b'"', b"'", b'R"x(', b')x"', b"#define A }", b"#if 0",
          b"#endif", b"A", b"k", b"__global__ void k(int)", b";", b"(", b")", b"template <", b">", b"<<<",
          b"??/", b"<%", b"x = 1;"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b" ".join))
def test_tokens_cover_a_text_in_order_and_nothing_else_is_raised(inner):
    text = b"__global__ void k(int n) {" + inner + b"}\nint after;"
    last = 0
    for token in lexing.tokens(text):
        assert token.begin >= last and text[token.begin:token.end] == token.text
        assert not text[last:token.begin].strip()
        last = token.end
    try:
        kernel = find_kernel(text, "k")
    except Refused:
        return
    assert kernel.end <= len(text)


@pytest.mark.skipif(not shutil.which("clang"), reason="no clang")
@pytest.mark.parametrize("inner", [b'const char *t = "}\\"}"; // } \\\n }\n', b"/* } // */ n = '}';", b"n = 1'000;",
                                   b'const char *t = R"a( } )" } )a";',
                                   b"struct { int a; } s = {3}; n = s.a;"])
def test_where_a_kernel_ends_is_where_the_compiler_ends_it(tmp_path, inner):
    """clang's own syntax tree gives the same end. Mutation: a line comment ends at a backslash."""
    text = b"void before() { }\n#define __global__ __attribute__((annotate(\"k\")))\n__global__ void k(int n) {\n" \
        + inner + b"}\nvoid after() { }\n"
    path = tmp_path / "k.cpp"
    path.write_bytes(text)
    dumped = subprocess.run(["clang", "-fsyntax-only", "-w", "-Xclang", "-ast-dump=json", "-Xclang",
                             "-ast-dump-filter=k", path], capture_output=True, check=True).stdout.decode()
    definition = json.JSONDecoder().raw_decode(dumped[dumped.index("{"):])[0]
    plain = text.replace(b"#define __global__", b"//      __global__")
    assert find_kernel(plain, "k").end == definition["range"]["end"]["offset"] + 1
