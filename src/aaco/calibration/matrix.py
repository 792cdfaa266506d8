"""Matrix products by the vendor's library, cuBLASLt or hipBLASLt, through ctypes: the roofs of matrix units.

A kernel of ours would not reach the vendor's rate, and a roof below what programs achieve is none. hipBLASLt is
cuBLASLt with other prefixes and other numbers for the same things. Sources: cublasLt.h of CUDA 13, hipblaslt.h,
hipblas-common.h and library_types.h of ROCm 6 and 7.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import byref, c_char, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from aaco.calibration import libraries
from aaco.calibration.driver import DriverGpu, Vendor
from aaco.core.errors import AacoError

WORKSPACE = 64 << 20  # Hopper's kernels want 32 MiB and more
MOST_WAYS = 4  # algorithms of the library's heuristic that are tried
SAMPLE = 1 << 20  # random elements; a matrix repeats them


class Lt(Struct, frozen=True):
    """One vendor's library: its name and the values of its header's names."""

    library: tuple[str, tuple[str, ...]]
    prefix: str
    transpose_a: int
    transpose: int
    algorithm_bytes: int  # of a heuristic's result, the algorithm comes first
    result_bytes: int
    fast_accumulation: int | None
    compute: Mapping[str, int]
    f8: int


LIBRARIES: dict[Vendor, Lt] = {
    "NVIDIA": Lt(("libcublasLt", ("13", "12", "11")), "cublasLt", 3, 1, 64, 96, 25,
                 {"f32": 68, "tf32": 77, "f64": 70, "i32": 72}, 28),
    "AMD": Lt(("libhipblaslt", ("1", "0", "")), "hipblasLt", 0, 112, 24, 56, None,
              {"f32": 2, "tf32": 6, "f64": 7, "i32": 9}, 1000)}
MAX_WORKSPACE_BYTES = 1  # of both
R32F, R64F, R16F, R8I, R32I, R16BF = 0, 1, 2, 3, 10, 14  # cudaDataType, hipDataType
F8_OCP_FROM = ("gfx950", "gfx12")  # these read OCP's fp8; gfx942 reads the variant without a negative zero


class MatrixProduct(Struct, frozen=True):
    """A type of product. `rate`: the ceiling that it is a rate of."""

    compute: str
    operands: int | None  # None: fp8, which differs between vendors
    result: int
    scale: int
    bytes_each: int


PRODUCTS = {
    "f64": MatrixProduct("f64", R64F, R64F, R64F, 8), "f32": MatrixProduct("f32", R32F, R32F, R32F, 4),
    "tf32": MatrixProduct("tf32", R32F, R32F, R32F, 4), "f16": MatrixProduct("f32", R16F, R16F, R32F, 2),
    "bf16": MatrixProduct("f32", R16BF, R16BF, R32F, 2), "f8": MatrixProduct("f32", None, R16BF, R32F, 1),
    "i8": MatrixProduct("i32", R8I, R32I, R32I, 1)}
RESULT_BYTES = {R64F: 8, R32F: 4, R16F: 2, R16BF: 2, R32I: 4}


def flops(edge: int) -> float:
    """Return the operations of a product of square matrices: a multiply and an add for each of edge^3 terms."""
    return 2.0 * edge**3


class Products:
    """The open library on a device. Raises Missing."""

    def __init__(self, gpu: DriverGpu, arch: str) -> None:
        self._gpu, self._lt, self._arch = gpu, LIBRARIES[gpu.vendor], arch
        self._library = libraries.load(*self._lt.library)
        self._handle = self._create("Create")
        self._workspace = gpu.allocate(WORKSPACE)
        self._memory: list[int] = []
        self._results: list[Any] = []

    def close(self) -> None:
        """Free its memory."""
        for at in (*self._memory, self._workspace):
            self._gpu.call("free", at)
        self._call("Destroy", self._handle)

    def ways(self, dtype: str, edge: int) -> list[Callable[[], None]]:
        """Return calls that queue the product of two square matrices of random numbers, one for each layout and
        algorithm that the library's heuristic offers.

        Raise AacoError if the library has none for the type.
        """
        product = PRODUCTS[dtype]
        left, right = (self._allocate_filled(dtype, product, edge) for _ in range(2))
        target = c_uint64(self._allocate(edge * edge * RESULT_BYTES[product.result]))
        refused = AacoError("no layout is tried")
        ways: list[Callable[[], None]] = []
        # fp8 and int8 demand A transposed; of the others either layout has kernels of its own (fp64: 6 % apart, H200).
        for transposed in (True,) if product.bytes_each == 1 else (True, False):
            try:
                ways += self._offered_ways(dtype, product, edge, transposed, (left, right, target))
            except AacoError as reason:
                refused = reason
        if not ways:
            raise refused
        return ways

    def _offered_ways(self, dtype: str, product: MatrixProduct, edge: int, transposed: bool,
                      matrices: tuple[c_uint64, c_uint64, c_uint64]) -> list[Callable[[], None]]:
        """Return the library's ways for one layout of the left matrix. Raise AacoError if it has none."""
        lt, (left, right, target) = self._lt, matrices
        f8 = LIBRARIES["NVIDIA"].f8 if self._arch.startswith(F8_OCP_FROM) else lt.f8
        operands = f8 if product.operands is None else product.operands
        description = self._create("MatmulDescCreate", c_int(lt.compute[product.compute]), c_int(product.scale))
        if transposed:
            self._set_attribute("MatmulDesc", description, lt.transpose_a, c_int32(lt.transpose))
        if product.operands is None and lt.fast_accumulation is not None:
            self._set_attribute("MatmulDesc", description, lt.fast_accumulation, c_int8(1))
        sides = [self._create("MatrixLayoutCreate", c_int(kind), c_uint64(edge), c_uint64(edge), c_int64(edge))
                 for kind in (operands, operands, product.result)]
        preference = self._create("MatmulPreferenceCreate")
        self._set_attribute("MatmulPreference", preference, MAX_WORKSPACE_BYTES, c_uint64(WORKSPACE))
        results, count = (c_char * (MOST_WAYS * lt.result_bytes))(), c_int()
        self._call("MatmulAlgoGetHeuristic", self._handle, description, *sides, sides[2], preference, c_int(MOST_WAYS),
                   results, byref(count))
        if not count.value:
            raise AacoError(f"{lt.prefix} has no algorithm for {dtype} on {self._arch}")
        unit, zero = _scalar(product.scale, 1), _scalar(product.scale, 0)
        call, stream, workspace = self._function("Matmul"), self._gpu.stream, c_uint64(self._workspace)
        self._results.append(results)  # the calls point into it

        def way(number: int) -> Callable[[], None]:
            algorithm = c_void_p(ctypes.addressof(results) + number * lt.result_bytes)
            arguments = (self._handle, description, byref(unit), left, sides[0], right, sides[1], byref(zero), target,
                         sides[2], target, sides[2], algorithm, workspace, c_size_t(WORKSPACE), stream)

            def queue() -> None:
                self._check_status("Matmul", call(*arguments))

            return queue

        return [way(number) for number in range(count.value)]

    def _allocate_filled(self, dtype: str, product: MatrixProduct, edge: int) -> c_uint64:
        at, size = self._allocate(edge * edge * product.bytes_each), edge * edge * product.bytes_each
        block = random_block(dtype)
        for offset in range(0, size, block.nbytes):
            self._gpu.call("to_device", at + offset, block.ctypes.data, min(block.nbytes, size - offset))
        return c_uint64(at)

    def _allocate(self, size: int) -> int:
        self._memory.append(self._gpu.allocate(size))
        return self._memory[-1]

    def _set_attribute(self, what: str, of: c_void_p, attribute: int, value: Any) -> None:
        self._call(f"{what}SetAttribute", of, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value)))

    def _create(self, name: str, *arguments: Any) -> c_void_p:
        handle = c_void_p()
        self._call(name, byref(handle), *arguments)
        return handle

    def _call(self, name: str, *arguments: Any) -> None:
        self._check_status(name, self._function(name)(*arguments))

    def _function(self, name: str) -> Any:
        return getattr(self._library, self._lt.prefix + name)

    def _check_status(self, name: str, status: int) -> None:
        if status:
            raise AacoError(f"{self._lt.prefix}{name} gave status {status}")


def _scalar(kind: int, value: int) -> Any:
    return {R64F: ctypes.c_double, R32F: ctypes.c_float, R32I: c_int32}[kind](value)


@cache
def random_block(dtype: str) -> np.ndarray:
    """Return random numbers of a type, up to 1 in size (int8: all of its range).

    Random, because a product of constants draws less power and is up to 14 % faster on a board at its power limit than
    any that a program computes (H200, bf16).
    """
    rng = np.random.default_rng(0)
    if dtype == "i8":
        return rng.integers(-127, 128, SAMPLE, dtype=np.int8)
    if dtype == "f8":  # sign, an exponent that keeps it below 1, an odd mantissa: never zero, never NaN in any variant
        bits = rng.integers(0, 256, SAMPLE, dtype=np.uint8)
        return (bits & 0b1000_0111) | 1 | rng.integers(1, 7, SAMPLE, dtype=np.uint8) << 3
    values = rng.uniform(-1, 1, SAMPLE)
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f64": np.float64, "f16": np.float16}.get(dtype, np.float32))
