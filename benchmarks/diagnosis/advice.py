"""Is anything advised that is already so, or that cannot work here? Over every capture, by an independent reading.

The capture's raw text is searched for names of kernels and calls, without the product's parsers and facts; what is then
forbidden is looked for in every text that the product advises: next steps, conditions, the list in bottleneck.json. Of
the recorded pairs the change that was made must not be advised on the side after it, and no fact may speak against it
on the side before, unless another kind of the same change is advised there: no graph holds a step whose sizes data
decide before its loop is one call. `python -m benchmarks.diagnosis.advice` prints each piece of advice that fails.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco import pipeline
from aaco.analytics.advice.mechanisms import ACTIONS
from aaco.core.config import Settings, resolve
from aaco.core.errors import AacoError
from aaco.report.sections import content
from benchmarks.claims import Claim

FILES = ("kineto/*.json.gz", "serving/*.json.gz", "pairs/*/*.trace.json.gz", "h200/torch_scenarios/*.trace.json.gz",
         "h100x2/*/*.json.gz", "legacy-rocprof/aiter/trace.json", "h200/ncu/ncu_[!ms]*.csv*", "h200/ort_cuda/*.json.gz",
         "rpd/**/*.rpd", "rpd/**/*.rpd.gz", "rocprofv3-rocpd/*.db", "rocprofv3-pftrace/*.pftrace",
         "rocprofv3-json/*.json.gz", "rocprofv3-csv/*/*.csv", "legacy-rocprof/**/results.json",
         "legacy-rocprof/**/*.csv", "legacy-rocprof/**/*.db", "rocprof-compute/*/pmc_perf.csv",
         "att/*/ui_output_*/code.json", "migraphx/*[!S].txt")
OWN = Path(__file__).parents[2] / "tests" / "captures"
PRODUCT = re.compile(r"gemm|gemv|fprop|dgrad|wgrad|conv|Cijk_|nvjet|flash|fmha|attention|attn|mul_mat|matmul", re.I)
NARROW = re.compile(r"bf16|bfloat16|fp16|f16|half|fp8|e4m3|float8|mxfp4|afp4|int8|_i8_|nvjet_sm\d+_[tqh]"
                    r"|Cijk_\w+_(?:BBS|HHS|HSS|B_BS|HB|BB|F8\w*)_", re.I)
READS = re.compile(r"(?:cuda|hip)(?:Device|Stream|Event)Synchronize|hipMemcpyWithStream|cudaMemcpy$|hipMemcpy$")
LAUNCHES = re.compile(r"(?:cuda|hip|cu)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel")
NAMED = re.compile(r" Largest (?:kernels|nodes): .*?(?= Try: )", re.S)  # names from the capture are no advice
HALF = 0.5
FEW_LAUNCHES = 3  # to a wait, on average: a graph of fewer saves next to nothing


class RawCapture(Struct, frozen=True, dict=True):
    """A capture as text, and as events where it is a PyTorch trace."""

    path: Path

    @cached_property
    def text(self) -> str:
        """The file's characters; of a database those of its rows."""
        data = self.path.read_bytes()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The complete events of a PyTorch trace, else none."""
        if '"traceEvents"' not in self.text[:1 << 20] and not self.text.startswith("["):
            return []
        try:
            document = json.loads(self.text)
        except ValueError:
            return []
        events = document["traceEvents"] if isinstance(document, dict) else document
        return [event for event in events if isinstance(event, dict) and event.get("ph") == "X" and "name" in event]

    def has(self, pattern: str) -> bool:
        """Whether the text has a name like this."""
        return re.search(pattern, self.text) is not None

    def count(self, pattern: re.Pattern[str]) -> int:
        """How many events have a name that begins so."""
        return sum(1 for event in self.events if pattern.match(str(event["name"])))

    @cached_property
    def narrow_share(self) -> float:
        """Share of the time of products whose kernels' names have a narrow type."""
        narrow = total = 0.0
        for event in self.events:
            if event.get("cat") == "kernel" and PRODUCT.search(name := str(event["name"])):
                total += float(event.get("dur", 0))
                narrow += float(event.get("dur", 0)) if NARROW.search(name) else 0.0
        return narrow / total if total else 0.0

    @property
    def is_amd(self) -> bool:
        """Whether HIP, HSA or AMD's profilers speak in it."""
        return self.has(r"\bhip[A-Z]\w+|hsa_|Cijk_|gfx\d{3}|TCC_|SQ_") and not self.has(r"\bcuda(?:Launch|Memcpy)")

    @property
    def is_torch(self) -> bool:
        """Whether PyTorch speaks in it."""
        return self.has(r"aten::|at::native|torch/nn|ProfilerStep|at_cuda_detail|c10::|triton_poi")


# Why advice is wrong on a capture, the words of the advice, and what shows it in the capture.
Check = tuple[str, str, Callable[[RawCapture], bool]]
CHECKS: tuple[Check, ...] = (
    ("a graph is replayed or captured", r"CUDAGraph|reduce-overhead|enable_cuda_graph|StreamBeginCapture|device graph",
     lambda raw: raw.has(r"(?:cuda|hip)GraphLaunch|StreamBeginCapture")),
    ("waits between single launches", r"CUDAGraph|reduce-overhead|enable_cuda_graph|StreamBeginCapture|device graph",
     lambda raw: 0 < raw.count(LAUNCHES) < FEW_LAUNCHES * raw.count(READS)),
    ("products are narrow", r"bfloat16|bf16|fp16|float16 ", lambda raw: raw.narrow_share > HALF),
    ("no DataLoader shows", r"DataLoader|worker processes", lambda raw: not raw.has(r"enumerate\(DataLoader\)")),
    ("it is a serving trace", r"DataLoader|worker processes",
     lambda raw: raw.has(r"execute_\w*context|execute_model|step\[|vllm|sglang")),
    ("no PyTorch in it", r"torch|DataLoader|\.item\(\)|non_blocking|expandable_segments",
     lambda raw: not raw.is_torch),
    ("no ONNX Runtime in it", r"ONNX Runtime|io_binding|OrtValue|enable_cuda_graph|prefer_nhwc",
     lambda raw: not raw.has(r"onnxruntime|SequentialExecutor|_kernel_time")),
    ("NVIDIA's on an AMD device", r"nvidia-smi|CUDA_VISIBLE|PYTORCH_CUDA|\bMPS\b|\bMIG\b|cudaGraph|cudaStream|NCCL on"
                                  r"|enable_cuda_graph|'cuda'", lambda raw: raw.is_amd),
    ("AMD's on an NVIDIA device", r"amd-smi|HIP_VISIBLE|hipGraph|hipStream|hipHost|RCCL on|AITER|TUNABLEOP|HIPBLASLT"
                                  r"|MIOPEN|MIOpen", lambda raw: raw.has(r"\bcuda(?:Launch|Memcpy)")),
    ("AITER computes already", r"USE_AITER",
     lambda raw: raw.has(r"N5aiter\d+\w*norm|aiter::\w*(?:norm|gemm|moe|attention)|ck_tile\w*Rmsnorm|rocm_aiter_")),
    ("no engine in it", r"USE_AITER", lambda raw: not raw.has(r"vllm|sglang|sgl_")),
    ("no kernel of hipBLASLt or rocBLAS", r"TUNABLEOP|HIPBLASLT", lambda raw: not raw.has(r"Cijk_")),
    ("nothing convolves by MIOpen", r"MIOPEN|MIOpen", lambda raw: not raw.has(r"miopen|MIOpen|igemm_")),
    ("shapes are recorded", r"record_shapes", lambda raw: raw.has(r'"Input [Dd]ims": *\[\s*\[ *\d')),
    ("copies are pinned", r"pin_memory|Page-lock|[Pp]in the host",
     lambda raw: raw.has(r"Pinned -> Device|Device -> Pinned")
     and not raw.has(r"Pageable -> Device|Device -> Pageable")),
    ("the optimizer is fused", r"fused=True|fused optimizer", lambda raw: raw.has(r"aten::_fused_(?:adam|sgd)")),
    ("no optimizer runs", r"fused=True|fused optimizer|DDP|FSDP",
     lambda raw: not raw.has(r"Optimizer\.step|multi_tensor_apply|FusedAdam|aten::_fused_adam")),
    ("it is compiled", r"torch\.compile\(model\)|with torch\.compile",
     lambda raw: raw.has(r"triton_(?:poi|red|per)_fused|Torch-Compiled Region")),
    ("channels_last is there", r"channels_last|prefer_nhwc", lambda raw: not raw.has(r"nchwToNhwc|nhwcToNchw|nchw_")),
    ("attention is fused", r"scaled_dot_product", lambda raw: raw.has(r"flash_fwd|fmha|_flash_attention|sdpa_sm")),
)
# Of the changes that pairs record: the words that advise them, and the actions that a fact must not withhold before.
CHANGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "graph": (r"CUDAGraph|reduce-overhead|device graph", ("device_graph",)),
    "narrower_types": (r"autocast|bf16 instead", ("narrower_types",)),
    "attention_fusion": (r"scaled_dot_product", ("fusion",)), "compile": (r"torch\.compile\(model\)", ("fusion",)),
    "fused_optimizer": (r"fused=True|fused optimizer", ("fusion",)), "channels_last": (r"channels_last", ()),
    "pinned_copies": (r"pin_memory|Page-lock", ("pin_memory",)), "inputs_on_device": (r"pin_memory|Page-lock", ())}


class Advised(Struct, frozen=True):
    """What the product advises on a capture: every text, the actions that a fact withholds, and the kinds of changes
    that are offered.
    """

    texts: tuple[str, ...]
    withheld: frozenset[str]
    offered: frozenset[str] = frozenset()


def advised(path: Path, settings: Settings) -> Advised | None:
    """Return what the product advises on a capture; None where it cannot read it."""
    try:
        explained = pipeline.import_captures([path], settings).explanation
    except AacoError:
        return None
    document = explained.diagnosis.document()
    texts = [NAMED.sub("", step) for label, step in content.next_steps(explained) if label != content.NOTHING]
    texts += [step for verdict in document["conditions"] for step in verdict["advice"]]
    texts += [document["abstained_because"]] if document["abstained_because"] else []
    texts += [text for action in document["optimization_priority"]
              for text in (action["title"], action.get("try")) if text]
    offered = {action["action"] for action in document["optimization_priority"]}
    return Advised(tuple(dict.fromkeys(texts)), frozenset(action["action"] for action in document["not_offered"]),
                   frozenset(action.mechanism for action in ACTIONS if action.name in offered))


def wrong(path: Path, given: Advised) -> list[str]:
    """Return each piece of advice that the capture's own text contradicts, with why."""
    raw = RawCapture(path)
    found = []
    for why, words, shows in CHECKS:
        texts = [text for text in given.texts if re.search(words, text)]
        if texts and shows(raw):
            found += [f"{why}: {text}" for text in texts]
    return found


def wrong_pair(folder: Path, mechanisms: Sequence[str], before: Advised, after: Advised) -> list[str]:
    """Return what is advised after the change that was made, and what is withheld before it."""
    found = []
    narrow = RawCapture(folder / "after.trace.json.gz").narrow_share > HALF
    for mechanism in mechanisms:
        if mechanism == "narrower_types" and not narrow:
            continue  # what became narrow are tables: the products are as wide as before
        words, actions = CHANGES.get(mechanism, (r"(?!)", ()))
        found += [f"{folder.name}, after {mechanism}: {text}" for text in after.texts if re.search(words, text)]
        found += [f"{folder.name}, before {mechanism}: {action} is withheld" for action in actions
                  if action in before.withheld and not before.offered & {*mechanisms} - {mechanism}]
    return found


def files(captures: Path) -> list[Path]:
    """Return every capture here, ours among them."""
    given = [path for pattern in FILES for path in sorted(captures.glob(pattern))]
    return [*dict.fromkeys(given), *sorted(OWN.glob("torch_scenarios*/*.trace.json.gz"))]


def claims(captures: Path) -> Iterator[Claim]:
    """Yield the count of wrong advice over all captures and over the pairs."""
    known, failed = _all(captures)
    texts = sum(len(given.texts) for given in known.values())
    yield Claim("advice that is already so or impossible, all captures", "0",
                f"{sum(failed.values())} of {texts} pieces on {len(known)} captures", not failed)
    found = [line for entry in _pairs(captures, known) for line in entry]
    yield Claim("recorded pairs: advised after the change, or withheld before it", "0",
                f"{len(found)} over {len(_listed(captures))} pairs", not found)


def _all(captures: Path) -> tuple[dict[Path, Advised], Counter[Path]]:
    known, failed = dict[Path, Advised](), Counter[Path]()
    with tempfile.TemporaryDirectory(prefix="aaco-advice-") as folder:
        settings = resolve(overrides={"storage": {"sessions_dir": folder}}, environment={})
        for path in files(captures):
            if given := advised(path, settings):
                known[path] = given
                if lines := wrong(path, given):
                    failed[path] = len(lines)
                    print(f"{path}:", *lines, sep="\n    ", file=sys.stderr)
    return known, failed


def _listed(captures: Path) -> list[dict[str, Any]]:
    listing = captures / "pairs" / "pairs.json"
    pairs: list[dict[str, Any]] = json.loads(listing.read_text())["pairs"] if listing.is_file() else []
    return pairs


def _pairs(captures: Path, known: dict[Path, Advised]) -> Iterator[list[str]]:
    for pair in _listed(captures):
        folder = captures / "pairs" / pair["pair"]
        sides = [known.get(folder / f"{side}.trace.json.gz") for side in ("before", "after")]
        if sides[0] and sides[1]:
            lines = wrong_pair(folder, pair["mechanisms"], sides[0], sides[1])
            if lines:
                print(*lines, sep="\n", file=sys.stderr)
            yield lines


def main() -> int:
    """Print the claims; 1 where one misses its bar."""
    found = list(claims(Path(os.environ.get("AACO_CAPTURES", "../shared/data"))))
    for claim in found:
        print(f"{claim.claim:<64} {claim.bar:<6} {claim.measured}")
    return int(any(claim.met is False for claim in found))


if __name__ == "__main__":
    sys.exit(main())
