"""`aaco ir`: what a compiler made of a program, and which of its passes were worth their time."""

from __future__ import annotations

from pathlib import Path

import click

from aaco.cli import manual, options, say

MOST_BYTES = 256 << 20


@manual.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--top", type=options.COUNT, default=20, show_default=True, help="How many functions or passes.")
@options.as_json
def ir(file: Path, top: int, as_json: bool) -> None:
    """Functions of a compiler's text FILE, or what its log FILE says of the passes.

    Programs: LLVM IR, MLIR (Triton, ROCm), MIGraphX. Logs: -time-passes, -mlir-timing, -ftime-trace, dumps after each
    pass, MIGRAPHX_TIME_PASSES, MIGRAPHX_TRACE_COMPILE.
    """
    from aaco.analytics.compiler import document
    from aaco.core.errors import BadCapture
    from aaco.profiler.io.jsonfile import content
    from aaco.report.sections.ir import lines

    read = document(content(file, MOST_BYTES).decode(errors="replace"))
    if read is None:
        raise BadCapture(f"{file}: neither a program nor a log of passes that is known",
                         "aaco ir --help names those that are; aaco isa reads code objects and assembly")
    say.answer(as_json, read, lambda _: (line.rstrip() for line in lines(read, top)))
