"""Per architecture: floating-point operations per clock of one compute unit, widths of its caches, sizes for occupancy.

Rates are dense, multiply and add counted as two. Names: `vector_` for the ordinary lanes, `matrix_` for matrix cores
(MFMA, WMMA, tensor cores), then the type: f64, f32, tf32, f16, bf16, f8, f6f4 (6 and 4 bits), i8. A rate that is not
listed is not known here; it is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

SPEED_OF_LIGHT = ("rocm-systems 1b1610fc, projects/rocprofiler-compute/src/rocprof_compute_soc/analysis_configs/"
                  "{}/0200_system_speed_of_light.yaml")
GPU_SPECS = "rocm.docs.amd.com, AMD GPU specifications"
LLVM = "LLVM, AMDGPUBaseInfo.cpp (granules, registers and waves per SIMD) and AMDGPUUsage"
CUDA = "CUDA C++ Programming Guide, Compute Capabilities: technical specifications, arithmetic throughput"


class Registers(Struct, frozen=True):
    """The registers of one SIMD (NVIDIA: a multiprocessor's partition) and how waves share them.

    vectors: vector registers per lane to share out between the waves of a SIMD, in granules of `granule`. unified:
    whether accumulation registers come from the same ones; where not, each kind has `vectors` of its own.
    waves: the most a SIMD holds. simds: of what runs a workgroup: a compute unit, on RDNA a pair of them.
    """

    wave: int
    vectors: int
    granule: int
    waves: int
    simds: int = 4
    unified: bool = True
    scalars: int | None = None  # scalar registers of a SIMD; None where they never bind


class Architecture(Struct, frozen=True):
    """One instruction set architecture.

    flops_per_clock: by rate, of one compute unit. l1_, lds_bytes_per_clock: of one compute unit; l2_: of one channel.
    lds_bytes: local (shared) memory of what runs a workgroup, given out in lds_granule; lds_reserved of it for each
    workgroup by the system itself. workgroups: the most that share it, where they have barriers.
    """

    name: str
    vendor: str
    flops_per_clock: Mapping[str, int]
    sources: tuple[str, ...]
    registers: tuple[Registers, ...] = ()
    lds_bytes: int | None = None
    lds_granule: int = 512
    lds_reserved: int = 0
    workgroups: int | None = None
    l1_bytes_per_clock: int | None = None
    lds_bytes_per_clock: int | None = None
    l2_bytes_per_clock: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    half_on_geforce: tuple[str, ...] = ()


def _cdna(name: str, registers: Registers, rates: Mapping[str, int], l1: int, l2: int, lds_kib: int = 64,
          lds_granule: int = 512, **notes: str) -> Architecture:
    sources = (SPEED_OF_LIGHT.format(name), GPU_SPECS, LLVM)
    return Architecture(name, "amd", rates, sources, (registers,), lds_kib * 1024, lds_granule, 0, 16, l1, 128, l2,
                        notes)


def _rdna(name: str, vectors: int, granule: int, rates: Mapping[str, int]) -> Architecture:
    """Two compute units of two SIMDs each run a workgroup together; a wave of 64 takes twice the registers."""
    sides = (Registers(32, vectors, granule, 16), Registers(64, vectors // 2, granule // 2, 16))
    sources = (GPU_SPECS, LLVM, "AMD's instruction set document of the architecture: dual issue, WMMA")
    return Architecture(name, "amd", rates, sources, sides, 131072, 1024, 0, 32)


def _cuda(name: str, rates: Mapping[str, int], shared_kib: int, granule: int = 128, reserved: int = 1024,
          warps: int = 64, blocks: int = 32, bytes_per_clock: int = 128, half_on_geforce: tuple[str, ...] = ()
          ) -> Architecture:
    """65,536 registers in four partitions, given to a warp 256 at a time."""
    sources = (CUDA, "NVIDIA's architecture white papers: dense tensor rates", "cuda_occupancy.h of the CUDA toolkit",
               "CCCL, cuda/__device/arch_traits.h: warps, blocks and shared memory of a multiprocessor")
    return Architecture(name, "nvidia", rates, sources, (Registers(32, 512, 8, warps // 4),), shared_kib * 1024,
                        granule, reserved, blocks, bytes_per_clock, bytes_per_clock, half_on_geforce=half_on_geforce)


_ACCUMULATE = ("matrix_bf16", "matrix_tf32")
_PACKED = "vector f32 is the rate of packed instructions; of others it is half"
ARCHITECTURES = {one.name: one for one in (
    _cdna("gfx908", Registers(64, 256, 4, 10, unified=False, scalars=800),
          {"vector_f64": 64, "vector_f32": 128, "vector_f16": 256, "vector_int": 128,
           "matrix_f32": 256, "matrix_f16": 1024, "matrix_bf16": 512, "matrix_i8": 1024},  # no f64 MFMA before gfx90a
          l1=64, l2=64),
    _cdna("gfx90a", Registers(64, 512, 8, 8, scalars=800),
          {"vector_f64": 128, "vector_f32": 256, "vector_f16": 256, "vector_int": 128, "matrix_f64": 256,
           "matrix_f32": 256, "matrix_f16": 1024, "matrix_bf16": 1024, "matrix_i8": 1024},
          l1=64, l2=128, vector_f32=_PACKED),
    _cdna("gfx942", Registers(64, 512, 8, 8, scalars=800),
          {"vector_f64": 128, "vector_f32": 256, "vector_f16": 256, "vector_int": 128, "matrix_f64": 256,
           "matrix_f32": 256, "matrix_tf32": 1024, "matrix_f16": 2048, "matrix_bf16": 2048, "matrix_f8": 4096,
           "matrix_i8": 4096},
          l1=128, l2=128, vector_f32=_PACKED),
    _cdna("gfx950", Registers(64, 512, 8, 8, scalars=800),
          # The SoL file's 16834 for f6f4 is a slip of the pen for 16384: twice f8, as AMD publishes it.
          {"vector_f64": 128, "vector_f32": 256, "vector_f16": 256, "vector_int": 128, "matrix_f64": 128,
           "matrix_f32": 256, "matrix_f16": 4096, "matrix_bf16": 4096, "matrix_f8": 8192, "matrix_f6f4": 16384,
           "matrix_i8": 8192},
          l1=128, l2=128, lds_kib=160, lds_granule=1280, vector_f32=_PACKED),
    _rdna("gfx1030", 1024, 16, {"vector_f64": 8, "vector_f32": 128, "vector_f16": 256}),
    _rdna("gfx1031", 1024, 16, {"vector_f64": 8, "vector_f32": 128, "vector_f16": 256}),
    _rdna("gfx1100", 1536, 24, {"vector_f64": 8, "vector_f32": 256, "vector_f16": 512, "matrix_f16": 512,
                                "matrix_bf16": 512, "matrix_i8": 512}),
    _rdna("gfx1101", 1536, 24, {"vector_f64": 8, "vector_f32": 256, "vector_f16": 512, "matrix_f16": 512,
                                "matrix_bf16": 512, "matrix_i8": 512}),
    _rdna("gfx1102", 1024, 16, {"vector_f64": 8, "vector_f32": 256, "vector_f16": 512, "matrix_f16": 512,
                                "matrix_bf16": 512, "matrix_i8": 512}),
    _rdna("gfx1151", 1536, 24, {"vector_f64": 8, "vector_f32": 256, "vector_f16": 512, "matrix_f16": 512,
                                "matrix_bf16": 512, "matrix_i8": 512}),
    _rdna("gfx1200", 1536, 24, {"vector_f32": 256, "vector_f16": 512, "matrix_f16": 1024, "matrix_bf16": 1024,
                                "matrix_f8": 2048, "matrix_i8": 2048}),
    _rdna("gfx1201", 1536, 24, {"vector_f32": 256, "vector_f16": 512, "matrix_f16": 1024, "matrix_bf16": 1024,
                                "matrix_f8": 2048, "matrix_i8": 2048}),
    _cuda("sm_70", {"vector_f64": 64, "vector_f32": 128, "vector_f16": 256, "matrix_f16": 1024}, 96, 256, 0),
    # The white paper of GA102: an SM of Turing reads half as many bytes of L1 and shared memory in a clock.
    _cuda("sm_75", {"vector_f64": 4, "vector_f32": 128, "vector_f16": 256, "matrix_f16": 1024, "matrix_i8": 2048}, 64,
          256, 0, warps=32, blocks=16, bytes_per_clock=64),
    _cuda("sm_80", {"vector_f64": 64, "vector_f32": 128, "vector_f16": 512, "matrix_f64": 128, "matrix_tf32": 1024,
                    "matrix_f16": 2048, "matrix_bf16": 2048, "matrix_i8": 4096}, 164),
    # White papers of GA102, Ada and RTX Blackwell: GeForce boards accumulate in f32 at half the rate, and bf16 and tf32
    # know no other accumulation; matrix_f16 and matrix_f8 are with accumulation in f16 there.
    _cuda("sm_86", {"vector_f64": 4, "vector_f32": 256, "vector_f16": 256, "matrix_tf32": 512, "matrix_f16": 1024,
                    "matrix_bf16": 1024, "matrix_i8": 2048}, 100, warps=48, blocks=16, half_on_geforce=_ACCUMULATE),
    _cuda("sm_89", {"vector_f64": 4, "vector_f32": 256, "vector_f16": 256, "matrix_tf32": 512, "matrix_f16": 1024,
                    "matrix_bf16": 1024, "matrix_f8": 2048, "matrix_i8": 2048}, 100, warps=48, blocks=24,
          half_on_geforce=_ACCUMULATE),
    _cuda("sm_90", {"vector_f64": 128, "vector_f32": 256, "vector_f16": 512, "matrix_f64": 256, "matrix_tf32": 2048,
                    "matrix_f16": 4096, "matrix_bf16": 4096, "matrix_f8": 8192, "matrix_i8": 8192}, 228),
    _cuda("sm_100", {"vector_f64": 128, "vector_f32": 256, "vector_f16": 512, "matrix_f64": 128, "matrix_tf32": 4096,
                     "matrix_f16": 8192, "matrix_bf16": 8192, "matrix_f8": 16384, "matrix_f6f4": 32768,
                     "matrix_i8": 16384}, 228),
    # NVIDIA's figures of int8, 4 bits and f64 differ from page to page: not here.
    _cuda("sm_103", {"vector_f32": 256, "matrix_tf32": 4096, "matrix_f16": 8192, "matrix_bf16": 8192,
                     "matrix_f8": 16384}, 228),
    _cuda("sm_120", {"vector_f64": 4, "vector_f32": 256, "vector_f16": 256, "matrix_tf32": 512, "matrix_f16": 1024,
                     "matrix_bf16": 1024, "matrix_f8": 2048, "matrix_f6f4": 4096, "matrix_i8": 2048}, 100, warps=48,
          blocks=24, half_on_geforce=_ACCUMULATE),
)}
