"""The first screen: its length and width, its order, its bar, and a sentence for every class."""

from __future__ import annotations

import shlex

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from aaco.analytics import rules
from aaco.analytics.advice import recommend
from aaco.analytics.advice.floor import DEVICE_WORK, PROFILED, UNPROFILED
from aaco.analytics.advice.mechanisms import ACTIONS
from aaco.analytics.diagnosis import ONLY_CAPTURED
from aaco.analytics.truth.trust import Alarm, Trust
from aaco.core import registry
from aaco.core.readings import Reading, Verdict
from aaco.report import format
from aaco.report.renderers import first_lines, html, terminal
from aaco.report.renderers.opening import first as first_text
from aaco.report.sections import budget, content
from aaco.report.sections.first_screen import OTHER, SENTENCES, BarPart, FirstScreen, first_screen
from aaco.tracelake.document_schemas.answers import Together
from tests import explained
from tests.explained import Sample, regressed

SESSIONS = {"usual": Sample().explain, "hostile": explained.hostile, "nothing": explained.nothing,
            "gpu": Sample(device=0).explain, "not profiled": Sample(profiled=False).explain,
            "killed": Sample(status="incomplete", failure="killed").explain,
            "slower": lambda: Sample(verdict=regressed()).explain()}
LONG = "one sentence of it. " * 40


def screen(**texts: object) -> FirstScreen:
    usual = FirstScreen("a session", "", "", (), "", "", "Compute-bound: it computes.", "", (), "not measured", (), ())
    return replace(usual, **texts)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [80, 100, 120])
@pytest.mark.parametrize("name", SESSIONS)
def test_it_has_at_most_25_lines_as_wide_as_the_terminal(name, columns):
    lines = first_text(SESSIONS[name](), columns=columns).splitlines()
    assert len(lines) <= 25 and max(map(cell_len, lines)) <= columns
    assert all(line.isprintable() for line in lines)


def test_it_has_at_most_25_lines_however_long_its_texts_are():
    """Mutation: no limit on the lines of all paragraphs."""
    names = [*(f"a part with a long name {number}" for number in range(5)), OTHER]
    parts = tuple(BarPart(name, 1 / 6) for name in names)
    full = screen(what=LONG, facts=LONG, trust=LONG, notes=(LONG,) * 3, change=LONG, disturbed=LONG, limit=LONG,
                  basis=LONG, parts=parts, whole="of the profiled trace", advice=(LONG,) * 3,
                  commands=(("all", "aaco report"),) * 2)
    lines = first_lines.lines(full)
    assert len(lines) == 25 and max(map(len, lines)) <= 80
    assert [line[:3] for line in lines if line[:3] in ("1. ", "2. ", "3. ")] == ["1. ", "2. ", "3. "]
    assert any("of the profiled trace" in line for line in lines)


def test_a_narrow_terminal_loses_no_words():
    """At 40 columns the session's name and half of the advice became "…". Mutation: 25 lines for any terminal."""
    texts = ["word " * length for length in (20, 45, 50, 60, 60)]
    full = screen(trust=texts[0], limit=texts[1], facts=texts[0], advice=texts[2:], parts=(BarPart("memory", 1.0),))
    assert [sum(line.count("word") for line in first_lines.lines(full, columns)) for columns in (80, 40)] == [255, 255]


def test_a_command_is_whole_for_a_shell_on_a_full_screen_too():
    """Mutations: it loses its end for want of room; its lines are two commands."""
    command = f"aaco kernels 20261130_075501_eb35bb --top 20 --sessions-dir /{'folder/' * 7}sessions"
    lines = first_lines.lines(screen(what=LONG, facts=LONG, trust=LONG, limit=LONG, basis=LONG, advice=(LONG,) * 3,
                                     notes=(LONG,) * 3, commands=(("kernels", command), ("all", "aaco report"))))
    begin = next(index for index, line in enumerate(lines) if line.startswith("Next: "))
    typed = "\n".join(lines[begin:]).removeprefix("Next: ").replace("\\\n", " ").splitlines()
    assert [shlex.split(line, comments=True) for line in typed] == [shlex.split(command), ["aaco", "report"]]


@pytest.mark.parametrize("word", ["a folder/" * 20, "it's " * 20, "f" * 200, "\u6f22" * 60, "x" * 66 + " #", ""])
def test_a_word_that_is_quoted_or_longer_than_a_line_is_the_same_to_a_shell(word):
    """Mutations: a line begins within quotes; a part of a word stands apart from it."""
    command = shlex.join(["aaco", "report", "20261130_075501_eb35bb", "--sessions-dir", word, "f" * 72, "", "--full"])
    lines = first_lines.lines(screen(commands=(("all", command),)))
    begin = next(index for index, line in enumerate(lines) if line.startswith("Next: "))
    typed = "\n".join(lines[begin:]).removeprefix("Next: ").replace("\\\n", "")
    assert shlex.split(typed, comments=True) == shlex.split(command) and max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize("script", ["word " * 600, "first\nsecond"])
def test_a_command_that_cannot_be_shown_whole_is_left_out(script):
    """Mutations: a screen without room for its other lines; a line's end is written in letters."""
    lines = first_lines.lines(screen(commands=(("where", f"aaco trace -- python -c '{script}'"),
                                               ("all", "aaco report")), trust=LONG, advice=(LONG,) * 3))
    assert lines[-1] == "Next: aaco report  # all" and not any("aaco trace" in line for line in lines)


def test_the_program_of_a_command_gets_no_option_of_this_one():
    """Mutation: --sessions-dir at the end, among the program's arguments."""
    ran = Sample(profiled=False).explain()
    ran = replace(ran, record={**ran.record, "plan": {"command": {"argv": ["python", "a b.py"]}}})
    (_, command), _ = first_screen(ran, " --sessions-dir there").commands
    assert command == "aaco trace --sessions-dir there -- python 'a b.py'"


def test_a_thread_trace_leads_to_its_instructions():
    """Mutation: it leads to the report alone."""
    traced = Sample(profiled=False).explain()
    traced = replace(traced, examined={**traced.examined, "instructions": {"kernels": []}})
    assert f"aaco instructions {traced.session_id}" in [command for _, command in first_screen(traced, "").commands]


def test_the_first_advice_keeps_its_last_line_longest():
    """Mutation: of texts of one length the first is cut."""
    advice = tuple(f"{word} {'does ' * 36}it. Try: {word}." for word in ("one", "two", "three"))
    lines = first_lines.lines(screen(advice=advice, trust=LONG, basis=LONG, limit=LONG, facts=LONG, disturbed=LONG,
                                     parts=(BarPart("memory", 1.0),)))
    shown = " ".join(lines)
    assert len(lines) == 25 and "Try: one." in shown and "Try: three." not in shown


def test_the_first_advice_is_whole_where_others_are_shorter():
    """What to try is at its end. Mutation: it loses a line as the longest text."""
    advice = (f"{'does ' * 36}it. Try: one.", "It is short. " * 8, "It is short. " * 8)
    lines = first_lines.lines(screen(advice=advice, trust=LONG[:150], basis=LONG[:150], limit=LONG[:150],
                                     facts=LONG[:150], notes=(LONG[:150],), what=LONG[:150],
                                     parts=tuple(BarPart(f"a part with a name as long as this {part}", .2)
                                                 for part in range(5)), commands=(("all", "aaco report"),) * 2))
    assert len(lines) == 25 and "Try: one." in " ".join(lines)


def test_up_to_three_notes_are_shown_and_the_rest_counted():
    """Mutations: one note only; the others not counted; a note more than there is room for; the report cuts them."""
    notes = tuple(f"Thing {number} is so." for number in range(1, 6))
    shown = first_lines.lines(screen(notes=notes))
    assert shown[1:7] == ["Note: Thing 1 is so.", "", "Compute-bound: it computes.", "Note: Thing 2 is so.",
                          "Note: Thing 3 is so.", "      and 2 more: aaco report"]
    assert first_lines.lines(screen(notes=notes[:1]))[1:3] == ["Note: Thing 1 is so.", ""]
    tight = first_lines.lines(screen(notes=notes, trust=LONG, disturbed=LONG, limit=LONG, basis=LONG,
                                     advice=("short. " * 20,) * 3, commands=(("all", "aaco report"),) * 2))
    assert tight[1] == "Note: Thing 1 is so." and "      and 4 more: aaco report" in tight and len(tight) <= 25
    whole = first_lines.whole(screen(notes=notes, basis=LONG), 80)
    assert [line for line in whole if line.startswith("Note: ")] == [f"Note: {note}" for note in notes]
    assert len(whole) > 10 and not any("…" in line or "more" in line for line in whole)


def test_the_report_does_not_send_its_reader_to_itself():
    """Mutation: the commands of the first screen above the report."""
    for explanation in (SESSIONS["usual"](), SESSIONS["gpu"]()):
        whole = f"aaco report {explanation.session_id}  # all figures"
        opening = terminal.render(explanation).partition("╔")[0]
        assert whole in first_text(explanation) and whole not in terminal.render(explanation)
        page = html.render(explanation)
        for what, command in first_screen(explanation).commands:
            assert (command in opening) == (f"<code>{command}</code>" in page) == (what != "all figures")


@pytest.mark.parametrize(("ceiling", "is_told"), [(4.0, False), (5.0, True)])
def test_what_is_done_together_is_told_where_it_gains_more_than_alone(ceiling, is_told):
    """Mutation: "The first 2 together: at most 4.00 x faster", of two that gain that each."""
    found = SESSIONS["gpu"]()
    one = recommend.Recommendation(ACTIONS[0], 50.0, 1.0, ("it",), ceiling=4.0)
    both = Together(actions=["a", "b"], ceiling=ceiling, floor_ms=1.0)
    advised = replace(found, diagnosis=replace(found.diagnosis, recommendations=(one, one), together=both))
    assert any("The first 2 together" in text for _, text in content.next_steps(advised)) == is_told


@pytest.mark.parametrize(("of", "is_told"), [(PROFILED, True), (DEVICE_WORK, True), (UNPROFILED, False), ("", False)])
def test_how_to_see_what_changes_gain_is_told_where_no_step_was_timed(of, is_told):
    """Mutation: a reader of ceilings of the profiled step is not told of --latency."""
    found = SESSIONS["gpu"]()
    one = recommend.Recommendation(ACTIONS[0], 50.0, 1.0, ("it",), ceiling=4.0, ceiling_of=of)
    advised = replace(found, diagnosis=replace(found.diagnosis, recommendations=(one,)))
    assert any("aaco import TRACE --latency MS" in text for _, text in content.next_steps(advised)) == is_told
    assert not any("--latency" in text for _, text in content.next_steps(advised, brief=True))


def test_the_capture_of_a_graph_has_no_parts_of_the_time():
    """Its launches ran nothing. Mutations: a bar of the two fills that ran beside it; Wall time of them in the box."""
    found = SESSIONS["gpu"]()
    captured = replace(found, diagnosis=replace(found.diagnosis, abstained_because=ONLY_CAPTURED))
    assert not first_screen(captured).parts and "trace of the replay" in first_screen(captured).time
    assert "Wall time" not in terminal.render(captured) and not list(budget.budgets(captured))


def test_text_without_room_ends_with_a_sentence():
    lines = first_lines.lines(screen(basis="Short. " + "word " * 100, advice=(LONG,) * 3))
    shown = " ".join(lines)
    assert "word …" in shown and not shown.rstrip().endswith("of")


def test_a_number_is_no_sentence_of_an_advice_without_room():
    """Mutation: the point after the number ends what is shown, and "2." alone is left."""
    whole = first_lines.lines(screen(advice=("word " * 60,)))
    paragraph = first_lines.Paragraph([line for line in whole if "word" in line], 1, label=len("1. "))
    assert paragraph.shown()[0].startswith("1. word") and paragraph.shown()[0].endswith("…")


def test_the_bar_is_as_wide_as_the_terminal_and_its_parts_sum_to_all_of_it():
    """Mutation: the rest of the rounding dropped."""
    shares = [1 / 3, 1 / 3, 1 / 6, 1 / 6]
    for columns in (80, 83, 97):
        bar = first_lines.lines(screen(parts=tuple(BarPart(str(share), share) for share in shares)), columns)[4]
        assert len(bar) == columns
        assert all(abs(bar.count(glyph) - columns * share) < 1 for glyph, share in zip("█▓▒░", shares, strict=True))
    for name in ("usual", "gpu"):
        parts = first_screen(SESSIONS[name]()).parts
        assert sum(round(100 * part.share, 1) for part in parts) == pytest.approx(100, abs=0.11)


def test_what_takes_the_numbers_back_precedes_them():
    """Mutations: the note after the figures; the change at the end."""
    lines = first_text(SESSIONS["killed"]()).splitlines()
    assert lines[1].startswith("Note: INCOMPLETE RUN (incomplete): killed") and "latency" not in " ".join(lines[:2])
    assert first_text(SESSIONS["slower"]()).splitlines()[1].startswith("Change: regressed +7.2 % [+5.5, +9.0]")


def test_every_class_has_a_sentence_of_a_reading_that_it_rests_on():
    """Mutation: a metric renamed in the rule only."""
    registry.load(rules, "aaco.rules")
    classes = {label: rule for label, rule in registry.RULES.items() if rule.kind == "class" and label != "balanced"}
    assert set(SENTENCES) == set(classes)
    for label, sentences in SENTENCES.items():
        assert set(sentences) <= set(classes[label].inputs)
        assert all(sentence.count("{}") == 1 for sentence in sentences.values())


def test_the_sentence_names_the_class_and_its_share():
    found = Sample().explain()
    share = format.percent(found.readings["node_compute_pct"].value / 100)
    assert first_screen(found).limit == f"Compute-bound: nodes that arithmetic limits take {share} of the time."
    assert first_screen(SESSIONS["not profiled"]()).limit.startswith("No diagnosis: ")


def test_notes_that_most_runs_have_fit_a_line():
    """A first screen with much to say cuts to a line. Mutation: a longer one."""
    noted = [line for line in first_text(Sample().explain()).splitlines() if line.startswith("Note: synthetic weights")]
    assert noted and noted[0].endswith("(built from a seed).")


def test_a_small_share_beside_other_load_says_so():
    """"Compute-bound: 13.9 % of the time" alone puzzles. Mutation: the other load is left out."""
    found = Sample().explain()
    evidence = [Reading(name, "pct", value).above(1, "") for name, value in (("node_compute_pct", 13.9),
                                                                              ("contended_pct", 85.2))]
    judged = replace(found.diagnosis, bottleneck=Verdict("compute_bound", tuple(evidence)))
    assert first_screen(replace(found, diagnosis=judged)).limit == (
        "Compute-bound: nodes that arithmetic limits take 13.9 % of the time, other load 85.2 %.")


def test_a_class_is_written_as_people_write_it():
    """Mutation: the first letter in capitals only."""
    explained_session = Sample().explain()
    diagnosis = explained_session.diagnosis
    for label, words in (("cpu_bound", "CPU-bound: "), ("memory_latency_bound", "Memory-latency-bound: ")):
        verdict = replace(diagnosis.bottleneck, label=label)
        limited = replace(explained_session, diagnosis=replace(diagnosis, bottleneck=verdict))
        assert first_screen(limited).limit.startswith(words)


def test_records_that_contradict_each_other_have_no_shares():
    """Mutation: the bar drawn all the same."""
    found = Sample().explain()
    false = Trust((Alarm("33 kernels overlap", harm="times"),), checked=True)
    screen_of_false = first_screen(replace(found, diagnosis=replace(found.diagnosis, trust=false)))
    assert not screen_of_false.parts and "33 kernels overlap" in screen_of_false.whole
    assert screen_of_false.trust.startswith("Trace check: NOT TO BE TRUSTED")
    assert screen_of_false.commands[0][1].startswith("aaco kernels") and first_screen(found).parts


def test_the_page_and_the_report_open_with_it():
    found = Sample(verdict=regressed()).explain()
    text, page = terminal.render(found), html.render(found)
    opening = text[:text.index("╔")]
    assert all(line.removesuffix(" …") in opening for line in first_text(found).splitlines()
               if not line.endswith("# all figures"))
    first = page[page.index('<section id="verdict"'):page.index("<nav")]
    for words in ("nodes that arithmetic limits take", "regressed +7.2 %", 'class="stack"', "What to try"):
        assert words.lower() in first.lower()
    assert page.index("<nav") < page.index('<section id="evidence"')


def crowded(**texts):
    long = "word " * 60
    return screen(**{"what": long, "facts": long, "trust": long, "notes": (long,) * 5, "basis": long, "whole": long,
                     "advice": (long,) * 3, "commands": (("why", "aaco kernels"),)} | texts)


@pytest.mark.parametrize(("texts", "last"), [({}, 5), ({"alarmed": True}, 7),
                                             ({"alarmed": True, "change": "word " * 60, "disturbed": "word " * 60}, 9)])
def test_what_limits_a_session_begins_within_five_lines_whatever_is_said(texts, last):
    """Later where an alarm, which is not cut, a change and a disturbance precede it. Mutation: BEFORE_ANSWER of a
    hundred."""
    shown = first_lines.lines(crowded(**texts))
    assert len(shown) <= 25
    assert next(at for at, line in enumerate(shown, 1) if line.startswith("Compute-bound")) <= last


def test_an_alarm_precedes_what_it_takes_back_and_a_clean_check_does_not():
    """Mutation: the trace check after the class always."""
    for alarmed in (True, False):
        text = "\n".join(first_lines.lines(screen(trust="Trace check: so.", alarmed=alarmed)))
        assert (text.index("Trace check") < text.index("Compute-bound")) == alarmed
