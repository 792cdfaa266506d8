"""`aaco isa`: what a GPU code object, or its assembler text, says of its kernels."""

from __future__ import annotations

from pathlib import Path

import click

from aaco.cli import manual, options, say


@manual.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.as_json
def isa(file: Path, as_json: bool) -> None:
    """Say what FILE (.hsaco, .co, .amdgcn) holds: registers, memory, spills, arguments, occupancy of each kernel.

    Of assembler text also the mix of instructions. Occupancy is what the device could hold at once, and which resource
    allows no more.
    """
    from aaco.core.errors import BadCapture
    from aaco.profiler.formats.code_object import assembly, code_object
    from aaco.profiler.io import jsonfile
    from aaco.report.sections import isa as shown

    jsonfile.beginning(file)
    if assembly.recognises(file):
        described, texts = assembly.read(file)
        document = shown.document([described], texts)
    elif code_object.recognises(file):
        document = shown.document(code_object.read(file), None)
    else:
        raise BadCapture(f"{file}: neither an AMD GPU code object nor its assembler text",
                         "give a .hsaco, .co or .amdgcn file: Triton keeps them in its cache, clang -S writes them")
    say.answer(as_json, document, shown.lines)
