"""Work from counters: bytes of a copy of known size, operations of products of known size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.roofline import counted, formulas
from aaco.analytics.roofline.counted import Work
from aaco.analytics.roofline.devices.ceilings import Identity, theoretical
from aaco.analytics.roofline.measured import measured
from aaco.analytics.roofline.occupancy import Kernel as Needs
from aaco.analytics.roofline.occupancy import occupancy
from aaco.analytics.roofline.placement import Kernels, place
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.code_object import assembly
from aaco.profiler.formats.code_object.code_object import UNIFIED
from aaco.profiler.formats.nvidia import ncu
from aaco.profiler.formats.rocprof_compute import rocprof_compute
from benchmarks.claims import Claim

COPIED = 8_388_608  # bytes that vcopy reads and writes: 1,048,576 doubles
PRODUCT = 2 * 4096**3
ADDED = 2 * 512 * 2**20  # bytes that the addition of two tensors reads
MOPS_OF_A_PRODUCT = 4_194_304  # SQ_INSTS_VALU_MFMA_MOPS_BF16, as an MI300X counted 128 x (128 x 512 x 128)


def claims(captures: Path) -> list[Claim]:
    """Every claim, on those captures that are there."""
    return [*_copies(captures / "rocprof-compute"), _batched_product(), *_h200(captures / "h200" / "ncu"),
            *_occupancy(captures),
            *_ceilings(sorted(captures.glob("rocprof-compute/**/pmc_perf.csv")), rocprof_compute, "rocprof-compute"),
            *_ceilings(sorted(captures.glob("h200/ncu/ncu_[!ms]*.csv*")), ncu, "ncu")]


def _copies(folder: Path) -> Iterator[Claim]:
    for path in sorted(folder.glob("vcopy_*/pmc_perf.csv")):
        where = path.parent.name.removeprefix("vcopy_")
        found, arch = _work(rocprof_compute, path)
        name, bar = f"bytes that vcopy reads on {where} ({arch})", "within 0.3 % of 8,388,608"
        if formulas.READ not in found.quantities:
            yield Claim(name, "absent: sizes not counted", found.absent[formulas.READ][:60], arch == "gfx950")
            continue
        read, written = (found.quantities[each] for each in (formulas.READ, formulas.WRITTEN))
        yield Claim(name, bar, _off(read, COPIED), bool((np.abs(read / COPIED - 1) < 0.003).all()))
        yield Claim(f"bytes that vcopy writes on {where}, first launch", "8,388,608", f"{written[0]:,.0f}",
                    written[0] == COPIED)
        flops = [values for name, values in found.quantities.items() if name in FLOATS]
        if flops:
            total = np.sum(flops)
            yield Claim(f"floating-point operations of vcopy on {where}", "0", f"{total:,.0f}", not total)


FLOATS = {f"{unit}_{kind}" for unit in ("vector", "matrix") for kind in formulas.FLOATS}


def _batched_product() -> Claim:
    (formula,) = (one for one in formulas.AMD["gfx942"].quantities if one.quantity == "matrix_bf16")
    found = MOPS_OF_A_PRODUCT * formula.weights["SQ_INSTS_VALU_MFMA_MOPS_BF16"]
    truth = 2 * 128 * 128 * 512 * 128
    name = "operations of a batched bf16 product on MI300X"
    return Claim(name, f"2BMNK = {truth:,}", f"{found:,.0f}", found == truth)


def _h200(folder: Path) -> Iterator[Claim]:
    path = folder / "ncu_roofline.csv"
    if not path.is_file():
        return
    found, _ = _work(ncu, path)
    product, sums = found.quantities["matrix_bf16"][0], found.quantities["vector_f32"][1]
    read = found.quantities[formulas.READ][2:3]
    yield Claim("operations of a bf16 product of 4096^3 on H200", f"{PRODUCT:,}", f"{product:,.0f}", product == PRODUCT)
    yield Claim("operations of an fp32 product of 4096^3 on H200", "within 0.1 %", _off(np.array([sums]), PRODUCT),
                abs(sums / PRODUCT - 1) < 1e-3)
    yield Claim("bytes read by an addition of 2 x 512 MiB on H200", "within 0.1 %", _off(read, ADDED),
                bool((np.abs(read / ADDED - 1) < 1e-3).all()))


def _occupancy(captures: Path) -> Iterator[Claim]:
    """Against what compilers and profilers print of the same kernels."""
    texts = sorted((captures / "compiled_here").glob("**/*.amdgcn"))
    same = 0
    for path in texts:
        (kernel,), functions = (found := assembly.read(path))[0].kernels, found[1]
        total = {"total": kernel.vgpr} if found[0].arch in UNIFIED else {"vgpr": kernel.vgpr, "agpr": kernel.agpr}
        needs = Needs(kernel.wave_size, sgpr=kernel.sgpr, lds_bytes=kernel.lds_bytes,
                      workgroup_size=kernel.workgroup_size, **total)
        same += occupancy(found[0].arch, needs).waves_per_simd == functions[kernel.name].occupancy
    if texts:
        yield Claim("occupancy as LLVM prints it", "every kernel", f"{same} of {len(texts)}", same == len(texts))
    agree = kernels = 0
    for path in sorted(captures.glob("h200/ncu/ncu_[or]*.csv*")):
        capture = _Capture.of(ncu, path)
        counters = pa.Table.from_batches(capture.counters)
        counters = counters.set_column(1, "counter", counters["counter"].cast(pa.string()))
        said = {name: dict(zip(rows["kernel_id"].to_pylist(), rows["value"].to_pylist(), strict=True))
                for name in (CONFIG, LIMIT)
                for rows in [counters.filter(pc.equal(counters["counter"], name))]}
        for row in capture.kernels.to_pylist():
            size = row["block_x"] * row["block_y"] * row["block_z"]
            needs = Needs(vgpr=row["vgpr"], lds_bytes=row["lds_bytes"], workgroup_size=size)
            found_pct = occupancy("sm_90", needs, int(said[CONFIG][row["kernel_id"]])).pct
            agree += abs((found_pct or 0) - said[LIMIT][row["kernel_id"]]) < 0.01
            kernels += 1
    if kernels:
        yield Claim("theoretical occupancy as Nsight Compute has it", "every kernel", f"{agree} of {kernels}",
                    agree == kernels)


CONFIG, LIMIT = "launch__shared_mem_config_size", "sm__maximum_warps_per_active_cycle_pct"


def _ceilings(paths: Sequence[Path], parser: ModuleType, tool: str) -> Iterator[Claim]:
    """Nothing that is printed lies above a theoretical ceiling; what does is told, with the counters that say so."""
    kernels = placed = above = told = 0
    for path in paths:
        capture = _Capture.of(parser, path)
        (device, *_) = capture.facts.devices
        identity = Identity(device.arch, device.compute_units, device.name, device.vram_bytes, capture.device_facts)
        done = capture.work()
        if done is not None:
            table, impossible = place(capture.columns(), done, theoretical(identity), measured(identity.facts))
            shares = [table[name].to_numpy(zero_copy_only=False).astype(float) for name in SHARES]
            kernels, placed = kernels + table.num_rows, placed + int(np.isfinite(shares[-1]).sum())
            above += sum(int((np.nan_to_num(values) > 1).sum()) for values in shares)
            told += sum(one.kernels for one in impossible)
    if kernels:
        yield Claim(f"values above a theoretical peak, {tool}", "0 printed", f"{above} printed, {told} told as errors; "
                    f"{placed} of {kernels} kernels placed, {len(paths)} captures", not above)


SHARES = ("compute_share", "dram_share", "l2_share", "l1_share", "lds_share", "roof_share")


def _work(parser: ModuleType, path: Path) -> tuple[Work, str | None]:
    """The work of every kernel of a capture, and its device's architecture."""
    capture = _Capture.of(parser, path)
    done = capture.work()
    assert done is not None
    return done, capture.facts.devices[0].arch


class _Capture(Struct, frozen=True):
    kernels: pa.Table
    counters: list[pa.RecordBatch]
    device_facts: dict[str, float]
    facts: CaptureFacts

    @classmethod
    def of(cls, parser: ModuleType, path: Path) -> _Capture:
        *pieces, facts = parser.parse(path)
        tables: dict[bytes, list[pa.Table]] = {}
        for piece in pieces:
            tables.setdefault(piece.schema.metadata[b"aaco.table"], []).append(piece)
        kernels = pa.concat_tables(tables[b"kernels"]).unify_dictionaries().combine_chunks()
        said = {row["name"]: row["value"] for table in tables.get(b"device_facts", ()) for row in table.to_pylist()
                if row["value"] is not None}
        batches = [batch for table in tables.get(b"counters", ())
                   for batch in table.select(["kernel_id", "counter", "value"]).to_batches()]
        return cls(kernels, batches, said, facts)

    def work(self) -> Work | None:
        """The work of every kernel; None where nothing is known of the architecture."""
        wanted = formulas.of(self.facts.devices[0].arch)
        return wanted and counted.work(counted.read(self.counters, self.kernels["kernel_id"].to_numpy(), wanted))

    def columns(self) -> Kernels:
        """The kernels to be placed."""
        times = self.kernels["dur_ns"].to_numpy(zero_copy_only=False).astype(float)
        ids, names = (self.kernels[name].combine_chunks() for name in ("kernel_id", "kernel_name"))
        return Kernels(ids, names, None, None, times)


def _off(values: np.ndarray, truth: float) -> str:
    worst = values[np.abs(values / truth - 1).argmax()]
    return f"{worst:,.0f} ({100 * (worst / truth - 1):+.3f} %)"
