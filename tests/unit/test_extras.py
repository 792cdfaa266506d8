"""What is said where an optional package is not installed."""

import subprocess
import sys

import click
import pytest

from aaco import cli
from aaco.core import extras
from aaco.core.errors import Exit, Missing
from aaco.runner import registry

WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
from aaco.core.extras import EXTRAS
sys.modules.update(dict.fromkeys(EXTRAS))
import aaco.api, aaco.pipeline, aaco.cli, aaco.steps
for package in (aaco.steps, aaco.cli):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name != "aaco.cli.screen":  # of `aaco top` alone
            importlib.import_module(module.name)
"""


def test_a_module_of_an_extra_is_named_with_it_and_another_is_a_defect():
    """Mutation: submodules are not recognised."""
    found = extras.missing(ModuleNotFoundError("x", name="opentelemetry.exporter"))
    assert found and found.exit_code == Exit.MISSING
    assert "opentelemetry, which is not installed" in found.what and "# aaco[otlp]" in found.fix
    assert extras.missing(ModuleNotFoundError("x", name="aaco.nothing")) is None
    assert extras.missing(ModuleNotFoundError("x")) is None


def test_a_backend_needs_an_onnx_runtime(monkeypatch):
    """Mutation: it is missed only by the process that is to measure."""
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(Missing, match="onnxruntime, which is not installed") as raised:
        registry.backend("cuda", registry.backends())
    assert "pip install 'onnxruntime-gpu>=1.24'  # aaco[cuda]" in raised.value.fix


def test_what_every_command_loads_needs_no_extra():
    """Import and report load the steps, and with them much of the tree. Mutation: llm/key_filter.py takes its
    constants from the connection, which needs httptools."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "code"), [("textual.app", Exit.MISSING), ("aaco.nothing", None)])
def test_a_command_says_so_and_hides_no_defect(capsys, name, code):
    """Mutation: every module that is not found is taken for one of ours that is broken, or for an extra."""
    @click.command()
    def lacking() -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    if code is None:
        with pytest.raises(ModuleNotFoundError):
            cli.outcome(lacking, "aaco", [])
        return
    assert cli.outcome(lacking, "aaco", []) == code
    said = capsys.readouterr().err.splitlines()
    assert said == ["aaco: this needs textual, which is not installed", f"  try: {extras.install('top')}"]


@pytest.mark.parametrize("has_pip", [True, False])
def test_the_command_names_packages_and_this_interpreter(monkeypatch, has_pip):
    """aaco itself may be of a folder, which no index has. Mutations: `pip install 'aaco[pdf]'`; pip where none is."""
    monkeypatch.setattr(extras, "find_spec", lambda name: object() if has_pip else None)
    begin = f"{sys.executable} -m pip install" if has_pip else f"uv pip install --python {sys.executable}"
    assert extras.install("dashboard") == f"{begin} 'fastapi>=0.130' 'uvicorn>=0.40' 'viztracer>=1'  # aaco[dashboard]"
    for extra in ("pdf", "top", "otlp", "cpu", "cuda", "migraphx", "openvino"):
        assert extras.install(extra).count(">=") == 1


@pytest.mark.parametrize("verb", ["top", "serve"])
def test_the_help_says_how_to_add_what_is_not_installed(monkeypatch, capsys, verb):
    """Mutations: the command that a checkout cannot follow; a command where nothing is missing."""
    named = {"top": "top", "serve": "dashboard"}[verb]
    cli.outcome(cli.app, "aaco", [verb, "--help"])
    assert "Not installed".upper() not in capsys.readouterr().out
    monkeypatch.setattr(extras, "find_spec", lambda name: name == "pip" or None)
    cli.outcome(cli.app, "aaco", [verb, "--help"])
    assert f"NOT INSTALLED\n  {extras.install(named)}\n" in capsys.readouterr().out
