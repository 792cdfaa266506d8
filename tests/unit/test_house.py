"""`scripts/house` on small planted trees: each figure has the value that was counted by hand, and the ratchet holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = """
[[tool.importlinter.contracts]]
name = "Metrics stay pure"
type = "forbidden"

[[tool.importlinter.contracts]]
name = "Arrows point down"
type = "layers"
containers = ["aaco"]
layers = ["cli | api", "pipeline", "report | (fleet)", "analytics", "core"]
ignore_imports = ["aaco.core.door -> aaco.*"]
"""


def plant(root: Path, texts: dict[str, str]) -> Path:
    """Write modules into a tree and return its root; `core/plan` is src/aaco/core/plan.py."""
    (root / "scripts").mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text(PYPROJECT)
    for name, text in texts.items():
        path = root / "src/aaco" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def house(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a tree."""
    command = [sys.executable, ROOT / "scripts/house", "--root", root, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def figures(root: Path, *arguments: str) -> dict[str, float]:
    """Return the figures of a tree by name."""
    completed = house(root, "--json", *arguments)
    assert completed.returncode == 0, completed.stderr
    return {row["figure"]: row["value"] for row in json.loads(completed.stdout)["figures"]}


def test_loose_modules_and_layers(tmp_path: Path) -> None:
    """Packages, `__init__` and `__main__` are not loose. Mutation: count src/aaco/*.py without exceptions."""
    plant(tmp_path, dict.fromkeys(["pipeline", "api", "__init__", "__main__", "core/__init__", "core/plan"], ""))
    assert house(tmp_path, "--list", "loose-modules").stdout.splitlines() == [
        "src/aaco/api.py:1 aaco.api", "src/aaco/pipeline.py:1 aaco.pipeline"]
    assert figures(tmp_path)["loose-modules"] == 2
    assert figures(tmp_path)["layers"] == 5


def test_upward_imports(tmp_path: Path) -> None:
    """Imports inside functions count; those for type checkers, of the same layer or ignored by the contract do not."""
    plant(tmp_path, {
        "pipeline": "", "api": "import aaco.core.plan\n", "report/page": "", "core/door": "import aaco.pipeline\n",
        "core/machine": "import aaco.core.plan\n",
        "core/plan": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aaco.report import page\n"
                     "else:\n    import aaco.api\n",
        "analytics/idle": "def f():\n    from aaco.report import page\n    from aaco.core import plan\n"})
    assert figures(tmp_path)["upward-imports"] == 2
    assert house(tmp_path, "--list", "upward-imports").stdout.splitlines() == [
        "src/aaco/analytics/idle.py:2 aaco.analytics.idle -> aaco.report.page",
        "src/aaco/core/plan.py:5 aaco.core.plan -> aaco.api"]
    assert "the contract ignores 1 more" in house(tmp_path).stdout


def test_a_circle_of_modules_is_found_through_functions_and_relative_imports(tmp_path: Path) -> None:
    """Two circles, of three and of two modules; d imports e for type checkers only."""
    plant(tmp_path, {
        "core/a": "from aaco.core.b import name\n", "core/b": "def f():\n    import aaco.core.c\n",
        "core/c": "async def f():\n    from . import a\n",
        "core/d": "import typing\nif typing.TYPE_CHECKING:\n    import aaco.core.e\n", "core/e": "import aaco.core.d\n",
        "core/x": "if not TYPE_CHECKING:\n    from .y import name\n", "core/y": "from ..core import x\n"})
    counted = figures(tmp_path)
    assert (counted["module-circles"], counted["modules-in-circles"]) == (2, 5)
    assert (counted["folder-circles"], counted["folders-in-circles"]) == (0, 0)
    listing = house(tmp_path, "--list", "module-circles").stdout.splitlines()
    assert "circle of 3: aaco.core.a, aaco.core.b, aaco.core.c" in listing
    assert "circle of 2: aaco.core.x, aaco.core.y" in listing


def test_no_cut_is_superfluous(tmp_path: Path) -> None:
    """b -> c is the lightest edge of one circle, but a -> b must go for the other circle and is enough for both."""
    plant(tmp_path, {"core/a": "import aaco.core.b\n" * 2,
                     "core/b": "import aaco.core.c\n" + "import aaco.core.a\n" * 3,
                     "core/c": "import aaco.core.a\n" * 3})
    listing = house(tmp_path, "--list", "module-circles").stdout.splitlines()
    assert [line for line in listing if "cut" in line] == ["  cut aaco.core.a -> aaco.core.b:"]


def test_an_import_of_a_submodule_is_none_of_its_package(tmp_path: Path) -> None:
    """The package imports its module, which imports a sibling. Mutation: take the parents as targets, too."""
    plant(tmp_path, {"core/__init__": "from aaco.core import plan\n", "core/plan": "import aaco.core.other\n",
                     "core/other": ""})
    assert figures(tmp_path)["module-circles"] == 0
    plant(tmp_path, {"core/other": "from aaco.core import VERSION\n"})
    assert house(tmp_path, "--list", "modules-in-circles").stdout.startswith(
        "circle of 3: aaco.core, aaco.core.other, aaco.core.plan\n")


def test_circles_of_folders_without_a_circle_of_modules(tmp_path: Path) -> None:
    """report and fleet import each other, over a subfolder; so do a folder and the file next to it."""
    plant(tmp_path, {
        "report/deep/page": "import aaco.fleet.queue\nimport aaco.fleet.agent\n", "report/plot": "",
        "fleet/store/files": "from aaco.report.plot import draw\n", "fleet/queue": "", "fleet/agent": "",
        "analytics/costs/torch": "import aaco.analytics.table\n", "analytics/costs/onnx": "",
        "analytics/table": "import aaco.analytics.costs.onnx\n"})
    counted = figures(tmp_path)
    assert (counted["module-circles"], counted["folder-circles"], counted["folders-in-circles"]) == (0, 2, 4)
    assert house(tmp_path, "--list", "folder-circles").stdout.splitlines() == [
        "circle of 2: src/aaco/analytics/costs, src/aaco/analytics/table.py",
        "  cut src/aaco/analytics/costs -> src/aaco/analytics/table.py:",
        "    src/aaco/analytics/costs/torch.py:1 aaco.analytics.costs.torch -> aaco.analytics.table",
        "  stays src/aaco/analytics/table.py -> src/aaco/analytics/costs (imports: 1)",
        "circle of 2: src/aaco/fleet, src/aaco/report",
        "  cut src/aaco/fleet -> src/aaco/report:",
        "    src/aaco/fleet/store/files.py:1 aaco.fleet.store.files -> aaco.report.plot",
        "  stays src/aaco/report -> src/aaco/fleet (imports: 2)"]


def test_an_ignored_import_makes_no_circle_of_folders(tmp_path: Path) -> None:
    plant(tmp_path, {"core/door": "import aaco.pipeline\n", "core/plan": "", "pipeline": "import aaco.core.plan\n"})
    assert figures(tmp_path)["folder-circles"] == 0
    plant(tmp_path, {"core/window": "import aaco.pipeline\n"})
    assert figures(tmp_path)["folder-circles"] == 1


def test_files_of_a_folder_and_its_subfolder_are_a_circle_for_information(tmp_path: Path) -> None:
    plant(tmp_path, {"core/a": "import aaco.core.sub.b\n", "core/sub/b": "",
                     "core/sub/c": "import aaco.core.d\n", "core/d": ""})
    counted = figures(tmp_path)
    assert (counted["parent-child-circles"], counted["folder-circles"]) == (1, 0)
    assert house(tmp_path, "--list", "parent-child-circles").stdout.startswith(
        "circle of 2: src/aaco/core/*.py, src/aaco/core/sub\n")
    house(tmp_path, "--record")
    assert "parent-child-circles" not in json.loads((tmp_path / "scripts/house.json").read_text())


def test_class_names(tmp_path: Path) -> None:
    """Of six statements three share a name, one of them in a function; `Step` in a class is the sixth."""
    plant(tmp_path, {"core/a": "class Part:\n    class Step: pass\nclass Plan: pass\n",
                     "report/b": "def f():\n    class Part: pass\nclass _Part: pass\n",
                     "report/c": "class Part: pass\n"})
    assert figures(tmp_path)["shared-class-names"] == 50
    assert figures(tmp_path, "src/aaco/core")["shared-class-names"] == pytest.approx(100 / 3, abs=1e-4)
    assert house(tmp_path, "--list", "shared-class-names").stdout.splitlines() == [
        "src/aaco/core/a.py:1 Part", "src/aaco/report/b.py:2 Part", "src/aaco/report/c.py:1 Part"]


BINDINGS = """
def f(self, found, *, kernels=None, **said):
    rows, _rest = found
    for each in rows:
        every: int = each.own
    with open() as other:
        pass
    try:
        pass
    except OSError as told:
        pass
    if (known := [one for one in rows]):
        pass
    match rows:
        case [chosen, *wanted]:
            pass
        case {"a": value}:
            return lambda data: data
"""


def test_bound_names(tmp_path: Path) -> None:
    """16 names, of which 11 fillers (`_rest` too) and 2 vague; uses and attributes do not count."""
    plant(tmp_path, {"report/a": BINDINGS, "core/b": "plan = steps = session = result = 1\n"})
    counted = figures(tmp_path)
    assert counted["filler-names"] == pytest.approx(100 * 11 / 20, abs=1e-4)
    assert counted["vague-names"] == pytest.approx(100 * 3 / 20, abs=1e-4)
    assert counted["filler-names-spine"] == 0
    assert figures(tmp_path, "src/aaco/report")["filler-names"] == pytest.approx(100 * 11 / 16, abs=1e-4)
    assert "src/aaco/report/a.py:3 _rest" in house(tmp_path, "--list", "filler-names").stdout.splitlines()


def test_odd_words(tmp_path: Path) -> None:
    """Three of eight docstring words are odd; comments, other strings and names are not read."""
    plant(tmp_path, {"core/a": '"""Whoever told."""\nTEXT = "told anew"  # told\nclass A:\n    """A kernel."""\n',
                     "report/b": 'def told():\n    """Return the\n    kernel anew."""\n'})
    assert figures(tmp_path)["odd-words"] == 3750
    assert figures(tmp_path)["odd-words-spine"] == 5000
    assert "src/aaco/report/b.py:3 anew" in house(tmp_path, "--list", "odd-words").stdout.splitlines()


def test_local_imports(tmp_path: Path) -> None:
    """Two statements count: not those of cli, at the top of a module, of others, or for type checkers."""
    plant(tmp_path, {
        "core/plan": "", "core/a": "import aaco.core.plan\nclass A:\n    import aaco.core.plan\n",
        "cli/b": "def f():\n    import aaco.core.plan\n",
        "report/c": "def f():\n    import json\n    from aaco.core.plan import X, Y\n    if TYPE_CHECKING:\n"
                    "        import aaco.core.a\n    def g():\n        import aaco.core.a, aaco.core.plan\n"})
    assert figures(tmp_path)["local-imports"] == 2
    assert figures(tmp_path, "src/aaco/core")["local-imports"] == 0


def test_lines(tmp_path: Path) -> None:
    plant(tmp_path, {"core/a": "x = 1\n" * 5, "report/b": "\n\n"})
    assert figures(tmp_path)["lines"] == 7
    assert figures(tmp_path, "src/aaco/report")["lines"] == 2


GOOD = {"core/a": "class Part: pass\nkernels = rows = 1\n", "core/b": '"""Return the kernels."""\n',
        "pipeline": "import aaco.core.a\n", "api": "", "markers": "", "report/c": "import aaco.core.b\n"}
WORSE = {
    "loose-modules": {"other": ""},
    "upward-imports": {"core/b": "import aaco.pipeline\n"},
    "module-circles": {"core/a": "class Part: pass\nimport aaco.core.b\n", "core/b": "import aaco.core.a\n"},
    "folder-circles": {"core/b": "import aaco.pipeline\n"},
    "shared-class-names": {"report/d": "class Part: pass\n"},
    "filler-names": {"report/d": "found = 1\n"},
    "filler-names-spine": {"core/d": "found = 1\n"},
    "vague-names": {"report/d": "data = 1\n"},
    "odd-words": {"report/d": '"""Told anew."""\n'},
    "odd-words-spine": {"core/d": '"""Told anew."""\n'},
    "local-imports": {"report/d": "def f():\n    import aaco.core.a\n"},
}


@pytest.mark.parametrize("key", WORSE)
def test_the_ratchet_fails_where_a_figure_gets_worse(tmp_path: Path, key: str) -> None:
    """It names the figure, both values and the worst place. Also a figure that meets its bar may not rise."""
    plant(tmp_path, GOOD)
    assert house(tmp_path, "--record").returncode == 0
    assert house(tmp_path, "--check").returncode == 0
    plant(tmp_path, WORSE[key])
    completed = house(tmp_path, "--check")
    assert completed.returncode == 1
    assert f"{key}: recorded" in completed.stdout
    assert f"src/aaco/{next(iter(WORSE[key]))}.py" in completed.stdout


def test_the_ratchet_fails_where_layers_are_added(tmp_path: Path) -> None:
    house(plant(tmp_path, GOOD), "--record")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.replace('"pipeline",', '"pipeline", "steps",'))
    assert "layers: recorded 5, now 6" in house(tmp_path, "--check").stdout


def test_a_circle_that_swallows_another_is_worse(tmp_path: Path) -> None:
    """Their number falls from two to one; the modules in circles rise from four to five."""
    pairs = {"core/a": "import aaco.core.b\n", "core/b": "import aaco.core.a\n", "core/c": "import aaco.core.d\n",
             "core/d": "import aaco.core.c\n", "core/e": ""}
    house(plant(tmp_path, pairs), "--record")
    plant(tmp_path, {"core/b": "import aaco.core.a, aaco.core.c\n", "core/d": "import aaco.core.c, aaco.core.e\n",
          "core/e": "import aaco.core.a\n"})
    assert "modules-in-circles: recorded 4, now 5" in house(tmp_path, "--check").stdout


def lines_up_to(count: int) -> dict[str, str]:
    """Return a module that makes the planted tree this many lines long."""
    return {"core/long": "\n" * (count - sum(text.count("\n") for text in GOOD.values()))}


@pytest.mark.parametrize(("recorded", "now", "status"), [
    (10, 85_000, 0), (10, 85_001, 1), (90_000, 90_000, 0), (90_000, 89_000, 0), (90_000, 90_001, 1)])
def test_lines_may_rise_up_to_the_bar(tmp_path: Path, recorded: int, now: int, status: int) -> None:
    house(plant(tmp_path, GOOD | lines_up_to(recorded)), "--record")
    assert house(plant(tmp_path, lines_up_to(now)), "--check").returncode == status


def test_a_share_may_rise_by_its_rounding_only(tmp_path: Path) -> None:
    house(plant(tmp_path, {"core/a": "found = 1\n" + "kernels = 1\n" * 999}), "--record")
    recorded = json.loads((tmp_path / "scripts/house.json").read_text())
    assert recorded["filler-names"] == 0.1
    for lower, status in ((0.096, 0), (0.094, 1)):
        (tmp_path / "scripts/house.json").write_text(json.dumps({**recorded, "filler-names": lower}))
        assert house(tmp_path, "--check").returncode == status


def without_record(root: Path) -> None:
    """Remove the record."""
    (root / "scripts/house.json").unlink()


def without_a_figure(root: Path) -> None:
    """Write a record that has no figures."""
    (root / "scripts/house.json").write_text("{}")


@pytest.mark.parametrize(("spoil", "status"), [(without_record, 2), (without_a_figure, 1)])
def test_a_check_without_a_record_fails(tmp_path: Path, spoil: Callable[[Path], None], status: int) -> None:
    house(plant(tmp_path, GOOD), "--record")
    spoil(tmp_path)
    completed = house(tmp_path, "--check")
    assert completed.returncode == status
    assert "scripts/house --record" in completed.stdout + completed.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (["--list", "beauty"], "no such figure: beauty"),
    (["src/aaco/nowhere"], "no such folder or file of src/aaco: src/aaco/nowhere"),
    (["scripts"], "no such folder or file of src/aaco: scripts"),
    (["--check", "src/aaco/core"], "take the whole tree")])
def test_arguments_that_make_no_sense(tmp_path: Path, arguments: list[str], message: str) -> None:
    completed = house(plant(tmp_path, GOOD), *arguments)
    assert completed.returncode == 2
    assert message in completed.stderr


def test_the_spine_has_bars_of_its_own(tmp_path: Path) -> None:
    plant(tmp_path, GOOD)
    for folder, bar in (("src/aaco/core", "<= 25"), ("src/aaco/report", "<= 70")):
        row = next(row for row in house(tmp_path, folder).stdout.splitlines() if row.startswith("odd-words"))
        assert bar in row


def test_the_repository_is_no_worse_than_recorded() -> None:
    """If this fails: mend what it names. If figures got better: `scripts/house --record`."""
    completed = house(ROOT, "--check")
    assert completed.returncode == 0, completed.stdout + completed.stderr
