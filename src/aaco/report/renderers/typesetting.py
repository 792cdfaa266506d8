"""The report as a PDF, and the plots as PNG, by Typst (extra `pdf`): text stays text, figures stay drawings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Literal

from aaco.analytics.explanation import Explanation
from aaco.core import extras
from aaco.core.errors import AacoError
from aaco.report import format
from aaco.report.plots import plots
from aaco.report.renderers import outline
from aaco.report.renderers.outline import Block, Code, Facts, Items, Table, Words
from aaco.report.sections import content, kernels
from aaco.report.svg import Drawing

FONTS = ("Inter", "Liberation Sans", "DejaVu Sans", "Arial", "Helvetica", "Libertinus Serif")
CODE_FONTS = ("DejaVu Sans Mono",)
NAME, TEXT = 160, 1200  # columns: a longer name, or text, loses its middle
BREAK_AFTER = "/_-.:,(<"
SCALE = 2  # pixels of a PNG per unit of its drawing
NARROW = 500  # units: a narrower drawing takes part of the page's width
_PICTURES = """#let report = json(bytes(sys.inputs.report))
#set text(font: report.fonts)
#for picture in report.pictures {
  page(width: picture.width * 1pt, height: picture.height * 1pt, margin: 0pt, fill: white,
    image(bytes(picture.svg), format: "svg", width: 100%))
}
"""


def render(explanation: Explanation) -> bytes:
    """Return the PDF; the same session gives the same text and figures. Raise Missing without Typst."""
    (made,) = _compile(_template(), document(explanation), "pdf")
    return made


def pngs(drawings: Mapping[str, Drawing]) -> dict[str, bytes]:
    """Return each drawing as PNG at twice its size. Raise Missing without Typst."""
    pictures = [{"svg": drawing.standalone(), "width": drawing.width, "height": drawing.height}
                for drawing in drawings.values()]
    made = _compile(_PICTURES, {"pictures": pictures, "fonts": FONTS}, "png", 72.0 * SCALE) if pictures else []
    return dict(zip(drawings, made, strict=True))


def why_no_png() -> str:
    """Return why plots are not written as PNG; empty if they are."""
    return "" if find_spec("typst") else "typst, of the extra pdf, is not installed"


def document(explanation: Explanation) -> dict[str, Any]:
    """Return what the template prints."""
    model, backend = content.heading(explanation)
    drawings = plots.drawings(explanation)
    created = str(explanation.record.get("created_utc") or "")[:19].replace("T", " ")
    facts = (f"recorded {created} UTC" if created else "", str(explanation.machine.get("label") or ""),
             f"kernels ran on {place}" if (place := kernels.place(explanation)) else "", explanation.status)
    return {"title": f"{format.name(model, 80)} on {format.cut(backend, 60)}",
            "subtitle": format.clean("; ".join(filter(None, facts))), "session": format.clean(explanation.session_id),
            "version": str(explanation.record.get("tool_version") or ""), "fonts": FONTS, "code_fonts": CODE_FONTS,
            "banners": [format.cut(text, TEXT) for text in content.banners(explanation)],
            "sections": [{"title": section.title, "blocks": list(_blocks(section.blocks, drawings))}
                         for section in outline.sections(explanation)]}


def _blocks(blocks: Iterable[Block], drawings: Mapping[str, Drawing]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if isinstance(block, Facts):
            yield {"kind": "facts", "rows": [{"label": format.cut(row.label, NAME), "text": format.cut(row.text, TEXT)}
                                             for row in block.rows]}
        elif isinstance(block, Table):
            yield {"kind": "table", "title": _line(block.title), "header": list(block.header), "widths": _widths(block),
                   "rows": [[_line((cell,)) for cell in row] for row in block.rows], "numeric": block.numeric,
                   "notes": [format.cut(note, TEXT) for note in block.notes]}
        elif isinstance(block, Items):
            yield {"kind": "items", "items": [_line(item) for item in block.items]}
        elif isinstance(block, Words):
            yield {"kind": "words", "parts": _line(block.parts)}
        elif block.name in drawings:
            drawing = drawings[block.name]
            yield {"kind": "figure", "svg": drawing.standalone(), "alt": format.clean(drawing.label),
                   "narrow": drawing.width < NARROW}


def _widths(table: Table) -> list[bool]:
    """Return which columns take the remaining width: those with long words, else the first."""
    wide = [max((len(str(row[column])) for row in table.rows), default=0) > 18 for column in range(len(table.header))]
    return wide if any(wide) else [True, *wide[1:]]


def _line(parts: Iterable[str]) -> list[dict[str, Any]]:
    """Return the parts of a line; a name may break after separators."""
    return [{"text": _breakable(format.name(part, NAME)) if isinstance(part, Code) else format.cut(part, TEXT),
             "code": isinstance(part, Code)} for part in parts if part]


def _breakable(name: str) -> str:
    return "".join(f"{letter}\N{ZERO WIDTH SPACE}" if letter in BREAK_AFTER else letter for letter in name)


def _compile(source: str, report: Mapping[str, Any], form: Literal["pdf", "png"], ppi: float = 144.0) -> list[bytes]:
    """Return the document, or each of its pages as a picture. A PDF is tagged, but not declared PDF/UA, which rejects
    a name in letters that no installed font has."""
    try:
        import typst
    except ModuleNotFoundError as error:
        raise extras.missing(error) or error from error
    try:
        made: Any = typst.compile(source.encode(), format=form, ppi=ppi, timestamp=0,
                                  sys_inputs={"report": json.dumps(report, allow_nan=False)})
    except typst.TypstError as error:
        raise AacoError(f"Typst cannot set the report: {format.cut(str(error), 200)}") from error
    return made if isinstance(made, list) else [made]


@cache
def _template() -> str:
    return (files("aaco.report") / "templates/report.typ").read_text()
