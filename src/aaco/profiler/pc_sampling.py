"""Program-counter samples that rocprofv3 writes as CSV, added up per dispatch, instruction and finding.

Two methods write such files. A host trap knows where a wave was, up to two instructions late; stochastic sampling, done
by the hardware, also knows whether the instruction issued there, and if not, why. The reason that stands beside an
instruction which did issue means nothing and is left away. The viewer's form of samples is read by att.py, the JSON
form with the rest of rocprofv3's JSON.
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
from aaco.profiler import csvstream, isa
from aaco.profiler.capture import Facts
from aaco.profiler.csvstream import Header, Layout, Tally
from aaco.profiler.ledger import Ledger
from aaco.profiler.sampling import Findings, word

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
    """Whether the file's header is one of PC sampling."""
    head = csvstream.sniff(path, {})
    return head is not None and all(name in head for name in SIGNATURE)


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """wave_instructions: a row per dispatch, instruction, source line and finding, its samples added up; and Facts.

    In a capture of more than sampling.MOST_GROUPS such, one may have several rows, which add up. Raises BadCapture.
    """
    head = csvstream.header(path, {})
    if not all(name in head for name in SIGNATURE):
        raise BadCapture(f"{path}: not PC samples: its columns are {', '.join(head.written[:8])[:200]}", FIX)
    tally, ledger = Tally(), Ledger(None)
    for groups in _groups(path, head, tally):
        category = _mapped(groups["instruction"], isa.category)
        yield WAVE_INSTRUCTIONS.build(category=category, **{name: groups[name] for name in groups.column_names})
    ledger.saw(SAMPLE, tally.rows + tally.broken)
    ledger.leave_out(SAMPLE, csvstream.BROKEN, tally.broken)
    method = "stochastic" if "wave_issued_instruction" in head else "host_trap"
    yield ledger.facts(FORMAT, tuple(tally.problems(head)), tool=TOOL, metadata={"mode": method})


def _groups(path: Path, head: Header, tally: Tally) -> Iterator[pa.Table]:
    """All samples, added up by KEYS."""
    findings = Findings(KEYS)
    for block in csvstream.read(path, head, COLUMNS, tally):
        yield from findings.add(_findings(block))
    yield from findings.rest()


def _findings(block: pa.Table) -> pa.Table:
    """What each sample found, in the words of wave_instructions."""
    found = {name: block[name] for name in KEYS[:3] if name in block.column_names}
    if "instruction_comment" in block.column_names:
        comment = block["instruction_comment"]
        found["source_line"] = pc.if_else(pc.equal(comment, ""), None, comment)
    if "wave_issued_instruction" in block.column_names:
        issued = pc.not_equal(block["wave_issued_instruction"], 0)
        found |= {"issued": issued, "issue_type": _word(block, "instruction_type", issued),
                  "stall_reason": _word(block, "stall_reason", pc.invert(issued))}
    if "wave_count" in block.column_names:
        found["active_waves"] = block["wave_count"]
    return pa.table(found | {"samples": np.ones(block.num_rows, np.int64)})


def _word(block: pa.Table, name: str, only: pa.ChunkedArray) -> pa.Array:
    """The profiler's constants as words in lower case, where `only` is true."""
    if name not in block.column_names:
        return pa.nulls(block.num_rows, TEXT)
    words = _mapped(block[name], word)
    return pc.if_else(pc.fill_null(only, False), words, None)


def _mapped(column: pa.ChunkedArray, change: Callable[[str], str]) -> pa.Array:
    """The texts changed, each distinct one once."""
    texts = column.combine_chunks().dictionary_encode()
    changed = pa.array([change(text or "") for text in texts.dictionary.to_pylist()], TEXT)
    return changed.take(texts.indices)
