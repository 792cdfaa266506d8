"""The report as a PDF, and plots as PNG: read back by programs that did not write them."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aaco.analytics.explanation import Explanation
from aaco.core.errors import Missing
from aaco.core.session import Session
from aaco.report.plots import plots
from aaco.report.renderers import bundle, outline, output_formats, typesetting
from aaco.tracelake.share import redact_bundle
from tests import explained
from tests.explained import Sample, regressed

needs_poppler = pytest.mark.skipif(not shutil.which("pdftotext") and os.environ.get("CI") != "true",
                                   reason="pdftotext (poppler-utils) is not installed")


def read(page: bytes, folder: Path, *command: str) -> str:
    file = folder / "report.pdf"
    file.write_bytes(page)
    return subprocess.run([*command, str(file), *(("-",) if command[0] == "pdftotext" else ())], check=True, text=True,
                          capture_output=True).stdout


def letters(text: str) -> str:
    """What is left of a text when lines may break anywhere."""
    return re.sub(r"[\s\u200b\u00ad-]+", "", text)


@needs_poppler
@pytest.mark.parametrize("session", [Sample(verdict=regressed()).explain, Sample(device=0).explain,
                                     Sample(profiled=False, status="incomplete").explain, explained.nothing])
def test_the_pdf_holds_the_text_of_the_outline_in_its_order(session: Callable[[], Explanation], tmp_path: Path) -> None:
    explanation = session()
    page = output_formats.encoded(explanation, "pdf")
    assert page.startswith(b"%PDF-")
    text = letters(read(page, tmp_path, "pdftotext", "-layout"))
    titles = [letters(section.title) for section in outline.sections(explanation)]
    places, start = [], 0
    for title in titles:
        start = text.index(title, start) + len(title)
        places.append(start)
    assert places == sorted(places) and len(titles) > 3
    for section in outline.sections(explanation):
        for block in section.blocks:
            for row in block.rows if isinstance(block, outline.Facts) else ():
                assert letters(row.label)[:16] in text


@needs_poppler
def test_the_figures_are_drawings_and_every_font_is_inside(tmp_path: Path) -> None:
    page = output_formats.encoded(Sample().explain(), "pdf")
    assert len(read(page, tmp_path, "pdfimages", "-list").splitlines()) == 2  # the header alone: no picture of pixels
    fonts = read(page, tmp_path, "pdffonts").splitlines()[2:]
    assert fonts and all(line.split()[-5] == "yes" for line in fonts)
    assert re.search(r"^Tagged: +yes$", read(page, tmp_path, "pdfinfo"), re.MULTILINE)


@needs_poppler
def test_hostile_names_are_text_in_a_pdf(tmp_path: Path) -> None:
    text = letters(read(output_formats.encoded(explained.hostile(), "pdf"), tmp_path, "pdftotext", "-raw"))
    assert letters("<script>document.title='owned'</script>") in text
    assert letters("{{ 7*7 }}{% raw %}${7*7}") in text
    for name in ("#read(\"/etc/passwd\")", "$ x $", "*bold* _it_ @ref <label>", "#panic()", "\\u{41}"):
        pdf = output_formats.encoded(Sample(model=name).explain(), "pdf")
        model = letters(read(pdf, tmp_path, "pdftotext", "-raw"))
        assert letters(name) in model


def test_the_same_session_gives_the_same_pdf() -> None:
    assert output_formats.encoded(Sample().explain(), "pdf") == output_formats.encoded(Sample().explain(), "pdf")


def test_a_plot_is_a_png_of_twice_its_size_and_not_blank() -> None:
    drawings = plots.drawings(Sample().explain())
    found = typesetting.pngs(drawings)
    assert list(found) == list(drawings)
    for name, picture in found.items():
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", picture[16:24]) == (2 * drawings[name].width, 2 * drawings[name].height)
    assert len({len(picture) for picture in found.values()}) == len(found)
    assert typesetting.pngs({}) == {}


def test_without_the_extra_it_says_so_and_the_bundle_says_why_it_has_no_png(monkeypatch: pytest.MonkeyPatch,
                                                                            tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "typst", None)
    monkeypatch.setattr(typesetting, "find_spec", lambda name: None)
    with pytest.raises(Missing, match="typst") as refused:
        output_formats.encoded(Sample().explain(), "pdf")
    assert refused.value.fix.endswith("pip install 'typst>=0.14'  # aaco[pdf]")
    written = bundle.write(Session(tmp_path), Sample().explain())
    assert "report/plots/kernels.svg" in written and not [name for name in written if name.endswith(".png")]
    assert bundle.absent() == {"report/plots/*.png": "typst, of the extra pdf, is not installed"}


def test_a_picture_of_a_drawing_that_shows_a_credential_is_not_handed_out(tmp_path: Path) -> None:
    for name in ("shown", "plain"):
        text = "token ghp_0123456789abcdefghijABCDEFGHIJ012345" if name == "shown" else "a kernel"
        (tmp_path / f"{name}.svg").write_text(f"<svg><text>{text}</text></svg>")
        (tmp_path / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    assert redact_bundle._redact_file(tmp_path / "shown.png", tmp_path / "copy") == (False, redact_bundle.IN_PICTURE)
    assert redact_bundle._redact_file(tmp_path / "plain.png", tmp_path / "copy") == (False, "")


def test_letters_among_the_packed_pixels_of_a_picture_are_no_credential(tmp_path: Path) -> None:
    letters = b"\0-pA1b2C3d4E5\0"

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I4s", len(content), kind) + content + bytes(4)

    pictures = {"pixels": chunk(b"IDAT", letters), "text": chunk(b"IDAT", letters[:4]) + chunk(b"tEXt", letters),
                "huge": struct.pack(">I4s", 1 << 31, b"tEXt") + letters,
                "cut": struct.pack(">I4s", 1 << 20, b"IDAT") + letters, "after": chunk(b"IEND", b"") + letters}
    left_out = {}
    for name, content in pictures.items():
        (tmp_path / name).write_bytes(redact_bundle.PNG + content)
        left_out[name] = redact_bundle._redact_file(tmp_path / name, tmp_path / "copy")[1]
    shown = redact_bundle.IN_BINARY
    assert left_out == {"pixels": "", "text": shown, "huge": shown, "cut": shown, "after": shown}
