"""analytics.roofline.counted: work from counters, on made counters with known answers and on our own recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from aaco.analytics.roofline import counted, formulas
from aaco.core.tables import COUNTERS
from aaco.profiler.formats.nvidia import ncu
from tests.parsed import gather

RECORDED = Path(__file__).parents[1] / "captures" / "ncu_h200"
KINDS = ("F16", "F32", "F64")
ZEROS = {f"SQ_INSTS_VALU_{op}_{kind}": 0.0 for op in ("ADD", "MUL", "TRANS", "FMA") for kind in KINDS} | {
    f"SQ_INSTS_VALU_MFMA_MOPS_{kind}": 0.0 for kind in ("F16", "BF16", "F32", "F64", "I8", "F8")} | {
    "SQ_INSTS_VALU_INT32": 5.0, "SQ_INSTS_VALU_INT64": 0.0}


def work(arch, *kernels):
    """The work of kernels given as {counter: value}; a list of values has one per pass."""
    rows = [(number, name, value) for number, counters in enumerate(kernels) for name, values in counters.items()
            for value in (values if isinstance(values, list) else [values])]
    ids, names, values = zip(*rows, strict=True)
    table = COUNTERS.build(kernel_id=list(ids), counter=list(names), value=list(values))
    batches = table.select(["kernel_id", "counter", "value"]).to_batches()
    return counted.work(counted.read(batches, np.arange(len(kernels)), formulas.of(arch)))


def value(found, quantity, kernel=0):
    return None if quantity not in found.quantities else float(found.quantities[quantity][kernel])


def test_floating_point_operations_by_type():
    """64 lanes, a fused multiply-add is two, 512 of a matrix operation. Mutations: FMA once; MOPS x 256."""
    found = work("gfx942", ZEROS | {"SQ_INSTS_VALU_ADD_F32": 3.0, "SQ_INSTS_VALU_MUL_F32": 5.0,
                                    "SQ_INSTS_VALU_TRANS_F32": 7.0, "SQ_INSTS_VALU_FMA_F32": 11.0,
                                    "SQ_INSTS_VALU_MFMA_MOPS_F16": 13.0})
    assert value(found, "vector_f32") == 64 * (3 + 5 + 7 + 2 * 11)
    assert value(found, "matrix_f16") == 512 * 13
    assert value(found, "vector_f64") == value(found, "matrix_f8") == 0
    assert value(found, "vector_int") == 64 * 5


def test_a_batched_product_of_bf16():
    """As counted on an MI300X for 128 x (128 x 512 x 128): 2BMNK exactly."""
    found = work("gfx942", ZEROS | {"SQ_INSTS_VALU_MFMA_MOPS_BF16": 4_194_304.0})
    assert value(found, "matrix_bf16") == 2 * 128 * 128 * 512 * 128 == 2_147_483_648


@pytest.mark.parametrize(("arch", "prefix", "extra", "bytes_read"), [
    ("gfx908", "TCC_EA", {}, 64 * 90 + 32 * 10), ("gfx908", "TCC_EA0", {}, 64 * 90 + 32 * 10),
    ("gfx90a", "TCC_EA", {}, 64 * 90 + 32 * 10),
    ("gfx942", "TCC_EA0", {"TCC_BUBBLE_sum": 40.0}, 128 * 40 + 64 * 50 + 32 * 10),
    ("gfx950", "TCC_EA0", {"TCC_BUBBLE_sum": 0.0, "TCC_EA0_RDREQ_64B_sum": 20.0, "TCC_EA0_RDREQ_128B_sum": 70.0},
     32 * 10 + 64 * 20 + 128 * 70)])
def test_bytes_read(arch, prefix, extra, bytes_read):
    found = work(arch, {f"{prefix}_RDREQ_sum": 100.0, f"{prefix}_RDREQ_32B_sum": 10.0} | extra)
    assert value(found, "dram_read_bytes") == bytes_read


@pytest.mark.parametrize(("arch", "bytes_read"), [("gfx908", 2048), ("gfx942", 2048), ("gfx1100", 2048),
                                                  ("gfx950", None)])
def test_the_sum_of_the_tool_where_requests_were_not_recorded(arch, bytes_read):
    """FETCH_SIZE is in KiB; on gfx950 it is half the truth and not used. Mutation: use it there too."""
    found = work(arch, {"FETCH_SIZE": 2.0, "WRITE_SIZE": 1.0})
    assert (value(found, "dram_read_bytes"), value(found, "dram_written_bytes")) == (bytes_read, 1024)
    assert ("dram_read_bytes" in found.absent) == (bytes_read is None)


def test_requests_of_rdna():
    found = work("gfx1100", {"GL2C_EA_RDREQ_32B": 1.0, "GL2C_EA_RDREQ_64B": 2.0, "GL2C_EA_RDREQ_96B": 3.0,
                             "GL2C_EA_RDREQ_128B": 4.0, "FETCH_SIZE": 99.0})
    assert value(found, "dram_read_bytes") == 32 + 128 + 288 + 512


def test_a_rate_per_cycle_times_the_cycles():
    """As `ncu --set full` has it. Of an fp32 product of 4096^3 its two decimals are exact to 1e-6."""
    rates = {f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum.per_cycle_elapsed": 0.0 for op in ("add", "mul")}
    found = work("sm_90", rates | {"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 12_975.63,
                                   "smsp__cycles_elapsed.avg": 5_297_336.52, "lts__t_sectors.sum": 10.0})
    assert value(found, "vector_f32") == pytest.approx(2 * 68_736_253_952, rel=1e-6)
    assert value(found, "l2_bytes") == 320


def test_bytes_written():
    found = work("gfx942", {"TCC_EA0_WRREQ_sum": 10.0, "TCC_EA0_WRREQ_64B_sum": 7.0})
    assert value(found, "dram_written_bytes") == 64 * 7 + 32 * 3


def test_the_sizes_of_gfx950_must_be_counted():
    """TCC_BUBBLE reads 0 there: the older formula gives half the truth. Mutation: use it for gfx950 too."""
    found = work("gfx950", {"TCC_EA0_RDREQ_sum": 100.0, "TCC_EA0_RDREQ_32B_sum": 0.0, "TCC_BUBBLE_sum": 0.0})
    assert "dram_read_bytes" not in found.quantities
    assert "between 6,400 and 12,800 bytes" in found.absent["dram_read_bytes"]


def test_other_levels():
    kernel = {"TCC_REQ_sum": 10.0, "TCP_TOTAL_CACHE_ACCESSES_sum": 100.0, "SQ_LDS_IDX_ACTIVE": 50.0,
              "SQ_LDS_BANK_CONFLICT": 20.0}
    found = {arch: work(arch, kernel) for arch in ("gfx908", "gfx90a", "gfx942")}
    assert [value(one, "l2_bytes") for one in found.values()] == [640, 1280, 1280]
    assert [value(one, "l1_bytes") for one in found.values()] == [6400, 6400, 12800]
    assert all(value(one, "lds_bytes") == (50 - 20) * 4 * 32 for one in found.values())


def test_channels_are_summed_where_no_total_is_given():
    found = work("gfx942", {"TCC_REQ[0]": 3.0, "TCC_REQ[1]": 4.0}, {"TCC_REQ[0]": 5.0, "TCC_REQ[1]": 0.0})
    assert found.quantities["l2_bytes"].tolist() == [7 * 128, 5 * 128]
    assert value(work("gfx942", {"TCC_REQ[0]": [3.0, 3.0], "TCC_REQ[1]": 4.0}), "l2_bytes") == 7 * 128  # of two passes
    total = work("gfx942", {"TCC_REQ[0]": 3.0, "TCC_REQ_sum": 9.0})
    assert value(total, "l2_bytes") == 9 * 128


def test_what_was_not_recorded_is_absent_with_its_name():
    found = work("gfx942", {"TCC_EA0_RDREQ_sum": 1.0})
    assert found.absent["dram_read_bytes"] == "TCC_EA0_RDREQ_32B, TCC_BUBBLE not recorded"
    assert "SQ_INSTS_VALU_MFMA_MOPS_F16 not recorded" in found.absent["matrix_f16"]
    assert work("gfx908", {"TCC_REQ_sum": 1.0}).absent["flops"]


def test_a_counter_of_another_kernel_is_not_this_ones():
    found = work("gfx942", ZEROS, {"TCC_REQ_sum": 1.0})
    assert np.isnan(found.quantities["vector_f32"][1]) and found.quantities["vector_f32"][0] == 0
    assert np.isnan(found.quantities["l2_bytes"][0])


def test_dead_counters_are_not_used():
    """Zero on every kernel, and nothing of their block counted. Mutation: take every zero as counted."""
    dead = work("gfx942", ZEROS | {"SQ_INSTS_VALU_INT32": 0.0}, ZEROS | {"SQ_INSTS_VALU_INT32": 0.0})
    assert "vector_f32" not in dead.quantities and "not counted" in dead.absent["vector_f32"]
    alive = work("gfx942", ZEROS, ZEROS | {"SQ_INSTS_VALU_INT32": 0.0})
    assert value(alive, "vector_f32") == 0


def test_contradictions_are_told_and_nothing_is_clamped():
    """As a real capture has them: more requests of 128 bytes than requests. Mutation: clamp the part to the whole."""
    found = work("gfx942", {"TCC_EA0_RDREQ_sum": 39_563.0, "TCC_EA0_RDREQ_32B_sum": 0.0, "TCC_BUBBLE_sum": 39_816.0},
                 {"TCC_EA0_RDREQ_sum": 10.0, "TCC_EA0_RDREQ_32B_sum": 0.0, "TCC_BUBBLE_sum": 1.0})
    assert value(found, "dram_read_bytes") == 64 * (39_563 + 39_816)
    (told,) = found.contradictions
    assert (told.kernels, told.of, told.example) == (1, 2, "39,816 of 39,563")


def test_negative_work_is_absent():
    found = work("gfx942", {"SQ_LDS_IDX_ACTIVE": 5.0, "SQ_LDS_BANK_CONFLICT": 6.0})
    assert np.isnan(value(found, "lds_bytes")) and found.contradictions


def test_passes_that_disagree_are_told_and_the_first_is_used():
    found = work("gfx942", {"TCC_REQ_sum": [10.0, 11.0]}, {"TCC_REQ_sum": [10.0, 10.0]})
    assert found.quantities["l2_bytes"].tolist() == [1280, 1280]
    assert [(one.kernels, one.of) for one in found.contradictions] == [(1, 2)]


def test_matrix_work_of_a_type_that_was_not_counted():
    """An 8-bit product whose MOPS_F8 nobody recorded has not 0 operations. Mutation: leave the test out."""
    known = {name: count for name, count in ZEROS.items() if not name.endswith("F8")}
    found = work("gfx942", known | {"SQ_INSTS_MFMA": 100.0}, known | {"SQ_INSTS_MFMA": 0.0})
    assert found.unknown_matrix.tolist() == [True, False]


@pytest.fixture(scope="module")
def recorded():
    tables, facts = gather(ncu.parse(RECORDED / "roofline.csv.gz"))
    batches = tables["counters"].select(["kernel_id", "counter", "value"]).to_batches()
    ids = tables["kernels"]["kernel_id"].to_numpy()
    return counted.work(counted.read(batches, ids, formulas.of(facts.devices[0].arch)))


def test_a_product_on_an_h200(recorded):
    assert value(recorded, "matrix_bf16") == 2 * 4096**3
    assert value(recorded, "vector_f32", 1) == pytest.approx(2 * 4096**3, rel=3e-4)  # and what its epilogue does


def test_an_addition_on_an_h200(recorded):
    assert value(recorded, "dram_read_bytes", 2) == pytest.approx(2 * 512 * 2**20, rel=1e-3)
    assert value(recorded, "vector_f32", 2) == 2 * 2**27  # an FMA per element


def test_types_that_were_not_collected_are_absent(recorded):
    assert {"matrix_f16", "matrix_f8", "matrix_i8", "matrix_f64"} <= recorded.absent.keys()


def test_null_counters_and_names_are_skipped():
    table = COUNTERS.build(kernel_id=[0, None, 0], counter=["TCC_REQ_sum", "TCC_REQ_sum", None], value=[1.0, 5.0, 7.0])
    more = COUNTERS.build(kernel_id=[0], counter=["TCP_TOTAL_CACHE_ACCESSES_sum"], value=pa.nulls(1, pa.float64()))
    batches = [batch for each in (table, more) for batch in each.select(["kernel_id", "counter", "value"]).to_batches()]
    found = counted.work(counted.read(batches, np.arange(1), formulas.of("gfx942")))
    assert value(found, "l2_bytes") == 128 and "l1_bytes" not in found.quantities
