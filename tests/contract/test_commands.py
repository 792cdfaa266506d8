"""What holds of every verb: its page, its examples, `--json`, `--quiet`, its width, what it says to a wrong word."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest

from aaco import cli
from aaco.analytics import rules
from aaco.analytics.advice.mechanisms import ACTIONS
from aaco.cli.examples import EXAMPLES
from aaco.core import registry

# Verbs whose standard output is not theirs to write JSON on, and why.
NO_JSON = {"lab run": "standard output is that of the command it runs",
           "replay capture": "standard output is that of the command it runs",
           "completion": "a shell reads the script",
           "top": "it draws on the terminal until it is left",
           "serve": "it answers until it is stopped",
           "dashboard": "it answers until it is stopped"}


def verbs(group: click.Group = cli.app, path: tuple[str, ...] = ()):
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from verbs(found, (*path, name))


VERBS = {" ".join(path): found for path, found in verbs()}
LEAVES = {name: found for name, found in VERBS.items() if not isinstance(found, click.Group)}


def said(*words):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.outcome(cli.app, "aaco", list(words))
    return code, out.getvalue(), err.getvalue()


def flags(command):
    return {name: option for option in command.params if isinstance(option, click.Option) for name in option.opts}


def test_the_first_help_groups_the_verbs_by_the_four_questions():
    """Mutation: a verb without its line, an alias listed as a verb."""
    code, page, _ = said("--help")
    lines = page.splitlines()
    headings = re.findall(r"^[A-Z ?]+$", page, re.MULTILINE)
    assert code == 0 and len(lines) <= 65 and max(map(len, lines)) <= 80
    assert headings == ["RECORD", "WHERE DID THE TIME GO?", "WHAT LIMITS IT?", "DID IT GET SLOWER?", "WHAT TO DO NEXT?",
                        "MANAGE"]
    listed = re.findall(r"^  (\S+)  ", page, re.MULTILINE)
    assert len(listed) == len(set(listed)) and {*listed, *cli.ALIASES} == {name for name in VERBS if " " not in name}
    for alias, (_, verb) in cli.ALIASES.items():
        assert alias not in listed and page.count(f"{alias} = {verb}") == 1
        assert VERBS[alias] is VERBS[verb]


@pytest.mark.parametrize("name", VERBS)
def test_help_is_a_page_of_80_columns_with_examples(name):
    code, page, err = said(*name.split(), "--help")
    assert code == 0 and not err
    headings = re.findall(r"^[A-Z][A-Z ]+$", page, re.MULTILINE)
    expected = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXAMPLES", "EXIT STATUS"]
    assert headings == [each for each in expected if each in headings]
    assert {"NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "EXIT STATUS"} <= set(headings)
    assert max(map(len, page.splitlines())) <= 80
    assert page.startswith(f"NAME\n  aaco {name}".rstrip() + " - ")


@pytest.mark.parametrize("name", LEAVES)
def test_options_are_the_same_everywhere(name):
    """One letter is one option, wherever it is; and both ways to be less talkative are there."""
    found = flags(LEAVES[name])
    assert found["--quiet"].is_flag and "-q" in found["--quiet"].opts
    assert ("--json" in found) == (name not in NO_JSON)
    assert "--json" not in found or found["--json"].is_flag
    for short, long in (("-q", "--quiet"), ("-b", "--backend"), ("-o", "--output")):
        assert short not in found or long in found[short].opts
    for each in LEAVES[name].params:
        assert not isinstance(each, click.Option) or each.help, each


@pytest.mark.parametrize("name", [name for name, command in LEAVES.items() if "--session" in flags(command)
                                  and any(each.name == "session" for each in command.params
                                          if isinstance(each, click.Argument))])
def test_two_sessions_are_refused_where_a_command_is_about_one(name, monkeypatch, tmp_path):
    """Mutation: `session or named` takes the first and is silent about the other."""
    monkeypatch.chdir(tmp_path)
    needed = ["KAR"] if name == "explain" else []
    code, _, err = said(*name.split(), *needed, "one", "--session", "other")
    assert code == 2 and "name one session" in err


def test_reasons_for_no_json_are_of_verbs_that_there_are():
    assert set(NO_JSON) - {"top", "serve", "dashboard"} <= set(LEAVES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_line_of_the_examples_parses(name):
    assert name in LEAVES, "the verb is gone"
    for example in EXAMPLES[name]:
        assert len(example.line) <= 78 and len(example.why) <= 76
        words = shlex.split(example.line.partition(" > ")[0])
        assert words[0] == "aaco" and example.line.startswith(f"aaco {name}")
        rest, command = words[1 + len(name.split()):], LEAVES[name]
        with command.make_context(name, rest):
            pass


def test_every_verb_has_an_example():
    assert set(EXAMPLES) == set(LEAVES)


PACKAGE = Path(cli.__file__).parents[1]
NAMED = re.compile(rf"\baaco ({'|'.join(sorted(LEAVES, key=len, reverse=True))})(?![\w.-])([^,;:()`\n|]*)")


def commands(text: str):
    """Yield the verbs that a text names as commands, each with the words after it."""
    for match in NAMED.finditer(text):
        yield match[1], match[2].partition(" -- ")[0].split()


def texts():
    """Yield the strings of the package with their places. What an f-string fills in is a word."""
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        filled = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        pieces = {id(piece) for node in filled for piece in node.values}
        whole = [(node.lineno, node.value) for node in nodes if isinstance(node, ast.Constant)
                 and isinstance(node.value, str) and id(node) not in pieces]
        whole += [(node.lineno, "".join(str(piece.value) if isinstance(piece, ast.Constant) else "X"
                                        for piece in node.values)) for node in filled]
        yield from ((f"{path.relative_to(PACKAGE)}:{line}", text) for line, text in whole)


COMMANDS = sorted({(place, verb, word.partition("=")[0]) for place, text in texts() for verb, words in commands(text)
                   for word in words if word.startswith("--") and len(word) > 2})


@pytest.mark.parametrize(("place", "verb", "option"), COMMANDS)
def test_options_that_texts_name_are_there(place, verb, option):
    """Whatever says `aaco VERB --option` says an option of the verb. Mutation: `--full` after `aaco report`."""
    assert option in {*flags(LEAVES[verb]), "--help"}, f"{place}: aaco {verb} {option}"


def declared_rules():
    registry.load(rules, "aaco.rules")
    return registry.RULES.values()


ADVISED = [(action.name, step.text) for action in ACTIONS for step in action.attempts]
ADVISED += [(rule.label, text) for rule in declared_rules() for text in rule.advice]
ADVISED = [(name, verb, words) for name, text in ADVISED for verb, words in commands(text)]


@pytest.mark.parametrize(("name", "verb", "words"), ADVISED, ids=[name for name, _, _ in ADVISED])
def test_commands_that_advice_names_have_the_values_of_their_options(name, verb, words):
    """Mutation: `aaco run --lab` without a level."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--") and not flags(LEAVES[verb])[word].is_flag:
            assert after and not after.startswith("-"), f"aaco {verb} {word} needs a value"


@pytest.mark.parametrize(("words", "meant"), [
    (("rnu",), "did you mean 'run'?"), (("sumary",), "'summary'"), (("comp",), "'compare'"), (("Report",), "'report'"),
    (("lab", "entr"), "'enter'"), (("run", "--bach", "2"), "'--batch'"), (("run", "--jason"), "--json"),
    (("baseline", "sav", "x"), "'save'"), (("run", "restnet50", "--sessions-dir", "none"), "'resnet50'"),
    (("run", "gpt2-tiny", "--backend", "cudaa", "--sessions-dir", "none"), "'cuda'"),
    (("explain", "latency_p5_ms"), "'latency_p50_ms'"), (("explain", "kra"), "'KAR'"),
    (("features", "latst", "--sessions-dir", "none"), "no session 'latst'"),
])
def test_a_wrong_word_is_answered_with_the_likely_one(words, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = said(*words)
    assert code in (2, 5) and meant in err and not out


def test_a_word_like_no_other_is_answered_with_no_guess():
    code, _, err = said("xyzzy")
    assert code == 2 and "no command 'xyzzy'" in err and "mean" not in err


def test_quiet_leaves_warnings_and_ends_with_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no session under" in said("ls")[2]
    assert said("ls", "--quiet")[2] == ""
    assert "no session under" in said("ls")[2]
    assert "no session" in said("report", "nowhere", "-q")[2]


def test_json_of_what_needs_nothing_is_one_document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (("ls",), ("info",), ("models",), ("doctor",), ("config", "show"), ("baseline", "list"), ("gc",),
                  ("lab", "status"), ("lab", "restore"), ("sla", "policy"), ("explain", "KAR")):
        code, out, _ = said(*words, "--json")
        assert code == 0 and json.loads(out), words
