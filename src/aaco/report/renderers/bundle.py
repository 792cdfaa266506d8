"""The report files that every sealed bundle carries."""

from __future__ import annotations

from aaco.analytics.explanation import Explanation
from aaco.core import files
from aaco.core.session import Session
from aaco.report.plots import plots
from aaco.report.renderers import html, typesetting
from aaco.tracelake import layout

PICTURES = f"{layout.PLOTS}/*.png"


def write(session: Session, explanation: Explanation) -> list[str]:
    """Write the HTML report and its plots into the session's folder; return their names. Raise StorageError."""
    drawings = plots.drawings(explanation)
    pages = {layout.HTML_REPORT: html.render(explanation, drawings).encode()}
    pages |= {f"{layout.PLOTS}/{name}.svg": drawing.standalone().encode() for name, drawing in drawings.items()}
    if not typesetting.why_no_png():
        pages |= {f"{layout.PLOTS}/{name}.png": made for name, made in typesetting.pngs(drawings).items()}
    for name, page in pages.items():
        files.write_atomically(session.folder / name, lambda file, page=page: file.write(page))  # type: ignore[misc]
    return list(pages)


def absent() -> dict[str, str]:
    """Return the files that this machine does not write, with the reason."""
    why = typesetting.why_no_png()
    return {PICTURES: why} if why else {}
