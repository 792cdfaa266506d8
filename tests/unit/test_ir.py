"""Readers of compilers' texts: what clang and opt printed, and programs whose answer is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics import compiler
from aaco.analytics.compiler import passes
from aaco.report.sections.ir import lines

HERE = Path(__file__).parents[1] / "captures/compiler"


def text(name):
    return (HERE / name).read_text()


TRITON = """#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [64], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-warps" = 4 : i32, ttg.shared = 16384 : i32, ttg.target = "hip:gfx942",
                   "ttg.threads-per-warp" = 64 : i32} {
  tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) {
    %c1024 = arith.constant 1024 : i32
    %cst = arith.constant dense<0.0> : tensor<1024xf32, #blocked>
    %pid = tt.get_program_id x : i32
    %base = arith.muli %pid, %c1024 : i32
    %all = tt.splat %base : i32 -> tensor<1024xi32, #blocked>
    %sum = scf.for %i = %c1024 to %n step %c1024 iter_args(%acc = %cst) -> (tensor<1024xf32, #blocked>)  : i32 {
      %more = "tt.reduce"(%acc) <{axis = 0 : i32}> ({
      ^bb0(%a: f32, %b: f32):
        %r = arith.addf %a, %b : f32
        tt.reduce.return %r : f32
      }) : (tensor<1024xf32, #blocked>) -> f32
      scf.yield %acc : tensor<1024xf32, #blocked>
    }
    %got = tt.call @helper(%base) : (i32) -> i32
    tt.return
  }
  tt.func private @helper(%v: i32) -> i32 {
    tt.return %v : i32
  }
}
"""
ROCMLIR = """module {
  func.func @mlir_dot(%arg0: memref<20xf32>) attributes {block_size = 256 : i32, grid_size = 1 : i32, kernel} {
    %0 = gpu.alloc() : memref<4096xi8, #gpu.address_space<workgroup>>
    return
  }
  gpu.func @known(%a: i32) workgroup(%t : memref<2x64xf32, #gpu.address_space<workgroup>>) kernel \
attributes {known_block_size = array<i32: 64, 2, 1>} {
    gpu.barrier
    gpu.return
  }
}
"""
MIGRAPHX = """module: "main"
@0 = check_context::migraphx::gpu::context -> float_type, {}, {}
x = @param:x -> float_type, {4, 5}, {5, 1}
@2 = hip::hip_copy_literal[id=main:@literal:0] -> float_type, {5, 3}, {3, 1}
@3 = gpu::code_object[symbol_name=mlir_dot_add,global=256,local=256,](x,@2) -> float_type, {4, 3}, {3, 1}
@4 = gpu::code_object[symbol_name=mlir_dot_add,global=256,local=256,](@3,@2) -> float_type, {4, 3}, {3, 1}
@5 = @return(@4)

@3 = gpu::code_object[symbol_name=mlir_dot_add](x,@2) -> float_type, {4, 3}, {3, 1}: 0.01ms, 90%
"""


def test_llvm_ir_of_a_kernel():
    """Operations are recounted by hand: every line of a body that is no label. Mutation: taking the entry block for
    one more."""
    language, (kernel,) = compiler.functions(text("scale_gfx90a.ll"))
    body = re.search(r"^define[^\n]*\n(.*?)^}", text("scale_gfx90a.ll"), re.MULTILINE | re.DOTALL)[1]
    by_hand = [line for line in body.splitlines() if line.startswith("  ")]
    assert (language, kernel.name, kernel.is_kernel) == ("llvm", "scale", True)
    assert kernel.operations.total() == len(by_hand) == 29
    assert kernel.blocks == 1 + len(re.findall(r"^\d+:", body, re.MULTILINE)) == 6
    assert kernel.workgroup == (64, 4, 1) and kernel.lds_bytes == 1024
    assert kernel.calls["llvm.fmuladd.f32"] == 1 and kernel.operations["load"] == 3


def test_a_label_of_the_first_block_is_no_further_block():
    """Mutation: counting every label as a block more."""
    _, (labelled, plain) = compiler.functions("""define i32 @f(i32 %x) {
entry:
  br label %out
out:                                              ; preds = %entry
  ret i32 %x
}
define void @g() {
  ret void
}
""")
    assert (labelled.blocks, plain.blocks) == (2, 1) and labelled.workgroup is None and labelled.lds_bytes == 0


def test_triton_ir():
    language, (add, helper) = compiler.functions(TRITON)
    assert (language, add.name, add.is_kernel, helper.is_kernel) == ("mlir", "add", True, False)
    assert add.workgroup == (256,) and add.lds_bytes == 16384 and add.blocks == 2
    assert add.operations["arith.constant"] == 2 and add.operations["tt.reduce"] == 1
    assert add.operations["scf.for"] == 1 and add.operations.total() == 12 and add.calls == {"helper": 1}
    assert helper.operations == {"tt.return": 1}


def test_rocm_mlir():
    _, (dot, known) = compiler.functions(ROCMLIR)
    assert dot.workgroup == (256,) and dot.lds_bytes is None and dot.is_kernel
    assert known.workgroup == (64, 2, 1) and known.lds_bytes == 512


def test_a_migraphx_program_ends_before_its_times():
    """Mutation: counting the report of times as instructions too."""
    language, (main,) = compiler.functions(MIGRAPHX)
    assert language == "migraphx" and main.operations["gpu::code_object"] == 2 and main.calls == {"mlir_dot_add": 2}
    assert main.operations.total() == 4 and main.workgroup is None and main.lds_bytes is None


def test_dumps_agree_with_what_llvm_itself_says_changed():
    """print-changed is LLVM's own comparison. Mutation: comparing a module's dump with the last module's."""
    ours, said = (passes.read(text(name)) for name in ("print_after_all.txt", "print_changed.txt"))
    mine = {(run.name, run.where): run.changed for run in ours if run.changed is not None}
    its = {(run.name, run.where): run.changed for run in said if run.changed is not None}
    both = mine.keys() & its.keys()
    assert len(both) >= 8 and {key: mine[key] for key in both} == {key: its[key] for key in both}
    found = passes.summed(ours)
    assert "VerifierPass" in found["ineffective"] and "PromotePass" not in found["ineffective"]
    assert {row["name"]: row["operations_removed"] for row in found["passes"]}["PromotePass"] > 5


def test_a_table_of_times():
    """Mutation: taking the table of parsing for passes."""
    found = passes.summed(passes.read(text("time_passes.txt")))
    rows = {row["name"]: row for row in found["passes"]}
    assert rows["SimplifyCFGPass"]["seconds"] == 0.0006 and "Parse IR" not in rows and "Total" not in rows
    assert found["expensive"][0] == "ModuleInlinerWrapperPass" and found["ineffective"] == []


def test_a_time_trace_has_each_moment_once():
    """The passes' own times sum to the union of their spans. Mutation: leaving inner passes in the outer's time."""
    events = [event for event in json.loads(text("time_trace.json"))["traceEvents"]
              if event["ph"] == "X" and passes._is_pass(event["name"])]
    covered = {moment for event in events for moment in range(event["ts"], event["ts"] + event["dur"])}
    found = passes.summed(passes.read(text("time_trace.json")))
    assert found["seconds"] == pytest.approx(len(covered) / 1e6, rel=1e-6)
    assert found["passes"][0]["name"] == "X86 DAG->DAG Instruction Selection"


def test_logs_of_mlir_and_migraphx():
    mlir = """===-----===
   ... Execution time report ...
===-----===
  Total Execution Time: 0.0100 seconds

  ----Wall Time----  ----Name----
    0.0060 ( 60.0%)  'func.func' Pipeline
    0.0050 ( 50.0%)    Canonicalizer
    0.0010 ( 10.0%)    CSE
    0.0000 (  0.0%)      (A) DominanceInfo
   -0.0001 ( -1.0%)  Rest
    0.0100 (100.0%)  Total
"""
    assert [(run.name, run.seconds) for run in passes.read(mlir)] == [("Canonicalizer", 0.005), ("CSE", 0.001)]
    timed = "split_single_dyn_dim: 0.012ms\ndead_code_elimination: 0.005ms\nrewrite_gelu: 334.98ms\n"
    assert passes.summed(passes.read(timed))["expensive"] == ["rewrite_gelu"]
    traced = """Module: main, Pass: eliminate_pad
@0 = pad(x) -> float_type, {4}, {1}
@1 = relu(@0) -> float_type, {4}, {1}
Pass: eliminate_pad completed in (s): 0.5
Module: main, Pass: dead_code_elimination
@0 = pad(x) -> float_type, {4}, {1}
@1 = relu(@0) -> float_type, {4}, {1}
Pass: dead_code_elimination completed in (s): 0.1
Module: main, Pass: simplify_reshapes
@0 = relu(x) -> float_type, {4}, {1}
Pass: simplify_reshapes completed in (s): 0.2
"""
    first, same, changed = passes.read(traced)
    assert (first.changed, same.changed, changed.changed) == (None, False, True) and changed.removed == 1
    assert first.seconds == 0.5


def test_dumps_of_mlir():
    log = """// -----// IR Dump After Canonicalizer (canonicalize) //----- //
func.func @f() {
  %0 = arith.constant 1 : i32
  return
}
// -----// IR Dump After CSE (cse) //----- //
func.func @f() {
  %0 = arith.constant 1 : i32
  return
}
// -----// IR Dump After Inliner (inline) //----- //
func.func @f() {
  return
}
"""
    assert [(run.name, run.changed) for run in passes.read(log)] == [("Canonicalizer", None), ("CSE", False),
                                                                     ("Inliner", True)]


def test_what_is_neither_is_nothing():
    assert [compiler.document(text) for text in ("hello\nworld", "", '{"a": 1}')] == [None, None, None]


def test_shown_on_a_terminal():
    for name in ("scale_gfx90a.ll", "print_changed.txt", "time_trace.json"):
        shown = list(lines(compiler.document(text(name)), 5))
        assert len(shown) > 4 and all(len(line) <= 80 for line in shown)


WORDS = st.sampled_from(["define void @f() {", "}", "  ret void", "1:", "module {", "tt.func @f() {",
                         "^bb0:", '"a.b"(',
                         "*** IR Dump After X on f ***", "// -----// IR Dump After C (c) //----- //", "===---===",
                         " ... Pass execution timing report ...", "  0.1 ( 1.0%)  X", "Module: m, Pass: p",
                         "@0 = f -> x", 'module: "main"', "Pass: p completed in (s): 0.1", "a: 1ms", "é\x00",
                         '{"traceEvents": ['])


@given(st.lists(st.one_of(WORDS, st.text(max_size=30)), max_size=25))
def test_no_text_breaks_the_readers(rows):
    found = compiler.document("\n".join(rows))
    if found is not None:
        json.dumps(found, allow_nan=False)
        list(lines(found, 3))
