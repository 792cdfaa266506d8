"""What runs the programs of migraphx.c: ONNX Runtime's CPU provider, in the process that asked.

`install(folder)` loads both libraries from there, so that ONNX Runtime finds them loaded when its MIGraphX provider
asks for them; sitecustomize.py does so in a test's programs. A program's run counts as a kernel for each node, one
after the other, whose times fill the time that the run took; where rocprofv3.py started the process, they are written
as the CSV files of rocprofv3 when it ends, as ROCm's own library does.
"""

from __future__ import annotations

import atexit
import csv
import ctypes
import os
import threading
import time
from itertools import count, takewhile
from pathlib import Path

# migraphx_shape_datatype_t of ROCm 7, by numpy's name.
TYPES = {"bool": 2, "float16": 3, "float32": 4, "float64": 5, "uint8": 6, "int8": 7, "uint16": 8, "int16": 9,
         "int32": 10, "int64": 11, "uint32": 12, "uint64": 13}
PARSE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p))
TRACED = "FAKE_ROCPROFV3"  # the folder that rocprofv3.py wants the files in, and the kinds of files
COUNTS, OTHER = f"{TRACED}_COUNTS", f"{TRACED}_OTHER"  # counters it counts, and another name for the last kernel
WAYS = {1: "HOST_TO_DEVICE", 2: "DEVICE_TO_HOST", 3: "DEVICE_TO_DEVICE"}  # hipMemcpyKind
MOST_COPIES = 1 << 16
KEPT: list[object] = []


class Engine:
    """Programs by number. What it raises ctypes prints and takes for 0, which MIGraphX's caller is told as an error."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library, self._numbers = library, count(1)
        self._programs: dict[int, tuple] = {}
        self.kernels: list[tuple[str, int, int, int]] = []  # symbol, launch, begin, end
        library.fake_given.restype = ctypes.c_size_t

    def parse(self, program, model, size, options) -> int:
        import numpy as np
        import onnx
        import onnxruntime

        content = ctypes.string_at(model, size)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        given, feeds = self._given(options), {}
        for item in session.get_inputs():
            lengths = [length if isinstance(length, int) else 1 for length in given.get(item.name, item.shape)]
            feeds[item.name] = np.zeros(lengths, _numpy(item.type))
        made = session.run(None, feeds)
        for name, array in [*feeds.items(), *((None, array) for array in made)]:
            lengths = (ctypes.c_size_t * array.ndim)(*array.shape)
            self._library.fake_parameter(ctypes.c_void_p(program), name and name.encode(), TYPES[array.dtype.name],
                                         ctypes.c_size_t(array.nbytes), ctypes.c_size_t(array.ndim), lengths)
        number = next(self._numbers)
        symbols = [f"{node.op_type.lower()}_kernel" for node in onnx.load_from_string(content).graph.node]
        self._programs[number] = session, {name: (array.shape, array.dtype) for name, array in feeds.items()}, symbols
        return number

    def run(self, number, given, made) -> int:
        import numpy as np

        session, inputs, symbols = self._programs[number]
        begin = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        feeds = {}
        for at, (name, (shape, dtype)) in enumerate(inputs.items()):
            size = int(np.prod(shape)) * dtype.itemsize
            feeds[name] = np.frombuffer(ctypes.string_at(given[at], size), dtype).reshape(shape)
        for at, array in enumerate(session.run(None, feeds)):
            content = np.ascontiguousarray(array)
            ctypes.memmove(made[at], content.ctypes.data, content.nbytes)
        each = (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - begin) // (len(symbols) + 1)
        for place, symbol in enumerate(symbols):
            self.kernels.append((symbol, begin + place * each, begin + (place + 1) * each, begin + (place + 2) * each))
        return 1

    def _given(self, options) -> dict[str, list[int]]:
        """The shapes that the caller asks for, by input."""
        asked = takewhile(lambda one: one is not None, (self._shape(options, at) for at in count()))
        return dict(one for one in asked if one)

    def _shape(self, options, at) -> tuple[str, list[int]] | None:
        name, lengths = ctypes.c_char_p(), ctypes.POINTER(ctypes.c_size_t)()
        dimensions = self._library.fake_given(ctypes.c_void_p(options), ctypes.c_size_t(at), ctypes.byref(name),
                                              ctypes.byref(lengths))
        return None if dimensions == ctypes.c_size_t(-1).value else (name.value.decode(), lengths[:dimensions])


class Copy(ctypes.Structure):
    """As hip.c has it."""

    _fields_ = [(name, ctypes.c_long) for name in ("begin_ns", "end_ns", "bytes", "kind")]


def counted(engine: Engine, process: int, thread: int) -> list[tuple]:
    """A row for each counter of each dispatch; no two values are alike."""
    names, other = os.environ.get(COUNTS, "").split(), os.environ.get(OTHER)
    symbols = [symbol for symbol, *_ in engine.kernels]
    if other and symbols:
        symbols[-1] = other
    rows = [("Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size",
             "Kernel_Id", "Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count",
             "Accum_VGPR_Count", "SGPR_Count", "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp")]
    for number, symbol in enumerate(symbols, 1):
        begin, end = engine.kernels[number - 1][2:]
        rows += [(number, number, "Agent 1", 1, process, thread, 1024, 1, symbol, 64, 0, 0, 8, 0, 16, name,
                  float(1000 * number + place), begin, end) for place, name in enumerate(names)]
    return rows


def write(engine: Engine, hip: ctypes.CDLL, folder: str, kinds: list[str]) -> None:
    """The CSV files of this process: columns as rocprofiler-sdk's documentation shows them."""
    if os.environ.get("FAKE_ROCPROFV3_HANGS"):
        time.sleep(3600)
    place = Path(folder) / "host"
    place.mkdir(parents=True, exist_ok=True)
    process, thread, first = os.getpid(), threading.get_native_id(), len(engine.kernels) + 1
    copies = (Copy * MOST_COPIES).in_dll(hip, "fake_copies")[:ctypes.c_size_t.in_dll(hip, "fake_copied").value]
    files = {
        "agent_info": [
            ("Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Name", "Product_Name", "Gfx_Target_Version"),
            (0, 0, "CPU", 0, "a host", "a host", 0), (1, 1, "GPU", 304, "gfx942", "no Instinct at all", 90402)],
        "kernel_trace": [
            ("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
             "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count",
             "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z",
             "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
            *(("KERNEL_DISPATCH", "Agent 1", 1, 0, thread, number, 1, symbol, number, begin, end, 0, 0, 8, 0, 16, 64, 1,
               1, 1024, 1, 1) for number, (symbol, _, begin, end) in enumerate(engine.kernels, 1))],
        "memory_copy_trace": [
            ("Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id",
             "Start_Timestamp", "End_Timestamp"),
            *(("MEMORY_COPY", f"MEMORY_COPY_{WAYS[one.kind]}", 0, f"Agent {int(one.kind != 1)}",
               f"Agent {int(one.kind != 2)}", first + at, one.begin_ns, one.end_ns) for at, one in enumerate(copies)
              if one.kind in WAYS)],
        "hip_api_trace": [
            ("Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"),
            *(("HIP_RUNTIME_API_EXT", "hipModuleLaunchKernel", process, thread, number, launch, launch + 10)
              for number, (_, launch, *_) in enumerate(engine.kernels, 1))]}
    files["counter_collection"] = counted(engine, process, thread)
    for kind in kinds:
        with (place / f"{process}_{kind}.csv").open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(files[kind])


def _numpy(kind: str) -> str:
    word = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(word, word)


def install(folder: Path) -> None:
    """Load the libraries, and be their engine."""
    hip = ctypes.CDLL(str(folder / "libamdhip64.so.7"), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(folder / "libmigraphx_c.so.3"), mode=ctypes.RTLD_GLOBAL)
    engine = Engine(library)
    KEPT.extend([engine, PARSE(engine.parse), RUN(engine.run)])
    library.fake_engine(KEPT[-2], KEPT[-1])
    if TRACED in os.environ:
        where, *kinds = os.environ.pop(TRACED).split(os.pathsep)
        atexit.register(write, engine, hip, where, kinds)
