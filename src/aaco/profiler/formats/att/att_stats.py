"""The CSV summary of a thread trace: the counts of each instruction, over all traced waves.

rocprofv2 writes `att_output_NAME.csv` next to the folder `NAME_ui`, the first rocprofv3 `att_output.csv` inside its
`ui_output_*` folder, later ones `stats_FOLDER.csv` next to it. If that folder exists, the summary belongs to its
capture and att.py reads the folder's own listing; this parser is for a summary without a folder.
Source: rocm-systems, att-tool/code.cpp and rocprofiler/plugin/att/att_to_csv.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import INT, TEXT, WAVE_INSTRUCTIONS
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.att import att_code
from aaco.profiler.formats.code_object import isa
from aaco.profiler.io import csvstream, jsonfile
from aaco.profiler.io.csvstream import CsvTally, Header, Layout
from aaco.profiler.io.record_accounting import RecordAccount, integers, total

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
    """Return whether the header is that of a summary, and the folder that it would belong to does not exist."""
    head = csvstream.sniff(path, ALIASES)
    return head is not None and _is_summary(head) and not _has_folder(path)


def of_folder(folder: Path) -> Sequence[Path]:
    """Return the summaries of a decoded trace's folder: inside it or next to it."""
    parent = folder.resolve().parent
    paths = [folder / "att_output.csv", parent / f"stats_{folder.resolve().name}.csv",
             parent / f"att_output_{folder.resolve().name.removesuffix('_ui')}.csv"]
    heads = [csvstream.sniff(path, ALIASES) for path in paths]
    return [path for path, head in zip(paths, heads, strict=True) if head is not None and _is_summary(head)]


def totals(path: Path) -> tuple[int, int, int]:
    """Return the rows of a summary, and the sums of its hits and of its cycles. Raise BadCapture."""
    tally, head = CsvTally(), csvstream.header(path, ALIASES)
    hits = cycles = 0
    for block in csvstream.read(path, head, COLUMNS, tally):
        hits += total(integers(block["hits"].combine_chunks()))
        cycles += total(integers(block["latency_cycles"].combine_chunks()))
    return tally.rows + tally.broken, hits, cycles


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield wave_instructions, in the order of the file, and facts. Raise BadCapture."""
    head = csvstream.header(path, ALIASES)
    if not _is_summary(head):
        raise BadCapture(f"{path}: not a summary of a thread trace: its columns are "
                         f"{', '.join(head.written[:8])[:200]}", FIX)
    tally, account = CsvTally(), RecordAccount(None)
    kernel: str | None = None
    for block in csvstream.read(path, head, COLUMNS, tally):
        table, kernel = _build_table(block, kernel)
        account.saw(INSTRUCTION, table.num_rows)
        account.saw(LABEL, block.num_rows - table.num_rows)
        yield table
    account.skip(INSTRUCTION, csvstream.BROKEN, tally.broken)
    account.leave_out(LABEL, NO_INSTRUCTION, account.records[LABEL])
    tool = "rocprofv3" if "code_object" in head else "rocprofv2"
    yield account.facts(FORMAT, tuple(tally.problems(head)), tool=tool, clock="device")


def _is_summary(head: Header) -> bool:
    return all(name in head for name in SIGNATURE) and ("vaddr" in head or "line" in head)


def _has_folder(path: Path) -> bool:
    """Return whether the folder of the trace exists, with its listing."""
    name = path.stem
    folders = [path.parent] if name == "att_output" else [
        path.parent / name.removeprefix("stats_"), path.parent / f"{name.removeprefix('att_output_')}_ui"]
    return any(att_code.recognises(jsonfile.head(folder / "code.json")) for folder in folders)


def _build_table(block: pa.Table, kernel: str | None) -> tuple[pa.Table, str | None]:
    """Return the instructions of a block, each with the kernel of the last label, and the last kernel."""
    kernels, kept = [], []
    for text in block["instruction"].to_pylist():
        label = (text or "").startswith(";")
        kernel = att_code.kernel(text, kernel) if label else kernel
        kept.append(not label)
        kernels.append(kernel)
    instructions = block.filter(pa.array(kept, pa.bool_()))
    columns = {name: instructions[name] for name in instructions.column_names}
    texts = instructions["instruction"].to_pylist()
    columns["source_line"] = [line or None for line in instructions["source_line"].to_pylist()]
    return WAVE_INSTRUCTIONS.build(
        category=[isa.category(text or "") for text in texts],
        kernel_name=[name for name, keep in zip(kernels, kept, strict=True) if keep], **columns), kernel
