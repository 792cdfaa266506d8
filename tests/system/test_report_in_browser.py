"""The report as a reader meets it: its first screen, by mouse, keyboard and screen reader, on paper, unharmed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from aaco import pipeline
from aaco.core.config import resolve
from aaco.report.plots import flame_graph
from aaco.report.renderers import html
from aaco.report.sections import outliers
from tests import explained, kineto_files
from tests.browser.chromium import Browser, Page
from tests.explained import HOSTILE, Sample, regressed

TRACE = Path(__file__).parents[1] / "captures" / "torch_h200" / "resnet50_nchw.json.gz"
LIMIT = 1_500_000


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path_factory.mktemp("imported"))}})
    return pipeline.import_captures([TRACE], settings).explanation


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """20,000 kernels, whose names differ at their ends."""
    folder = tmp_path_factory.mktemp("long")
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Layout<{}, {}>>(int)"
    layers = [(f"layer{at}", [(name.format(at % 40, turn % 7), 10.0 + turn % 7) for turn in range(25)])
              for at in range(40)]
    trace = kineto_files.write(folder / "long.json", layers, steps=20)
    settings = resolve(overrides={"storage": {"sessions_dir": str(folder / "sessions")}})
    return pipeline.import_captures([trace], settings).explanation


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    opened: list[Page] = []

    def of(explanation: Any, **how: Any) -> Page:
        file = tmp_path / f"report-{len(opened)}.html"
        file.write_text(html.render(explanation))
        assert file.stat().st_size < LIMIT
        opened.append(browser.open(file.as_uri(), **how))
        return opened[-1]

    yield of
    for page in opened:
        assert page.errors == [] and page.external == []
        page.close()


def compared() -> Any:
    """A session that was slower than its baseline, watched, with a long iteration that is explained."""
    verdict = regressed()
    verdict["metrics"] = [{"metric": "latency_ms", "effect_pct": 7.25, "ci": [5.5, 9.0], "status": "regressed"}]
    session = Sample(processes=1, verdict=verdict).explain()
    table = session.tables["inference_iters"]
    worst = outliers.outliers(session)[0].turn
    for name, value, other in (("clean", False, True), ("noise_reasons", ["waiting for a CPU"], []),
                               ("noise_impact_pct", 21.25, 0.0)):
        at = table.schema.get_field_index(name)
        values = [value if row == worst else other for row in range(table.num_rows)]
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    return replace(session, tables={**session.tables, "inference_iters": table})


def test_the_first_screen_holds_verdict_time_bar_and_advice(show: Any, imported: Any) -> None:
    """And then the table of contents. Mutation: the tiles above the advice."""
    page = show(compared(), width=1280, height=900)
    inside = """(() => [...document.querySelectorAll(
      "#verdict .label, #verdict .answers dt, #verdict .stack, #verdict .steps, nav")]
      .filter((one) => one.getBoundingClientRect().bottom <= innerHeight)
      .map((one) => one.innerText ?? one.tagName))()"""
    seen = page.evaluate(inside)
    assert seen[:4] == ["Compute-bound", "Did it get slower", "Can it be trusted", "svg"] and len(seen) == 6
    assert page.text("#verdict .answers").startswith("Did it get slower\nregressed +7.2 % [+5.5, +9.0]")
    assert "Nodes that arithmetic limits take 78." in page.text("#verdict")
    assert len(show(imported, height=900).evaluate(inside)) == 5  # it was compared with nothing


def test_a_long_trace_has_a_short_page(show: Any, long: Any) -> None:
    """20,000 kernels of 280 names. Mutation: the definitions laid open."""
    page = show(long, width=1280)
    assert page.evaluate("document.documentElement.scrollHeight") <= 12_000
    wide = """[...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll, .drawing, .static, nav")
      && one.getBoundingClientRect().right > innerWidth).length"""
    assert show(long, width=390).evaluate(wide) == 0
    names = page.texts("#groups tbody th")
    assert len(names) == 60 == len(set(names))


def test_answers_follow_in_the_order_of_the_questions(show: Any) -> None:
    page = show(compared())
    assert page.texts("main > section > h2, #h-verdict") == [
        "What limits it", "What it rests on", "Where the time went", "Is the measurement good", "Top kernels",
        "Distance from the roof", "Iterations, and what made some of them long", "Change against the baseline",
        "What to do next", "All metrics", "What is not measured, and why", "Environment and bundle", "Definitions"]
    assert page.text("#absent .notes") == "Devices: no device was recorded (aaco run --telemetry)"
    rows = page.texts("#time .parts tbody tr")
    parts = [int(re.search(r"([\d,]+) ns$", row)[1].replace(",", "")) for row in rows]  # type: ignore[index]
    assert sum(parts[:-1]) == parts[-1]
    assert page.visible("waiting for a CPU, estimated to cost 21.2 % of it")
    assert [row.split("\t")[0] for row in page.texts("#iterations .scroll tbody tr")][:3] == ["1", "2", "3"]


def test_a_figure_leads_to_its_definition_table_and_capture(show: Any) -> None:
    page = show(compared())
    caption = page.text("#fig-latency_series figcaption")
    assert "metrics/inference_iters.parquet" in caption and "read from runtime/iterations-*.i64" in caption
    page.click(selector="#fig-latency_series figcaption a")
    page.wait_address("#file-metrics/inference_iters.parquet")
    page.click(selector="#fig-latency_series figcaption a[href='#def-latency_p50_ms']")
    assert page.visible(selector="#def-latency_p50_ms")
    assert "runtime/iterations-*.i64" in page.text("#environment")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_serious_stands_between_a_reader_and_the_page(show: Any, imported: Any, dark: bool, width: int) -> None:
    for session in (compared(), imported):
        page = show(session, dark=dark, width=width)
        assert page.findings() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_definition_shows_by_pointer_and_by_keyboard_and_is_told(show: Any) -> None:
    page = show(Sample().explain())
    page.hover(selector="#quality a[href='#def-closure_ratio']")
    told = page.text("#tip")
    assert "wall" in told.lower() and page.visible(selector="#tip")
    page.press("Escape")
    assert not page.visible(selector="#tip")
    page.evaluate("document.querySelector('#quality a').focus()")
    page.press("Tab")
    assert page.visible(selector="#tip")
    assert page.text("#tip") == page.evaluate("document.activeElement.getAttribute('aria-description')")


def test_the_flame_graph_is_walked_and_widened_by_keyboard_and_mouse(show: Any, imported: Any) -> None:
    page = show(imported)
    frames = """[...document.querySelectorAll("#fig-flame_graph rect.frame")]
      .filter((one) => one.checkVisibility() && one.style.display !== "none").length"""
    every = page.evaluate(frames)
    page.evaluate("document.querySelector('#fig-flame_graph .drawing').focus()")
    page.press("ArrowDown")
    page.press("ArrowDown")
    picked = page.text(".picked-text")
    heaviest = max(flame_graph.of(imported), key=lambda one: one.ns)
    assert re.fullmatch(r".+: [\d.]+ (ms|us), [\d.]+ %", picked), heaviest
    page.press("Enter")
    widened = page.evaluate(frames)
    assert widened < every
    page.press("Escape")
    assert page.evaluate(frames) == every
    page.click(selector="#fig-flame_graph rect.frame", nth=2)
    assert page.evaluate(frames) < every


def test_names_of_a_capture_do_nothing_in_a_real_browser(show: Any) -> None:
    page = show(explained.hostile())
    assert page.title.startswith("<script>document.title='owned'</script>")
    assert HOSTILE[0] in page.text("h1")
    page.hover(selector="#fig-flame_graph rect.frame", nth=3)
    page.evaluate("document.querySelector('#fig-flame_graph .drawing').focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "Enter"):
        page.press(key)
    assert "owned" not in page.title.removeprefix("<script>document.title='owned'</script>")
    assert page.evaluate("document.querySelectorAll('#fig-flame_graph script, #tip *, .picked-text *').length") == 0


def test_on_paper_it_is_light_and_whole(show: Any) -> None:
    page = show(compared(), dark=True)
    page.appearance(printed=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.visible(selector="nav") and not page.visible("Reset zoom")
    assert page.visible(selector="#fig-latency_series svg") and page.visible(selector="#fig-flame_graph svg")
    cut = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollHeight > one.clientHeight + 1).length"
    assert page.evaluate(cut) == 0


def test_without_script_everything_is_there_to_read(show: Any) -> None:
    page = show(compared(), script=False)
    assert page.visible(selector="#fig-latency_series svg") and page.visible(selector="#fig-flame_graph svg")
    assert not page.visible(selector="#theme")
    assert "Compute-bound" in page.text("#verdict")
