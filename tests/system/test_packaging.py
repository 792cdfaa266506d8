"""The wheel and the source archive: what is in them, and that what they install works away from this tree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest

from aaco.core import extras
from tests import installed
from tests.system.conftest import Aaco

ROOT = installed.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
DATA = "{}.data/data/share/aaco/native/"


def build(tree: Path, target: Path, *kinds: str) -> list[Path]:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", target, *kinds], cwd=tree, check=True,
                   capture_output=True)
    return sorted(target.iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """Source archive and wheel, of what is under version control."""
    folder = tmp_path_factory.mktemp("built")
    wheel, archive = build(installed.tree(folder / "tree"), folder / "dist")
    return archive, wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    """Mutation: a pattern of pyproject.toml that leaves out the templates, or lets the tests in."""
    found = contents(built[1])
    name = "-".join(built[1].name.split("-")[:2])
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/aaco", "native"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    kept = {path for path in listed if (ROOT / path).is_file()}
    expected = {path.removeprefix("src/") for path in kept if path.startswith("src/")} \
        | {DATA.format(name) + path.removeprefix("native/") for path in kept if path.startswith("native/")} \
        | {path.replace("native/calibration", "aaco/calibration/native") for path in kept
           if path.startswith("native/calibration/")}
    assert {path for path in found if ".dist-info/" not in path} == expected
    for needed in ("py.typed", "collectors/blobs/scheduler.blob", "report/templates/report.html",
                   "report/vendor/uPlot.iife.min.js", "runner/models.yaml", "analytics/root_cause/likelihoods.json"):
        assert f"aaco/{needed}" in found
    assert not [path for path in found if re.search(r"(^|/)(tests?|captures|benchmarks|(?<!report/)docs)/", path)]
    for path in (ROOT / "LICENSE", *ROOT.glob("src/**/vendor/LICENSE")):
        assert found[f"{name}.dist-info/licenses/{path.relative_to(ROOT)}"] == path.read_bytes()


def test_vendored_files_are_those_that_were_published():
    """Each has its licence beside it and the hash of the file it was copied from."""
    import hashlib

    for record in ROOT.glob("src/**/VENDOR.json"):
        said = json.dumps(json.loads(record.read_text()))
        for path in record.parent.iterdir():
            if path.name not in ("VENDOR.json", "LICENSE"):
                assert hashlib.sha256(path.read_bytes()).hexdigest() in said, path


def test_the_source_archive_makes_the_same_wheel(built, tmp_path):
    archive, wheel = built
    with tarfile.open(archive) as opened:
        names = [PurePosixPath(name) for name in opened.getnames()]
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)  # Python 3.11.3 has no filter for archives
    assert {name.parts[1] for name in names} <= {"src", "native", "README.md", "CHANGELOG.md", "LICENSE",
                                                 "pyproject.toml", "PKG-INFO", ".gitignore"}
    (again,) = build(next(tmp_path.iterdir()), tmp_path / "dist", "-t", "wheel")
    assert contents(again) == contents(wheel)


def clean(folder: Path) -> dict[str, str]:
    """The environment of somebody who has nothing of this tree."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("AACO_", "PYTHON")) and name != "VIRTUAL_ENV"}
    return kept | {"AACO_CACHE_DIR": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / ".config")}


def test_what_the_wheel_installs_works(built, tmp_path):
    programs = installed.environment(tmp_path / "venv", built[1])
    Aaco(tmp_path, tmp_path / "cache")  # its settings: no ceilings are measured

    def call(*arguments: str) -> str:
        done = subprocess.run([programs / "aaco", *arguments], cwd=tmp_path, env=clean(tmp_path), text=True,
                              capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert call("--version").split()[-1] == metadata.version("aaco")
    place = subprocess.run([programs / "python", "-c", "import aaco; print(aaco.__file__)"], cwd=tmp_path, text=True,
                           env=clean(tmp_path), check=True, capture_output=True).stdout
    assert place.startswith(str(tmp_path))
    capabilities = {line.split("  ")[0]: line for line in call("doctor", "--full").splitlines()}
    assert " yes " in capabilities["aaco"] and " yes " in capabilities["CPUExecutionProvider"]
    call("run", "gpt2-tiny", "--iterations", "5", "--telemetry", "--quiet")
    call("report", "--format", "html", "--output", "report.html")
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert "rocm-perf" in subprocess.run([programs / "rocm-perf", "--version"], env=clean(tmp_path), text=True,
                                         check=True, capture_output=True).stdout
    assert (tmp_path / "venv/share/aaco/native/bpf/scheduler.bpf.c").is_file()


# extra -> the distributions that it alone installs, and a command that needs them
OF_EXTRAS = {
    "cpu": (["onnxruntime"], [["run", "gpt2-tiny"], ["sweep", "gpt2-tiny", "--batches", "1"],
                              ["compare", "gpt2-tiny", "--pairs", "2"]]),
    "dashboard": (["fastapi", "starlette", "uvicorn", "viztracer"], [["serve"], ["dashboard"]]),
    "pdf": (["typst"], [["report", "--format", "pdf", "--output", "report.pdf"]]),
    "top": (["textual"], [["top"]]),
    "otlp": (["opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk", "opentelemetry-api"],
             [["export", "otlp", "--endpoint", "http://127.0.0.1:9"]]),
    "llm": (["httptools"], [["llm", "http://127.0.0.1:9", "--requests", "1"]]),
    "kernels": (["tree-sitter", "tree-sitter-cpp"], [["optimize", "--kernel", "scale", "--source", "scale.hip",
                                                      "--capture", "sessions"]]),
    "optimize": (["sympy", "mpmath"], []),  # a rewrite that needs it says so: tests/unit/test_rewriting.py
}


@pytest.fixture(scope="module")
def bare(built, tmp_path_factory) -> Path:
    """An environment of the core alone."""
    folder = tmp_path_factory.mktemp("bare")
    without = {name for names, _ in OF_EXTRAS.values() for name in names}
    programs = installed.environment(folder / "venv", built[1], without)
    Aaco(folder, folder / "cache")
    (folder / "scale.hip").write_text("__global__ void scale(float *x) { *x *= 2; }")
    subprocess.run([programs / "aaco", "profile", "-n", "2", "--quiet", "--", "true"], cwd=folder, env=clean(folder),
                   check=True, capture_output=True)
    return programs


ASKING = [(extra, words) for extra, (_, each) in OF_EXTRAS.items() for words in each]


@pytest.mark.parametrize(("extra", "words"), ASKING, ids=lambda each: each if isinstance(each, str) else each[0])
def test_a_missing_extra_is_named_in_one_line(bare, extra, words):
    """Mutation: the module is asked for in the measured process only, which then ends with a traceback."""
    folder = bare.parents[1]
    done = subprocess.run([bare / "aaco", *words], cwd=folder, env=clean(folder), text=True, capture_output=True,
                          timeout=60)
    assert done.returncode == 6, done.stderr
    what, fix = done.stderr.splitlines()[-2:]
    assert "Traceback" not in done.stderr and what.startswith("aaco: ") and "not installed" in what
    assert "pip install" in fix and f"# aaco[{extra}]" in fix


def test_the_core_needs_no_extra(bare, tmp_path):
    """Mutations: the modules of models imported for commands; an extra that the bare environment still has."""
    assert set(extras.EXTRAS.values()) - set(OF_EXTRAS) == {extras.EXTRAS[name] for name in NOT_FOR_DEVELOPMENT}
    held = {path.name for path in (bare.parent / "locked").iterdir()}
    assert not held & (set(extras.EXTRAS) - {"opentelemetry"})  # a package of several distributions
    trace = ROOT / "tests/captures/torch_scenarios/launch_tiny_mlp.trace.json.gz"
    for words in (["compare", "--command", "true", "--pairs", "1", "--processes", "2", "--quiet"], ["import", trace],
                  ["report", "--format", "html", "--output", "report.html"]):
        subprocess.run([bare / "aaco", *words], cwd=tmp_path, env=clean(tmp_path), check=True, capture_output=True)


# In no lock for development: their size is out of proportion to the tests that need them, which are left out then.
NOT_FOR_DEVELOPMENT = {"onnxruntime_genai", "psycopg", "ray", "tokenizers"}


def test_every_extra_is_known_and_documented():
    """The table by which a missing module is explained, the extras, and the guide name the same."""
    assert set(extras.EXTRAS.values()) <= set(OPTIONAL)
    guide = (ROOT / "docs/guides/install.md").read_text()
    rows = re.findall(r"^\| `(\w+)`(?:, `(\w+)`)* \|", guide, re.MULTILINE)
    assert {name for row in rows for name in row if name} == set(OPTIONAL)
    brings = metadata.packages_distributions()
    assert set(extras.EXTRAS) - set(brings) <= NOT_FOR_DEVELOPMENT
    for module, extra in extras.EXTRAS.items():
        if module not in brings:
            continue
        providers = {name.lower() for name in brings[module]}
        wanted = {re.split(r"[\[>=<]", requirement)[0] for requirement in OPTIONAL[extra]}
        assert providers & (wanted | {name for each in wanted for name in _needs(each)}), module


def _needs(distribution: str) -> set[str]:
    return {re.split(r"[\[>=<~!; (]", requirement)[0].lower() for requirement in metadata.requires(distribution) or ()}
