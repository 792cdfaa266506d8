"""The CSV summary of a thread trace: what was counted for each instruction, over all traced waves.

rocprofv2 writes `att_output_NAME.csv` beside the folder `NAME_ui`, the first rocprofv3 `att_output.csv` inside its
`ui_output_*` folder, later ones `stats_FOLDER.csv` beside it. Where that folder is there, the summary belongs to its
capture and att.py reads the folder's own listing; this parser is for a summary that stands alone.
Source: rocm-systems, att-tool/code.cpp and rocprofiler/plugin/att/att_to_csv.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import INT, TEXT, WAVE_INSTRUCTIONS
from aaco.profiler import att_code, csvstream, isa, jsonfile
from aaco.profiler.capture import Facts
from aaco.profiler.csvstream import Header, Layout, Tally
from aaco.profiler.ledger import Ledger, integers, total

FORMAT = "att_stats"
FIX = "decode the trace again: rocprofv3 --att -d FOLDER -- PROGRAM"
INSTRUCTION, LABEL = "instruction", "label"
NO_INSTRUCTION = "it names a kernel and is no instruction"
ALIASES = {"addr": "vaddr", "codeobj": "code_object", "hitcount": "hits", "cycles": "latency_cycles",
           "latency": "latency_cycles", "stall": "stall_cycles", "idle": "idle_cycles", "source": "source_line",
           "c++_reference": "source_line"}
COUNTED = ("vaddr", "code_object", "hits", "latency_cycles", "stall_cycles", "idle_cycles")
COLUMNS = Layout(dict.fromkeys(COUNTED, INT) | {"instruction": TEXT, "source_line": TEXT},
                 required=frozenset(("hits", "latency_cycles")), free="instruction")
SIGNATURE = ("instruction", "hits", "latency_cycles", "source_line")


def recognises(path: Path) -> bool:
    """Whether the header is that of a summary, and no folder is there that it belongs to."""
    head = csvstream.sniff(path, ALIASES)
    return head is not None and _known(head) and not _owned(path)


def of_folder(folder: Path) -> Sequence[Path]:
    """The summaries of a decoded trace's folder: inside it or beside it."""
    beside = folder.resolve().parent
    places = [folder / "att_output.csv", beside / f"stats_{folder.resolve().name}.csv",
              beside / f"att_output_{folder.resolve().name.removesuffix('_ui')}.csv"]
    heads = [csvstream.sniff(place, ALIASES) for place in places]
    return [place for place, head in zip(places, heads, strict=True) if head is not None and _known(head)]


def totals(path: Path) -> tuple[int, int, int]:
    """Rows of a summary, and the sums of its hits and of its cycles. Raises BadCapture."""
    tally, head = Tally(), csvstream.header(path, ALIASES)
    hits = cycles = 0
    for block in csvstream.read(path, head, COLUMNS, tally):
        hits += total(integers(block["hits"].combine_chunks()))
        cycles += total(integers(block["latency_cycles"].combine_chunks()))
    return tally.rows + tally.broken, hits, cycles


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """wave_instructions, in the order of the file, and Facts. Raises BadCapture."""
    head = csvstream.header(path, ALIASES)
    if not _known(head):
        raise BadCapture(f"{path}: not a summary of a thread trace: its columns are "
                         f"{', '.join(head.written[:8])[:200]}", FIX)
    tally, ledger = Tally(), Ledger(None)
    kernel: str | None = None
    for block in csvstream.read(path, head, COLUMNS, tally):
        table, kernel = _table(block, kernel)
        ledger.saw(INSTRUCTION, table.num_rows)
        ledger.saw(LABEL, block.num_rows - table.num_rows)
        yield table
    ledger.saw(INSTRUCTION, tally.broken)
    ledger.leave_out(INSTRUCTION, csvstream.BROKEN, tally.broken)
    ledger.leave_out(LABEL, NO_INSTRUCTION, ledger.records[LABEL])
    tool = "rocprofv3" if "code_object" in head else "rocprofv2"
    yield ledger.facts(FORMAT, tuple(tally.problems(head)), tool=tool, clock="device")


def _known(head: Header) -> bool:
    return all(name in head for name in SIGNATURE) and ("vaddr" in head or "line" in head)


def _owned(path: Path) -> bool:
    """Whether the folder of the trace is there, with its listing."""
    name = path.stem
    folders = [path.parent] if name == "att_output" else [
        path.parent / name.removeprefix("stats_"), path.parent / f"{name.removeprefix('att_output_')}_ui"]
    return any(att_code.recognises(jsonfile.head(folder / "code.json")) for folder in folders)


def _table(block: pa.Table, kernel: str | None) -> tuple[pa.Table, str | None]:
    """The instructions of a block, each with the kernel that the last label named."""
    kernels, kept = [], []
    for text in block["instruction"].to_pylist():
        label = (text or "").startswith(";")
        kernel = att_code.kernel(text, kernel) if label else kernel
        kept.append(not label)
        kernels.append(kernel)
    whole = block.filter(pa.array(kept, pa.bool_()))
    columns = {name: whole[name] for name in whole.column_names}
    texts = whole["instruction"].to_pylist()
    columns["source_line"] = [line or None for line in whole["source_line"].to_pylist()]
    return WAVE_INSTRUCTIONS.build(
        category=[isa.category(text or "") for text in texts],
        kernel_name=[name for name, keep in zip(kernels, kept, strict=True) if keep], **columns), kernel
