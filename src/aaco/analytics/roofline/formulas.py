"""What counters mean: each quantity of a kernel as a weighted sum of its counters, per architecture.

AMD, floating point: a vector instruction is 64 lanes, a fused multiply-add two operations; SQ_INSTS_VALU_MFMA_MOPS_*
counts 512 operations each. The vector part takes every lane as active, so under divergence it is an upper bound.
AMD, memory: requests leave the L2 in several sizes, and which counter counts which size differs by architecture:
to gfx90a 32 and 64 bytes; gfx940 to gfx942 count those of 128 bytes separately as TCC_BUBBLE; gfx950 counts each size,
and TCC_BUBBLE is 0 there, so that FETCH_SIZE, a sum of the tool's own in KiB, is half the truth.
Source: rocm-systems 1b1610fc, rocprofiler-compute's analysis_configs/*/{0200,0400,1700}*.yaml; checked on a copy of
known size on MI100, MI210, MI300A and MI300X.
NVIDIA: Nsight Compute's metrics by their descriptions (ncu --query-metrics); tensor operations are counted as such,
and a half-precision instruction has two lanes (ncu's own derived metrics weight it so).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

LANES, MFMA = 64, 512
NO_ARITHMETIC = "this architecture has no counters of arithmetic"
FLOATS = ("f64", "f32", "tf32", "f16", "bf16", "f8", "f6f4")
READ, WRITTEN, L2, L1, LDS = "dram_read_bytes", "dram_written_bytes", "l2_bytes", "l1_bytes", "lds_bytes"
MEMORY_WAIT, OWN_WAIT = "memory_wait", "own_wait"


class Formula(Struct, frozen=True):
    """One quantity: the sum of weight x counter. A counter is named as `plain` writes it."""

    quantity: str
    weights: Mapping[str, float]


class Law(Struct, frozen=True):
    """That a counter cannot exceed the sum of others, because it counts a part of what they count."""

    parts: tuple[str, ...]
    whole: str


class Formulas(Struct, frozen=True):
    """The formulas of an architecture. Of several for one quantity the first holds whose counters were all recorded.

    matrix_work: counters that show, beyond a value, that matrix instructions ran, whatever their type. alive: blocks of
    counters, by prefix: that one of a block counted something proves that the others were counted too. rates: counters
    that a tool may give per cycle: the counter of that rate, and that of the cycles.
    """

    quantities: tuple[Formula, ...]
    laws: tuple[Law, ...]
    matrix_work: Mapping[str, float]
    alive: tuple[str, ...]
    absent: Mapping[str, str]
    rates: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def counters(self) -> frozenset[str]:
        """Every counter that any formula, law or proof names; prefixes of `alive` are not among them."""
        weighted = {name for formula in self.quantities for name in formula.weights}
        bound = {name for law in self.laws for name in (*law.parts, law.whole)}
        rates = {name for names in self.rates.values() for name in names}
        return frozenset(weighted | bound | rates | set(self.matrix_work))


def plain(counter: str) -> str:
    """Return a counter's name without what tools vary: the sum over instances, and the EA prefix of older files."""
    name = counter.removesuffix("_sum")
    return "TCC_EA0_" + name[7:] if name.startswith("TCC_EA_") else name


def of(arch: str | None) -> Formulas | None:
    """Return the formulas of an architecture, or None where none are known here."""
    if arch is None:
        return None
    return NVIDIA if arch.startswith("sm_") else AMD.get(arch)


def _vector(kind: str) -> Formula:
    add, mul, trans, fma = (f"SQ_INSTS_VALU_{name}_{kind}" for name in ("ADD", "MUL", "TRANS", "FMA"))
    return Formula(f"vector_{kind.lower()}", {add: LANES, mul: LANES, trans: LANES, fma: 2 * LANES})


def _amd(kinds: Mapping[str, str], read: Mapping[str, float], laws: tuple[Law, ...], l1: int, l2: int) -> Formulas:
    floats = tuple(map(_vector, ("F16", "F32", "F64"))) if kinds else ()
    ints = (Formula("vector_int", {"SQ_INSTS_VALU_INT32": LANES, "SQ_INSTS_VALU_INT64": LANES}),) if kinds else ()
    memory = (
        Formula(READ, read), Formula(WRITTEN, {"TCC_EA0_WRREQ": 32, "TCC_EA0_WRREQ_64B": 32}),
        *((Formula(READ, {"FETCH_SIZE": 1024}),) if "TCC_EA0_RDREQ_128B" not in read else ()),
        Formula(WRITTEN, {"WRITE_SIZE": 1024}),
        Formula(L2, {"TCC_REQ": l2}), Formula(L1, {"TCP_TOTAL_CACHE_ACCESSES": l1}),
        Formula(LDS, {"SQ_LDS_IDX_ACTIVE": 128, "SQ_LDS_BANK_CONFLICT": -128}))  # 32 banks of 4 bytes each cycle
    uncounted = {} if kinds else {"flops": NO_ARITHMETIC}
    return Formulas(
        (*floats, *ints, *(Formula(f"matrix_{rate}", {f"SQ_INSTS_VALU_MFMA_MOPS_{kind}": MFMA})
                           for rate, kind in kinds.items()), *memory),
        (*laws, Law(("TCC_EA0_WRREQ_64B",), "TCC_EA0_WRREQ"), Law(("SQ_LDS_BANK_CONFLICT",), "SQ_LDS_IDX_ACTIVE")),
        dict.fromkeys(("SQ_INSTS_MFMA", "SQ_VALU_MFMA_BUSY_CYCLES"), 0.0) if kinds else {},
        ("SQ_INSTS_VALU_", "TCC_EA0_RDREQ", "TCC_EA0_WRREQ", "SQ_LDS_", "SQ_WAVES"), uncounted)


def _rdna() -> Formulas:
    """RDNA counts no arithmetic by type; its requests to memory come in four sizes."""
    sizes = {f"GL2C_EA_RDREQ_{size}B": float(size) for size in (32, 64, 96, 128)}
    return Formulas((Formula(READ, sizes), Formula(READ, {"FETCH_SIZE": 1024}), Formula(WRITTEN, {"WRITE_SIZE": 1024})),
                    (), {}, ("GL2C_EA_", "FETCH_SIZE", "WRITE_SIZE"), {"flops": NO_ARITHMETIC})


_GFX90A = {"f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "i8": "I8"}
_GFX942 = {**_GFX90A, "f8": "F8"}
_TWO_SIZES = {"TCC_EA0_RDREQ": 64.0, "TCC_EA0_RDREQ_32B": -32.0}
_BUBBLE = {**_TWO_SIZES, "TCC_BUBBLE": 64.0}
_THREE_SIZES = {"TCC_EA0_RDREQ_32B": 32.0, "TCC_EA0_RDREQ_64B": 64.0, "TCC_EA0_RDREQ_128B": 128.0}
_SMALL = Law(("TCC_EA0_RDREQ_32B",), "TCC_EA0_RDREQ")
_LARGE = Law(("TCC_EA0_RDREQ_32B", "TCC_BUBBLE"), "TCC_EA0_RDREQ")
_EACH = Law(("TCC_EA0_RDREQ_32B", "TCC_EA0_RDREQ_64B", "TCC_EA0_RDREQ_128B"), "TCC_EA0_RDREQ")
AMD = {
    "gfx908": _amd({}, _TWO_SIZES, (_SMALL,), l1=64, l2=64),
    "gfx90a": _amd(_GFX90A, _TWO_SIZES, (_SMALL,), l1=64, l2=128),
    **{arch: _amd(_GFX942, _BUBBLE, (_LARGE,), l1=128, l2=128) for arch in ("gfx940", "gfx941", "gfx942")},
    "gfx950": _amd({**_GFX942, "f6f4": "F6F4"}, _THREE_SIZES, (_EACH,), l1=128, l2=128),
    **dict.fromkeys(("gfx1030", "gfx1031", "gfx1100", "gfx1101", "gfx1102", "gfx1151", "gfx1200", "gfx1201"), _rdna()),
}


def _sass(letter: str, kind: str, lanes: int = 1) -> Formula:
    add, mul, fma = (f"smsp__sass_thread_inst_executed_op_{letter}{name}_pred_on.sum" for name in ("add", "mul", "fma"))
    return Formula(f"vector_{kind}", {add: lanes, mul: lanes, fma: 2 * lanes})


def _tensor(kind: str, source: str) -> Formula:
    return Formula(f"matrix_{kind}", {f"sm__ops_path_tensor_src_{source}.sum": 1.0})


def _stalled(quantity: str, *reasons: str) -> Formula:
    """Warps that wait for these reasons, of those resident in a cycle in which one issues."""
    return Formula(quantity, {f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio": 1.0
                              for reason in reasons})


NVIDIA = Formulas(
    (_sass("d", "f64"), _sass("f", "f32"), _sass("h", "f16", 2),
     _tensor("f64", "fp64"), _tensor("tf32", "tf32_dst_fp32"), _tensor("f16", "fp16"), _tensor("bf16", "bf16_dst_fp32"),
     _tensor("f8", "fp8"), _tensor("i8", "int8"),
     Formula("matrix_f8", {f"sm__ops_path_tensor_src_fp8_sparsity_{how}.sum": 1.0 for how in ("off", "on")}),
     Formula(READ, {"dram__bytes_read.sum": 1.0}), Formula(WRITTEN, {"dram__bytes_write.sum": 1.0}),
     Formula(L2, {"lts__t_bytes.sum": 1.0}), Formula(L2, {"lts__t_sectors.sum": 32.0}),
     Formula(L1, {"l1tex__t_bytes.sum": 1.0}), Formula(L1, {"l1tex__t_sectors.sum": 32.0}),
     Formula(LDS, {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 128.0}),
     # Reads from the L1 and beyond, and the way there; results of arithmetic, of local memory, and pipes that are full.
     _stalled(MEMORY_WAIT, "long_scoreboard", "lg_throttle"),
     _stalled(OWN_WAIT, "wait", "short_scoreboard", "math_pipe_throttle")),
    (), {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 10.0},  # HFMA2 alone keeps it some % active
    ("smsp__", "sm__", "dram__", "lts__", "l1tex__"), {},
    {f"{name}.sum": (f"{name}.sum.per_cycle_elapsed", "smsp__cycles_elapsed.avg")
     for name in (f"smsp__sass_thread_inst_executed_op_{letter}{op}_pred_on" for letter in "dfh"
                  for op in ("add", "mul", "fma"))})
