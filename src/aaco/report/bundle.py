"""The report files that every sealed bundle carries."""

from __future__ import annotations

from aaco.analytics.explanation import Explanation
from aaco.core import files
from aaco.core.session import Session
from aaco.report import html
from aaco.tracelake import layout


def write(session: Session, explanation: Explanation) -> list[str]:
    """Write the HTML report and its plots into the session's folder; their names. Raises StorageError."""
    pages = {layout.HTML_REPORT: html.render(explanation)}
    pages |= {f"{layout.PLOTS}/{name}": svg for name, svg in html.plots(explanation).items()}
    for name, text in pages.items():
        files.write_atomically(session.folder / name, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
    return list(pages)
