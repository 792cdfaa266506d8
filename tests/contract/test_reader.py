"""What a person reads is plain English: no old word in help, messages, documentation and printed answers.

Text is collected from the sources (every string with a space that is no docstring, and the text of pages), from the
help of every command, from the documentation, and from what commands print about recorded traces.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aaco
from tests.contract.test_commands import VERBS, said

ROOT = Path(__file__).parents[2]
SOURCE = Path(aaco.__file__).parent
TRACES = ROOT / "tests/captures/torch_h200"
# What was written before, as a reader met it. `<withheld>` is the mark in redacted data, `abstained_because` a key.
OLD_WORDS = re.compile(r"""(?ix)
    \b(?: (?<!<)withh(?:old|eld|olding|olds) (?!>) | disclos(?:e|ed|es|ure|ures) | closure | doubts? | doubtful | anew
      | said | told | nobody\ planted | saw\ \d+\ of | not\ of\ use | single\ reads | came\ last | no\ class\ stands
      | cannot\ stand\ for | everything\ that\ must\ hold | abstains? | left\ out\ of\ the\ calibration
      | a\ later\ end | trace\ truth | whoever | albeit | whence | thereof | lest | nought | naught | spool | standins?
      | witness(?:es)? | ledger )\b
    | absent:\ no\ class | \bcooling: | \b(?<!digital\ )twins?\b""")
ALLOWED = re.compile(r"abstained_because|closure\\?_ratio|(concepts/|benchmarks\.|results/|--only |`|\()twin")
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
COMMANDS = ("summary", "report", "report --format markdown -o -", "check", "kernels", "ops", "critical-path",
            "roofline", "chi", "info latest", "ls", "models", "config show", "doctor", "doctor --full", "explain KAR",
            "features",
            "diff nchw nhwc", "baseline list", "history list", "lab status", "gc --dry-run", "instructions",
            "root-cause latest --baseline nowhere", "diff nowhere", "report nowhere", "run no-such-model",
            "run bert-tiny --backend cuda", "import no-such-file", "what-if", "compare a.onnx b.onnx", "sla check",
            "outputs nchw nhwc", "isa no-such-file", "ir no-such-file", "xyzzy", "perfetto -o -", "sql nonsense")


def offences(text: str) -> list[str]:
    """Return the old words of a text, each with what is around it."""
    text = ALLOWED.sub(lambda match: "x" * len(match.group()), text)
    return [text[max(0, match.start() - 50):match.end() + 50] for match in OLD_WORDS.finditer(text)]


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that hold a space and are no docstrings, with their lines."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                  and node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value \
                and id(node) not in docstrings:
            yield node.lineno, node.value


@pytest.mark.parametrize("text", [
    "absent: no class; evidence: no class stands", "of +3 % it saw 88 of 100", "which a run said",
    "it cannot stand for its run", "Came last  rank 1", "no twin of resnet50", "secrets are withheld",
    "the closure of a pass", "record it anew"])
def test_the_words_are_found(text):
    """Mutation: a pattern that finds nothing."""
    assert offences(text)


def test_marks_of_data_are_no_words():
    assert not offences("becomes `<withheld>`; `abstained_because`; the digital twin ([how](concepts/twin.md))")


def test_no_message_of_the_source_has_an_old_word():
    found = [f"{path.relative_to(SOURCE)}:{line}: {words!r}" for path in sorted(SOURCE.rglob("*.py"))
             for line, text in strings(path) for words in offences(text)]
    assert not found, "\n".join(found)


def shown(path: Path) -> str:
    """Return what a page shows of a file: of a script its strings, of a template all but tags' classes and Jinja."""
    text = path.read_text()
    if path.suffix == ".js":
        return "\n".join(found[0] for found in re.finditer(r'"[^"\n]* [^"\n]*"|`[^`]* [^`]*`', text))
    return re.sub(r'\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|class="[^"]*"|id="[^"]*"', "", text, flags=re.DOTALL)


def test_no_page_has_an_old_word():
    paths = [path for suffix in ("html", "js") for path in SOURCE.rglob(f"*.{suffix}") if "vendor" not in path.parts]
    assert len(paths) > 20
    found = [f"{path.relative_to(SOURCE)}: {words!r}" for path in paths for words in offences(shown(path))]
    assert not found, "\n".join(found)


def test_no_page_of_the_documentation_has_an_old_word():
    paths = [*PAGES, *(ROOT / "docs").rglob("*.md"), *(ROOT / "skills").rglob("*.md")]
    assert len(paths) > 50
    found = [f"{path.relative_to(ROOT)}: {words!r}" for path in paths for words in offences(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["", *VERBS])
def test_no_help_has_an_old_word(name):
    code, page, _ = said(*name.split(), "--help")
    assert code == 0 and not offences(page)


def test_no_answer_has_an_old_word(tmp_path, monkeypatch):
    """Results and errors of commands about two traces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    printed = {}
    for layout in ("nchw", "nhwc"):
        words = ("import", str(TRACES / f"resnet50_{layout}.json.gz"), "--tag", layout)
        printed[f"import {layout}"] = said(*words)
        assert printed[f"import {layout}"][0] == 0
    printed |= {command: said(*command.split()) for command in COMMANDS}
    assert sum(code == 0 for code, _, _ in printed.values()) > 20
    found = [f"aaco {command}: {words!r}" for command, (_, out, err) in printed.items()
             for words in offences(out + err)]
    assert not found, "\n".join(found)
