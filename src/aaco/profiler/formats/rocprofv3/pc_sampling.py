"""Program-counter samples that rocprofv3 writes as CSV, added up per dispatch, instruction and finding.

Two methods write such files. A host trap records where a wave was, up to two instructions late; stochastic sampling,
done by the hardware, also records whether the instruction issued there, and if not, why. The stall reason of an
instruction that did issue means nothing and is dropped. att.py reads the viewer's form of samples; rocprofv3_json
reads the JSON form.
Source: rocprofiler-sdk, source/docs/how-to/using-pc-sampling.rst and include/rocprofiler-sdk/pc_sampling.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.errors import BadCapture
from aaco.core.tables import INT, TEXT, WAVE_INSTRUCTIONS
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.code_object import isa
from aaco.profiler.formats.rocprofv3.sampling import SampleGroups, word
from aaco.profiler.io import csvstream
from aaco.profiler.io.csvstream import CsvTally, Header, Layout
from aaco.profiler.io.record_accounting import RecordAccount

FORMAT = "pc_sampling"
TOOL = "rocprofv3"
FIX = "record it again: rocprofv3 --pc-sampling-beta-enabled --pc-sampling-method stochastic -f csv -- PROGRAM"
SAMPLE = "sample"
SIGNATURE = ("sample_timestamp", "exec_mask", "instruction")
COLUMNS = Layout({"dispatch_id": INT, "correlation_id": INT, "instruction": TEXT, "instruction_comment": TEXT,
                  "wave_issued_instruction": INT, "instruction_type": TEXT, "stall_reason": TEXT, "wave_count": INT},
                 free="instruction")
KEYS = ("dispatch_id", "correlation_id", "instruction", "source_line", "issued", "issue_type", "stall_reason")


def recognises(path: Path) -> bool:
    """Return whether the file's header is one of PC sampling."""
    head = csvstream.sniff(path, {})
    return head is not None and all(name in head for name in SIGNATURE)


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield wave_instructions: a row per dispatch, instruction, source line and finding, its samples added up; then
    facts.

    In a capture of more than sampling.MOST_GROUPS such, one may have several rows, which add up. Raise BadCapture.
    """
    head = csvstream.header(path, {})
    if not all(name in head for name in SIGNATURE):
        raise BadCapture(f"{path}: not PC samples: its columns are {', '.join(head.written[:8])[:200]}", FIX)
    tally, account = CsvTally(), RecordAccount(None)
    for groups in _read_groups(path, head, tally):
        category = _map_texts(groups["instruction"], isa.category)
        yield WAVE_INSTRUCTIONS.build(category=category, **{name: groups[name] for name in groups.column_names})
    account.saw(SAMPLE, tally.rows + tally.broken)
    account.leave_out(SAMPLE, csvstream.BROKEN, tally.broken)
    method = "stochastic" if "wave_issued_instruction" in head else "host_trap"
    yield account.facts(FORMAT, tuple(tally.problems(head)), tool=TOOL, metadata={"mode": method})


def _read_groups(path: Path, head: Header, tally: CsvTally) -> Iterator[pa.Table]:
    """Yield all samples, added up by KEYS."""
    findings = SampleGroups(KEYS)
    for block in csvstream.read(path, head, COLUMNS, tally):
        yield from findings.add(_build_findings(block))
    yield from findings.rest()


def _build_findings(block: pa.Table) -> pa.Table:
    """Return the finding of each sample, in the words of wave_instructions."""
    columns = {name: block[name] for name in KEYS[:3] if name in block.column_names}
    if "instruction_comment" in block.column_names:
        comment = block["instruction_comment"]
        columns["source_line"] = pc.if_else(pc.equal(comment, ""), None, comment)
    if "wave_issued_instruction" in block.column_names:
        issued = pc.not_equal(block["wave_issued_instruction"], 0)
        columns |= {"issued": issued, "issue_type": _build_words(block, "instruction_type", issued),
                    "stall_reason": _build_words(block, "stall_reason", pc.invert(issued))}
    if "wave_count" in block.column_names:
        columns["active_waves"] = block["wave_count"]
    return pa.table(columns | {"samples": np.ones(block.num_rows, np.int64)})


def _build_words(block: pa.Table, name: str, only: pa.ChunkedArray) -> pa.Array:
    """Return the profiler's constants as words in lower case where `only` is true, else null."""
    if name not in block.column_names:
        return pa.nulls(block.num_rows, TEXT)
    words = _map_texts(block[name], word)
    return pc.if_else(pc.fill_null(only, False), words, None)


def _map_texts(column: pa.ChunkedArray, change: Callable[[str], str]) -> pa.Array:
    """Return the texts changed; each distinct one is changed once."""
    texts = column.combine_chunks().dictionary_encode()
    changed = pa.array([change(text or "") for text in texts.dictionary.to_pylist()], TEXT)
    return changed.take(texts.indices)
