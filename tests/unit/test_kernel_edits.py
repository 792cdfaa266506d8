"""The rules' edits: what each changes, what stands against it, and that nothing else is touched."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.core.candidate import Inapplicable
from aaco.core.errors import UsageError
from aaco.optimize.kernels import edits, guards
from aaco.optimize.kernels.edit_proof import check_edited
from aaco.optimize.kernels.situation import KernelSituation, PointerTarget, read_situation
from aaco.optimize.kernels.source import RESTRICT, find_kernel, read_source
from aaco.optimize.kernels.variants import Proposal, Refused
from aaco.replay.documents import (
    ArgumentPlace,
    CapturedCode,
    CapturedFrom,
    CaptureDocument,
    CapturedRegion,
    KernelLaunch,
)

pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
ROOT = Path(__file__).parents[2]
HEAD = b"__global__ void k(const float *in, float *out, int n) {\n"
INDEX = b"int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
ROWS = b"for (int i = threadIdx.x; i < n; i += 128)\n out[blockIdx.x * n + i] = 2 * in[blockIdx.x * n + i] + in[i];\n"


def situation(body: bytes, head: bytes = HEAD, before: bytes = b"", **how) -> KernelSituation:
    kernel = find_kernel(before + head + body + b"}\n", "k")
    pointers = [parameter.name for parameter in kernel.parameters if parameter.is_pointer]
    places = {name: PointerTarget(at << 20, at << 20, 1 << 16) for at, name in enumerate(pointers, 1)}
    facts = {"vendor": "NVIDIA", "arch": "sm_90", "grid": (64, 1, 1), "blocks": ((128, 1, 1),), "dynamic_bytes": 0,
             "integers": {b"n": 256}, "targets": places}
    return KernelSituation(kernel, **facts | how)


def offers(rule: str, *args, **how) -> tuple[list[Proposal], list[str]]:
    found = list(edits.rule_proposals(situation(*args, **how)))
    names = {"compiler_options": ("maxrreg", "ptxas")}.get(rule, (rule,))
    why = [one.why for one in found if isinstance(one, Inapplicable)
           and any(one.name.startswith(name) for name in (*names, *{"shared_padding": ["padding"],
                                                                    "vector_loads": ["vectors"]}.get(rule, [])))]
    return [one for one in found if isinstance(one, Proposal) and one.proposer == rule], why


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_each_loop_gets_each_factor_on_a_line_of_its_own(newline):
    body = b"  for (int j = 0; j < n; j++)\n    out[j] = 0;\nif (n) for (;n;) n--;\n#pragma unroll 2\nwhile (n) n--;\n"
    proposals, why = offers("unroll", body.replace(b"\n", newline), HEAD.replace(b"\n", newline))
    assert not why and len(proposals) == 6 + 6 + 6  # one of the third is there already, and can be left out
    assert b"  #pragma unroll 4" + newline + b"  for (int j" in proposals[3].text
    assert b"if (n) " + newline + b"#pragma unroll 8" + newline + b"for (;n;)" in proposals[11].text
    assert all(proposal.text.count(b"#pragma") == 2 - (proposal.name.endswith("line 6")) for proposal in proposals[:-1])
    assert all(proposal.text.count(b"\n") == proposal.text.count(newline) + (newline != b"\n")
               for proposal in proposals)
    assert proposals[-1].name == "no pragma of the loop at line 6"
    assert proposals[-1].text == proposals[-2].text.replace(b"#pragma unroll 8" + newline, b"")
    amd, _ = offers("unroll", body, vendor="AMD")
    assert [one.name for one in amd if one.name.startswith("nounroll")] == [
        f"nounroll of the loop at line {line}" for line in (2, 4, 6)]


@pytest.mark.parametrize(("body", "why"), [
    (b"for (;;) { n--; if (n) break; }", "no condition"),
    (b"for (int j = 0;; j++) { if (n) break; }", "no condition"),
    (b'for (;n;) asm volatile("L: bra L;");', "asm in it may hold labels"),
    (b"for (;n;) STEP;", "asm in it may hold labels"),
    (b"for (;n;) { if (n) goto end; } end: ;", "goto enters or leaves"),
])
def test_loops_that_are_not_unrolled_say_why(body, why):
    """Mutation: macros are not looked into."""
    proposals, reasons = offers("unroll", body, before=b'#define STEP asm("L: bra L;")\n')
    assert not proposals and why in reasons[0]


def test_launch_bounds_are_of_the_largest_block():
    proposals, _ = offers("launch_bounds", INDEX, blocks=((128, 1, 1), (32, 8, 1)))
    assert b"__global__ __launch_bounds__(256, 2) void k(" in proposals[2].text
    assert [proposal.name for proposal in proposals][:2] == ["__launch_bounds__(256)", "__launch_bounds__(256, 1)"]
    _, why = offers("launch_bounds", INDEX, b"__global__ void __launch_bounds__(64) k(float *out) {\n")
    assert why == ["its signature has launch bounds already"]


def test_restrict_is_on_every_pointer_that_has_it_not():
    (proposal,), _ = offers("restrict", INDEX, b"__global__ void k(const float *__restrict__ a, float* out, int n) {\n")
    assert b"(const float *__restrict__ a, float* __restrict__  out, int n)" in proposal.text


@pytest.mark.parametrize(("head", "body", "how", "why"), [
    (HEAD, b"", {"targets": {b"in": PointerTarget(4096, 4096, 512),
                             b"out": PointerTarget(4224, 4096, 512)}}, "in and out lie in one allocation"),
    (HEAD, b"", {"targets": {b"in": PointerTarget(4096, 4096, 64)}}, "out points into no captured allocation"),
    (HEAD, b"", {"no_arguments": "the capture does not say"}, "the capture does not say"),
    (HEAD, b"volatile float *v = out;", {}, "volatile says that others write"),
    (HEAD, b'asm("");', {}, "asm may reach memory"),
    (b"__global__ void k(Node *list, float *out) {\n", b"", {}, "list points to Node, in which there may be further"),
    (b"__global__ void k(int n) {\n", b"", {}, "it has no pointers"),
])
def test_overlap_that_is_not_excluded_is_a_reason(head, body, how, why):
    """Mutations: addresses are compared instead of allocations; pointers to structures pass."""
    proposals, reasons = offers("restrict", body, head, **how)
    assert not proposals and why in reasons[0]


def test_blocks_divide_the_captured_threads():
    proposals, _ = offers("block_size", INDEX + b"if (i < n) out[i] = in[i];", grid=(6, 1, 1))
    assert [(proposal.block, proposal.grid) for proposal in proposals] == [((64, 1, 1), (12, 1, 1)),
                                                                         ((256, 1, 1), (3, 1, 1))]
    assert offers("block_size", b"for (" + INDEX[:-1] + b" i < n; i += gridDim.x * blockDim.x) out[i] = 1;")[0]


@pytest.mark.parametrize(("body", "how", "why"), [
    (b"int i = blockIdx.x * 128 + threadIdx.x;", {}, "reads blockIdx otherwise"),
    (INDEX + b"out[threadIdx.x] = i;", {}, "line 3 reads threadIdx otherwise"),
    (b"int i = 2 * blockIdx.x * blockDim.x + threadIdx.x;", {}, "reads blockIdx otherwise"),
    (b"int i = blockIdx.x * blockDim.x + threadIdx.x * 2;", {}, "reads blockIdx otherwise"),
    (INDEX + b"__shared__ float s[128];", {}, "shared memory is the block's"),
    (INDEX + b"__syncthreads();", {}, "__syncthreads makes the threads"),
    (INDEX + b"wait();", {}, "__syncthreads makes the threads"),
    (INDEX + b"out[i] = __shfl_down_sync(~0u, 1, 1);", {}, "__shfl_down_sync depends on which threads"),
    (INDEX + b'asm("");', {}, "inline assembly"),
    (INDEX + b"out[i] = LANE;", {}, "a function or macro that it uses reads a thread's place"),
    (b"out[0] = 1;", {}, "do not read their place"),
    (INDEX, {"grid": (8, 2, 1)}, "more than one dimension"),
    (INDEX, {"dynamic_bytes": 64}, "dynamic shared memory"),
])
def test_kernels_that_depend_on_their_block_keep_it(body, how, why):
    """Mutations: a barrier in a called function is not seen; any sum with threadIdx passes."""
    before = b"#define LANE threadIdx.x % 32\n__device__ void wait() { __syncthreads(); }\n"
    proposals, reasons = offers("block_size", body, before=before, **how)
    assert not proposals and why in reasons[0].replace("line 5", "line 3")


def test_options_leave_arithmetic_as_it_is():
    proposals, why = offers("compiler_options", INDEX)
    assert not why and {proposal.options[0] for proposal in proposals} >= {"-maxrregcount=32", "-Xptxas"}
    assert not any("fast" in option or "fmad" in option for proposal in proposals for option in proposal.options)
    assert offers("compiler_options", INDEX, options=("-maxrregcount=40", "-Xptxas", "-O1"))[1] == [
        "the build limits them already", "the build has options for ptxas of its own"]
    assert "is recursive" in offers("compiler_options", b"out[0] = f(n);",
                                    before=b"__device__ int f(int n) { return n ? g(n) : 0; }\n"
                                           b"__device__ int g(int n) { return f(n - 1); }\n")[1][0]
    assert {proposal.options for proposal in offers("compiler_options", INDEX, vendor="AMD")[0]} == {
        ("-O1",), ("-O2",), ("-Os",)}


TILE = b"__shared__ float t[TILE][32];\nt[threadIdx.y][threadIdx.x] = in[0];\nout[0] = t[threadIdx.x][threadIdx.y];\n"
SIZE = b"#define TILE 32\n"


def test_a_shared_array_gets_a_column():
    (proposal,), _ = offers("shared_padding", TILE, before=SIZE)
    assert b"t[TILE][32 + 1];" in proposal.text


@pytest.mark.parametrize(("body", "why"), [
    (TILE.replace(b"32", b"33"), "no multiple of 32"),
    (TILE.replace(b"TILE", b"n"), "not a plain number"),
    (TILE.replace(b"TILE", b"384"), "more than the 49,152"),
    (TILE.replace(b"float t", b"double t"), "aligned to more than 4 bytes"),
    (TILE + b"float *p = t[1];", "so as a pointer"),
    (TILE + b"float *p = &t[1][2];", "takes its address or size"),
    (TILE + b"f(t);", "so as a pointer"),
    (TILE + b"out[1] = t[0][n];", "indexes its first row"),
    (TILE + b'asm("");', "inline assembly"),
])
def test_an_array_whose_layout_is_used_keeps_it(body, why):
    proposals, reasons = offers("shared_padding", body, before=SIZE)
    assert not proposals and why in reasons[0]


@pytest.mark.parametrize(("body", "how", "why"), [
    (ROWS.replace(b"i += 128", b"i += 64"), {}, "its step 64 is not known"),
    (ROWS.replace(b"threadIdx.x;", b"0;"), {}, "not of the form"),
    (ROWS, {"blocks": ((128, 1, 1), (64, 1, 1))}, "its step 128 is not known"),
    (ROWS, {"blocks": ((128, 2, 1),)}, "more than one dimension"),
    (ROWS.replace(b"in[i]", b"i"), {}, "i is used for more than an index"),
    (ROWS.replace(b"in[i]", b"in[i + 1]"), {}, "an index of in is not i"),
    (ROWS.replace(b"in[i]", b"in[2 * i]"), {}, "more than products and sums"),
    (ROWS.replace(b"in[i]", b"in[f(n) + i]"), {}, "more than products and sums"),
    (ROWS.replace(b"+ i] =", b"+ i] +="), {}, "not one assignment"),
    (ROWS.replace(b"in[i];", b"n++;"), {}, "not one assignment"),
    (ROWS.replace(b"in[i]", b"atomicAdd(out, 1.0f)"), {}, "atomicAdd must keep its order"),
    (ROWS.replace(b"in[i]", b"wait()"), {}, "__syncthreads makes threads wait"),
    (ROWS + b"out[0] = 1;", {}, "out is used elsewhere"),
    (b"n = 3;" + ROWS, {}, "its bound n may change"),
    (ROWS, {"integers": {b"n": 255}}, "its bound n was 255, no multiple of 4"),
    (ROWS, {"integers": {}}, "no number that the capture holds"),
    (ROWS, {"targets": {b"in": PointerTarget(4100, 4096, 64), b"out": PointerTarget(0, 0, 9)}},
     "in was at 0x1004, which is no multiple of 16"),
    (b"volatile int v;" + ROWS, {}, "volatile says"),
    (ROWS.replace(b"\n out", b"{ n; out").replace(b"[i];", b"[i]; }"), {}, "more than one statement"),
    (b"__shared__ double in[128];" + ROWS, {}, "what in points to is not known"),
    (b"double x, out[8];" + ROWS.replace(b"\n", b""), {}, "out is used elsewhere"),
    (b"{ int n = 3; }" + ROWS, {}, "its bound n may change"),
])
def test_loops_that_are_not_proved_to_be_the_same_in_vectors_say_why(body, how, why):
    """Mutations of vector_loads: a step that is not the block; an index beside the variable; the target read again."""
    before = b"__device__ float wait() { __syncthreads(); return 1; }\n"
    proposals, reasons = offers("vector_loads", body, before=before, **how)
    assert not proposals and why in reasons[0], reasons


HARNESS = r"""
#include <cstdio>
#include <cstddef>
#include <cstring>
struct alignas(16) float4 { float x, y, z, w; };
struct index3 { unsigned x, y, z; };
static index3 threadIdx, blockIdx, blockDim = {128, 1, 1};
static int vectors;
#define __global__ static
namespace before {
%s
}
namespace after {
%s
}
int main()
{
	alignas(16) static float in[4096], out[2][4096];
	for (int at = 0; at < 4096; at++)
		in[at] = at * 0.37f - 5;
	for (int n = 0; n < 300; n += n < 40 ? 1 : 37)
		for (int shift = 0; shift < 5; shift++)
			for (int other = 0; other < 5; other++) {
				memset(out, 0xff, sizeof out);
				for (blockIdx.x = 0; blockIdx.x < 3; blockIdx.x++)
					for (threadIdx.x = 0; threadIdx.x < 128; threadIdx.x++) {
						before::k(in + shift, out[0] + other, n);
						after::k(in + shift, out[1] + other, n);
					}
				if (memcmp(out[0], out[1], sizeof out[0]))
					return printf("n %%d, shift %%d, other %%d\n", n, shift, other), 1;
			}
	return printf("%%d", vectors), 0;
}
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_vectors_compute_the_same_at_every_size_and_alignment(tmp_path):
    """On the host, a thread at a time: 3 blocks, 46 sizes, 25 alignments; nothing beyond the bound is written.

    Mutations of vector_loads: no question for alignment or for the bound; the step of the vectors not times 4.
    """
    (proposal,), _ = offers("vector_loads", ROWS)
    counted = proposal.text.replace(b"float4 vector_result;", b"float4 vector_result; vectors++;")
    assert counted != proposal.text
    source, program = tmp_path / "k.cpp", tmp_path / "k"
    source.write_text(HARNESS % ((HEAD + ROWS + b"}").decode(), counted.decode()))
    subprocess.run(["g++", "-O0", "-fsanitize=alignment", "-fno-sanitize-recover=all", "-w", source, "-o", program],
                   check=True)
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout) > 1000  # the new form ran at all


def _document(**how) -> CaptureDocument:
    launch = {"symbol": "k", "number": 0, "grid": (256, 1, 1), "grid_unit": "work-items", "block": (128, 1, 1),
              "dynamic_lds_bytes": 0, "arguments": (b"\0\x10\0\0\0\0\0\0" b"\0\x20\0\0\0\0\0\0" b"\x2c\x01\0\0").hex(),
              "layout": [ArgumentPlace(offset=0, size=8), ArgumentPlace(offset=8, size=8),
                         ArgumentPlace(offset=16, size=4)], "passed_as": "buffer"} | how
    return CaptureDocument(
        captured_from=CapturedFrom(vendor="NVIDIA", device="d", isa="sm_90", granule_bytes=1), code=CapturedCode(
            kind="cubin", bytes=1), launch=KernelLaunch(**launch),
        regions=[CapturedRegion(base=4096, size=256, role="device"), CapturedRegion(base=8192, size=64, role="device")])


def test_a_situation_is_read_from_a_capture():
    read = read_situation(situation(INDEX).kernel, _document(), other_blocks=((64, 1, 1),))
    assert (read.grid, read.blocks, read.integers) == ((2, 1, 1), ((128, 1, 1), (64, 1, 1)), {b"n": 300})
    assert read.targets[b"in"].base == 4096 and read.targets[b"out"].size == 64
    for layout, why in ((None, "does not say where"), ([ArgumentPlace(offset=0, size=8)], "has 1 arguments and the "
                                                                                          "source 3 parameters")):
        assert why in read_situation(situation(INDEX).kernel, _document(layout=layout)).no_arguments


def test_a_rule_that_changes_more_than_it_may_is_stopped(monkeypatch):
    """Mutation: the edits of rules are not checked."""
    monkeypatch.setattr(edits.restrict, "PERMITS", frozenset())
    with pytest.raises(Refused, match="signature"):
        list(edits.rule_proposals(situation(INDEX)))


def test_only_rules_may_add_to_a_signature():
    assert edits.permits("restrict") == {RESTRICT} and edits.permits("unroll") == frozenset()
    assert edits.permits("command") == edits.permits("os") == frozenset()


@pytest.mark.parametrize("path", sorted((ROOT / "native/testbeds").glob("*.hip.cpp")), ids=lambda path: path.name)
def test_every_edit_of_every_testbed_passes_the_proof(path):
    text, headers = read_source(path)
    kernel = find_kernel(text, path.name.partition(".")[0], headers)
    assert "testbed.h" in headers and (b"__syncthreads" in guards.reached(kernel)) == bool(
        {b"across", b"__syncthreads"} & kernel.words)
    proposals = [one for one in edits.rule_proposals(replace(situation(INDEX), kernel=kernel))
                 if isinstance(one, Proposal)]
    assert len(proposals) > 5
    for proposal in proposals:
        check_edited(kernel, proposal.text, edits.permits(proposal.proposer))


def test_a_source_that_is_not_there():
    with pytest.raises(UsageError, match=r"no\.cu: No such file"):
        read_source(Path("no.cu"))
