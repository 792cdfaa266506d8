"""MIGraphX's compiled programs: what is read of them, and kernels traced to them by symbol."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaco.analytics import attribution
from aaco.analytics.attribution.sequence import lay_unnamed
from aaco.analytics.attribution.symbols import by_symbol
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.errors import BadCapture
from aaco.profiler.formats.migraphx import migraphx
from aaco.steps import make_findings
from benchmarks.ordered import imported

PROGRAM = """module: "main"
@0 = check_context::migraphx::gpu::context -> float_type, {}, {}
@1 = hip::hip_allocate_memory[shape=int8_type, {31360}, {1},id=main:scratch] -> int8_type, {31360}, {1}
x = @param:x -> float_type, {1, 4}, {4, 1} # conv1
@3 = gpu::code_object[code_object=56,symbol_name=conv_add_kernel,global=11,local=4,](x,@1) -> float_type, {4}, {1} # /m/conv1, /m/add1
@4 = gpu::code_object[code_object=56,symbol_name=pool_kernel,global=11,local=4,](@3,@1) -> float_type, {4}, {1} # /m/pool1
@5 = gpu::code_object[code_object=57,symbol_name=pool_kernel,global=11,local=4,](@4,@1) -> float_type, {4}, {1} # /m/pool2, /m/conv1
main:#output_0 = @param:main:#output_0 -> float_type, {1, 10}, {10, 1} # @output_0:y
@7 = @return(@5)
"""  # noqa: E501


def read(tmp_path, text):
    path = tmp_path / "program.txt"
    path.write_text(text)
    assert migraphx.recognises(path)
    *pieces, facts = migraphx.parse(path)
    return {piece.schema.metadata[b"aaco.table"].decode(): piece for piece in pieces}, facts


def test_a_program_is_its_instructions_on_the_device_and_the_nodes_they_compute(tmp_path):
    """A node in a comment of what launches nothing (x) is not computed there. Mutation: it is."""
    found, facts = read(tmp_path, PROGRAM)
    assert found["executed_nodes"].select(["name", "op_type", "source_nodes", "origin"]).to_pylist() == [
        {"name": "@3", "op_type": "conv_add_kernel", "source_nodes": [0, 1], "origin": "fused"},
        {"name": "@4", "op_type": "pool_kernel", "source_nodes": [2], "origin": "original"},
        {"name": "@5", "op_type": "pool_kernel", "source_nodes": [3, 0], "origin": "fused"}]
    assert found["graph_nodes"]["name"].to_pylist() == ["/m/conv1", "/m/add1", "/m/pool1", "/m/pool2"]
    assert found["graph_nodes"]["executed_as"].to_pylist() == ["@3", "@3", "@4", "@5"]
    assert facts.records == {"instruction": 7}
    assert sum(part.count for part in facts.left_out.values()) == 7 - 3


def test_times_of_the_second_listing_and_nodes_of_either(tmp_path):
    timed = PROGRAM.splitlines()[4].partition(" # ")[0] + ": 0.00948216ms, 92%"
    found, facts = read(tmp_path, PROGRAM + f"\n{timed}\nSummary:\ngpu::code_object::conv_add_kernel: 0.00948216ms / 1 "
                        "= 0.00948216ms, 92%\n")
    (row,) = found["operators"].to_pylist()
    assert (row["operator"], row["device_ns"], row["annotation"]) == ("conv_add_kernel", 9482, "/m/conv1, /m/add1")
    assert facts.left_out[migraphx.ADDED_UP].count == 1
    assert facts.left_out[migraphx.TWICE].count == 1


@pytest.mark.captures
def test_the_summary_of_bert_is_read_to_the_ns(captures: Path):
    *pieces, facts = migraphx.parse(captures / "migraphx/pr1287_bert_summary.txt")
    rows = {row["operator"]: row for row in pieces[0].to_pylist()}
    assert (rows["gpu::gemm"]["calls"], rows["gpu::gemm"]["device_ns"]) == (73, 8_738_000)
    assert (rows["load"]["kernels"], rows["load"]["host_ns"]) == (0, 137_222)
    assert facts.records == {"summary": 21}


def test_a_text_without_a_program_is_refused(tmp_path):
    path = tmp_path / "cut.txt"
    path.write_text('module: "main"\n@0 = ')
    with pytest.raises(BadCapture, match="no instruction"):
        list(migraphx.parse(path))


def kernels(*names):
    return tables.KERNELS.build(kernel_id=range(len(names)), kernel_name=names, dur_ns=[100] * len(names),
                                device_id=[0] * len(names))


def laid(tmp_path, *names):
    program, _ = read(tmp_path, PROGRAM)
    found = by_symbol(kernels(*names), program["executed_nodes"])
    mapped = attribution.map_nodes(found.kernels, found.executed_nodes, program["graph_nodes"], found.methods)
    assert pc.sum(mapped["share_ns"]).as_py() == 100 * len(names)
    return [*zip(found.kernels["executed_node"].to_pylist(), found.methods, strict=True)], mapped.to_pylist()


def test_whole_rounds_tell_instructions_of_one_symbol_apart(tmp_path):
    """Mutation: without looking at the order."""
    two = ["conv_add_kernel.kd", "pool_kernel.kd", "pool_kernel.kd"] * 2
    found, mapped = laid(tmp_path, *two, "memcpy")
    assert found == [("@3", "exact_symbol"), ("@4", "exact_sequence"), ("@5", "exact_sequence")] * 2 + [(None, None)]
    assert [row["method"] for row in mapped if row["kernel_id"] == 1] == ["exact_sequence"]


def test_otherwise_their_time_is_shared_by_the_nodes_of_all(tmp_path):
    found, mapped = laid(tmp_path, "pool_kernel", "conv_add_kernel", "pool_kernel")
    assert [method for _, method in found] == ["name", "exact_symbol", "name"]
    assert {row["node_id"] for row in mapped if row["kernel_id"] == 0} == {0, 2, 3}


def test_a_node_that_several_instructions_carry_counts_for_less_in_each(tmp_path):
    """conv1 is carried by @3 and @5, pool2 by @5 alone: 1/2 to 1. Mutation: alike."""
    _, mapped = laid(tmp_path, "conv_add_kernel", "pool_kernel", "pool_kernel")
    assert {row["node_id"]: row["share_ns"] for row in mapped if row["kernel_id"] == 2} == {3: 67, 0: 33}


def test_a_program_imported_with_a_trace_names_its_kernels(tmp_path):
    (tmp_path / "compiled.txt").write_text(PROGRAM)
    header = ("Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
              "Start_Timestamp,End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,"
              "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z")
    rows = [f"KERNEL_DISPATCH,Agent 4,1,0,9,{at},7,{name},{at},{1000 * at},{1000 * at + 500},0,0,8,0,16,64,1,1,64,1,1"
            for at, name in enumerate(["conv_add_kernel", "pool_kernel", "pool_kernel"] * 3, 1)]
    (tmp_path / "kernel_trace.csv").write_text("\n".join([header, *rows]) + "\n")
    session = imported([tmp_path / "compiled.txt", tmp_path / "kernel_trace.csv"], tmp_path / "sessions")
    make_findings.make_one(session, "attribution", Analysis())
    operators = session.table("operators")
    assert pc.sum(operators["device_ns"]).as_py() == 9 * 500
    assert operators["method"].to_pylist().count("unattributed") == 0
    assert set(operators["module"].to_pylist()) == {"m"}
    assert set(session.table("op_to_kernel_map")["method"].to_pylist()) == {"modelled", "exact_sequence"}


LIBRARIES = """module: "main"
@0 = check_context::migraphx::gpu::context -> float_type, {}, {}
@1 = gpu::code_object[symbol_name=conv_kernel,](x) -> float_type, {4}, {1} # /m/conv1
@2 = gpu::gemm[alpha=1](@1) -> float_type, {4}, {1} # /m/fc1
@3 = gpu::code_object[symbol_name=softmax_kernel,](@2) -> float_type, {4}, {1} # /m/softmax
@4 = gpu::convolution[op={}](@3) -> float_type, {4}, {1} # /m/conv2
@5 = gpu::gemm[alpha=1](@4) -> float_type, {4}, {1} # /m/fc2
"""
GEMM, CONV = "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32", "miopenSp3AsmConv_v21_1_2_fp16"


def laid_by_order(tmp_path, *names, text=LIBRARIES):
    program, _ = read(tmp_path, text)
    named = by_symbol(kernels(*names), program["executed_nodes"])
    found = lay_unnamed(named.kernels, named.methods, program["executed_nodes"])
    mapped = attribution.map_nodes(found.kernels, named.executed_nodes, program["graph_nodes"], found.methods,
                                   found.confidence)
    assert pc.sum(mapped["share_ns"]).as_py() == 100 * len(names)
    assert {*found.confidence} <= {*mapped["confidence"].to_pylist()}
    return list(zip(found.kernels["executed_node"].to_pylist(), found.methods, found.confidence, strict=True))


def test_kernels_of_libraries_are_laid_by_their_order(tmp_path):
    """Between those whose symbols are known, around the program's end too. Mutations: the round's end forgotten; any
    family at any node."""
    one = ("conv_kernel", GEMM, "softmax_kernel", CONV, GEMM)
    found = laid_by_order(tmp_path, GEMM, *one, *one)
    assert [node for node, _, _ in found] == [None, *["@1", "@2", "@3", "@4", "@5"] * 2]  # nothing is before @1
    assert [method == "sequence" for _, method, _ in found[1:6]] == [False, True, False, True, True]
    assert all(probability > 0.9 for _, method, probability in found if method == "sequence")
    rotated = laid_by_order(tmp_path, "softmax_kernel", CONV, GEMM, "conv_kernel", CONV, "softmax_kernel")
    assert [node for node, _, _ in rotated][:4] == ["@3", "@4", "@5", "@1"]
    assert rotated[4] == (None, None, None)  # a convolution where the program has a product


def test_instructions_with_kernels_of_their_own_take_no_others(tmp_path):
    """Two of one symbol are at no certain place. Mutation: they are free for the product of a library."""
    text = LIBRARIES.replace("gpu::code_object[symbol_name=softmax_kernel,]", "gpu::code_object[symbol_name=mlir_dot,]")
    text = text.replace("gpu::convolution[op={}]", "gpu::code_object[symbol_name=mlir_dot,]")
    found = laid_by_order(tmp_path, "conv_kernel", "mlir_dot", GEMM, "conv_kernel", text=text)
    assert found[2][1] == "sequence" and found[2][2] > 0.45  # @2 or @5


def test_without_a_symbol_nothing_is_laid(tmp_path):
    assert laid_by_order(tmp_path, GEMM, CONV, GEMM) == [(None, None, None)] * 3


def test_an_instruction_of_another_program_lends_no_names(tmp_path):
    """`compile` and `perf` may come out differently: then a number alone does not make it the same instruction.

    Broken by: taking the nodes by the instruction's number.
    """
    path = tmp_path / "both.txt"
    path.write_text('module: "main"\n'
                    "@0 = gpu::code_object[symbol_name=conv_kernel,](x) -> float_type, {1}, {1} # Conv_1\n"
                    "@1 = gpu::code_object[symbol_name=add_kernel,](@0) -> float_type, {1}, {1} # Add_2\n"
                    "@0 = gpu::code_object[symbol_name=conv_kernel,](x) -> float_type, {1}, {1}: 0.5ms, 50%\n"
                    "@1 = gpu::code_object[symbol_name=mul_kernel,](@0) -> float_type, {1}, {1}: 0.5ms, 50%\n")
    *pieces, facts = migraphx.parse(path)
    operators = next(one for one in pieces if isinstance(one, pa.Table) and "operator_id" in one.schema.names)
    assert facts.problems == ("1 instructions differ from those printed before: the program was compiled again",)
    assert operators["operator"].to_pylist() == ["conv_kernel", "mul_kernel"]
    assert operators["annotation"].to_pylist() == ["Conv_1", None]
