"""Models rewritten by ONNX Runtime's own tools: in 16 bits, in 8-bit integers, with attention and norms fused.

Each in a process of its own, with a limit of time: the tools are large, change what they load, and may fail in any way.
`python -P -m aaco.optimize.rewriting NAME SOURCE TARGET` answers with an exit code and, on its last line, the error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import onnx

from aaco.core import extras, files
from aaco.core.errors import BY_EXIT_CODE, AacoError, Missing, ModelError, UsageError, first_line
from aaco.runner import command, model_file, worker

LONGEST_S = 600.0
MOST_BYTES = 2**31 - 1  # of a protobuf message (protobuf.dev/programming-guides/proto-limits), which the tools hold
QUANTIZED = ["MatMul", "Gemm"]
SHAPES = ("bert", "gpt2")  # of onnxruntime.transformers.optimizer: which patterns of attention it looks for
LACKING = re.compile(r"missing '([\w.]+)'|No module named '([\w.]+)'")


def rewrite(name: str, source: Path, target: Path, timeout_s: float = LONGEST_S) -> None:
    """Write the source to the target as the rewrite changes it. The target appears whole or not at all.

    Raise UsageError for an unknown rewrite, ModelError for a model that cannot be read or that it leaves as it is,
    Missing for a package that the tool needs, AacoError if the tool fails or takes too long.
    """
    if name not in REWRITES:
        raise UsageError(f"no rewrite {name!r}", f"known: {', '.join(REWRITES)}")
    with files.storage(target), tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as scratch:
        made = Path(scratch) / "model.onnx"
        words = [sys.executable, "-P", "-m", __spec__.name, name, str(source.resolve()), str(made.resolve())]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise AacoError(f"{name}: ONNX Runtime's tool had not ended after {timeout_s:g} s on {source}",
                            "try the other changes without it") from error
        if done.returncode:
            raise _failure(name, source, done)
        made.replace(target)


def _failure(name: str, source: Path, done: subprocess.CompletedProcess[bytes]) -> AacoError:
    """Return the error that the process printed, or one that says how it died."""
    printed, messages = (text.decode(errors="replace").strip().splitlines() for text in (done.stdout, done.stderr))
    try:
        error = json.loads(printed[-1])["error"]
    except (IndexError, ValueError, KeyError, TypeError):
        last = f": {messages[-1]}" if messages else ""
        return AacoError(f"{name}: ONNX Runtime's tool {command.ending(done.returncode)} on {source}{last}",
                         "the model stays as it is: try the other changes without it")
    return BY_EXIT_CODE.get(done.returncode, AacoError)(error["what"], error["fix"])


def main() -> None:
    """Make the rewrite that the arguments name."""
    worker.die_with(os.getppid())
    name, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    try:
        REWRITES[name](source, target)
    except ImportError as error:
        _answer(_lacking(name, error))
    except AacoError as error:
        _answer(error)


def _answer(error: AacoError) -> None:
    print(json.dumps({"error": {"what": error.what, "fix": error.fix}}))
    sys.exit(int(error.exit_code))


def _lacking(name: str, error: ImportError) -> AacoError:
    """Return the message about a package that the tool cannot import."""
    match = LACKING.search(str(error))
    package = error.name or next(filter(None, match.groups() if match else ()), "")
    if not package:
        return AacoError(f"{name}: ONNX Runtime's tool cannot be imported: {first_line(error)}",
                         "install ONNX Runtime again")
    module = package.partition(".")[0]
    return Missing(f"{name}: ONNX Runtime's tool needs {module}, which is not installed",
                   extras.install(extras.EXTRAS[module]) if module in extras.EXTRAS else extras.add(module))


def _float16(source: Path, target: Path) -> None:
    """Convert weights and arithmetic from float32 to float16; inputs and outputs keep their types."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = _load(source)
    before = _content(model)
    _save(source, convert_float_to_float16(model, keep_io_types=True), before, target)


def _dynamic_int8(source: Path, target: Path) -> None:
    """Compute products with constant weights in 8-bit integers; the scale of the data is measured in each inference."""
    from onnxruntime.quantization import quantize_dynamic

    model = _load(source)
    before = _content(model)
    quantize_dynamic(model, str(target), op_types_to_quantize=QUANTIZED)
    _refuse_unchanged(source, before, model_file.load(target))


def _transformers(source: Path, target: Path) -> None:
    """Fuse attention, norms and activations, by the patterns that leave the fewest nodes."""
    from onnxruntime.transformers.optimizer import optimize_model

    model = _load(source)
    made = [optimize_model(deepcopy(model), model_type=shape, num_heads=0, hidden_size=0, opt_level=0).model
            for shape in SHAPES]
    _save(source, min(made, key=lambda fused: len(fused.graph.node)), _content(model), target)


def _load(source: Path) -> onnx.ModelProto:
    """Return the model with its weights. Raise ModelError for one that does not fit into one message."""
    size = model_file.identity(source).bytes
    if size > MOST_BYTES:
        raise ModelError(f"{source}: {size / 1e9:.1f} GB; ONNX Runtime's tools hold a model in one protobuf message, "
                         "of at most 2 GB", "convert it with the tool that exported it")
    return model_file.load(source)


def _content(model: onnx.ModelProto) -> tuple[Mapping[str, int], Mapping[int, int]]:
    """Return how many nodes of each operator, and how many tensors of each type a model has."""
    return (Counter(node.op_type for node in model.graph.node),
            Counter(tensor.data_type for tensor in model_file.tensors(model)))


def _save(source: Path, model: Any, before: tuple[Mapping[str, int], Mapping[int, int]], target: Path) -> None:
    _refuse_unchanged(source, before, model)
    onnx.save(model, str(target))


def _refuse_unchanged(source: Path, before: tuple[Mapping[str, int], Mapping[int, int]], model: Any) -> None:
    """Raise ModelError where the tool saw nothing to change: the same model would be measured as if it were another."""
    if _content(model) == before:
        raise ModelError(f"{source}: ONNX Runtime's tool sees nothing in it to change", "try the other changes")


REWRITES: Mapping[str, Callable[[Path, Path], None]] = {
    "float16": _float16, "dynamic_int8": _dynamic_int8, "transformers": _transformers}

if __name__ == "__main__":
    main()
