"""Root causes: laws against scipy, posteriors against enumeration, symptoms against closed formulas, bad input."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from aaco.analytics.diagnosis import UNCHECKED, diagnose
from aaco.analytics.root_cause import posterior, signals, symptoms
from aaco.analytics.root_cause.causes import CAUSES, SIGNS, SOUND, UNKNOWN, of
from aaco.analytics.root_cause.likelihood import PAIR_ODDS, Law, Likelihoods
from aaco.analytics.root_cause.symptoms import SYMPTOMS, Side
from aaco.analytics.truth.trust import Alarm, Trust
from aaco.cli.root_cause import LEVELS
from aaco.core.errors import BadBundle, UsageError
from aaco.core.readings import Absent
from aaco.core.tables import ACCOUNT, INFERENCE_ITERS, SYSTEM_EVENTS
from aaco.report.sections import root_cause as report
from aaco.tracelake.history import confirmed
from aaco.workflows import contamination, root_cause
from benchmarks.faults import recording, score
from tests.explained import Sample

FAULTS = Path(__file__).parents[1] / "captures" / "faults"
BASE = {"period_ns": 1e6, "gap_ns": 1e4, "latency_p90_ns": 1.1e6, "latency_median_ns": 1e6, "elements": 100.0,
        "wait_ratio": 0.01, "faults_minor": 0.0, "threads": 4.0}
TABLE = Likelihoods(
    {"batch": {"elements": Law(0.7, 0.3), "slowdown": Law(0.5, 0.3)},
     "page_faults": {"page_faults": Law(5.0, 0.7), "between_inferences": Law(0.9, 0.2), "slowdown": Law(0.5, 0.3)}},
    {name: Law(0.0, 0.1) for name in ("elements", "slowdown", "page_faults", "between_inferences")},
    {"input": 0.5}, degrees=8.0)


def judged(current, table=TABLE, known=None):
    return posterior.judge(symptoms.compare(Side(BASE), Side({**BASE, **current})), table, known)


def test_a_law_is_students_t() -> None:
    x = np.linspace(-30, 30, 61)
    for place, width, degrees in ((0.0, 1.0, 8.0), (0.7, 0.05, 4.0), (-3.0, 2.5, 30.0)):
        expected = stats.t.logpdf(x, degrees, loc=place, scale=width)
        assert Law(place, width).log_density(x, degrees) == pytest.approx(expected, abs=1e-9)


def test_probabilities_are_those_of_an_enumeration_of_all_hypotheses() -> None:
    """Every hypothesis worked out anew from the definitions, with scipy's t. Mutation: pairs left out."""
    shift = {"elements": 0.5, "slowdown": 0.8, "page_faults": 0.3, "between_inferences": 0.2}
    chosen = [symptoms.BY_NAME[name] for name in shift]
    sums = TABLE.ratios(np.array([list(shift.values())]), chosen).sum(axis=2)
    each, answers = TABLE.chances(sums, np.zeros(4))

    def density(law, x):
        return stats.t.logpdf(x, 8.0, loc=law.place, scale=law.width)

    def law_of(cause, name):
        return TABLE.laws[cause].get(name, TABLE.sound[name])

    odds = {}
    for name, x in shift.items():
        weight, sound = TABLE.weights.get(symptoms.BY_NAME[name].group, 1.0), density(TABLE.sound[name], x)
        known = [density(law_of(cause, name), x) for cause in TABLE.laws]
        anything = np.logaddexp(np.log(0.8) + np.logaddexp.reduce([*known, sound]) - np.log(3),
                                np.log(0.2) + stats.t.logpdf(x, 8.0))
        one, two = (law_of(cause, name) for cause in TABLE.laws)
        if name == "slowdown":
            both = density(Law(one.place + two.place, math.hypot(one.width, two.width)), x)
        elif name == "between_inferences":
            half = abs(one.place - two.place) / 2
            both = density(Law((one.place + two.place) / 2, max(half, one.width, two.width)), x)
        else:
            both = known[0] if name == "elements" else known[1]
        for hypothesis, value in zip(("batch", "page_faults", UNKNOWN, SOUND, "both"), [*known, anything, sound, both],
                                     strict=True):
            odds[hypothesis] = odds.get(hypothesis, 0.0) + weight * (value - sound)
    odds["both"] += math.log(PAIR_ODDS)
    chance = {name: math.exp(value) for name, value in odds.items()}
    expected = {name: value / sum(chance.values()) for name, value in chance.items()}
    assert each[0] == pytest.approx([expected[name] for name in ("batch", "page_faults", UNKNOWN, SOUND, "both")])
    assert answers[0] == pytest.approx([expected["batch"] + expected["both"], expected["page_faults"] +
                                        expected["both"], expected[UNKNOWN], expected[SOUND]])


def test_the_explanation_is_the_sum_itself() -> None:
    found = judged({"elements": 200.0, "period_ns": 1.7e6}, replace(TABLE, bias=1.5), {"batch": 6})
    for answer in found.answers:
        assert answer.log_odds == pytest.approx(answer.log_prior_odds + answer.head_start + sum(answer.parts.values()))
    named = {answer.cause.name: answer for answer in found.answers}
    assert found.first.cause.name == "batch" and named[SOUND].log_odds == 0
    assert named["batch"].log_prior_odds == pytest.approx(math.log(10 / 4))  # Dirichlet: 4 + 6 against 4
    assert named[UNKNOWN].head_start == 1.5
    # Mutation: the ratio of another answer in the table.
    expected = TABLE.ratios(np.array([[math.log(2)]]), [symptoms.BY_NAME["elements"]])[0, 0, 0]
    assert named["batch"].parts["elements"] == pytest.approx(expected)


def test_healthy_evidence_speaks_against_and_missing_evidence_says_nothing() -> None:
    slow = {"period_ns": 1.7e6}
    healthy = {answer.cause.name: answer for answer in judged(slow).answers}
    evidence = [item for item in symptoms.compare(Side(BASE), Side({**BASE, **slow})) if item.name != "elements"]
    missing = {answer.cause.name: answer for answer in posterior.judge(evidence, TABLE).answers}
    assert healthy["batch"].parts["elements"] < -1
    assert healthy["batch"].posterior < missing["batch"].posterior
    absent = next(item for item in symptoms.compare(Side(BASE), Side(BASE)) if item.name == "throttled")
    assert absent.missing and "was not recorded" in absent.why_missing
    assert healthy["batch"].parts["throttled"] == 0


def test_two_causes_at_once_are_both_found() -> None:
    certain = replace(TABLE, weights={}, novelty=0.01, sound={name: Law(0.0, 0.05) for name in TABLE.sound})
    found = judged({"elements": 200.0, "faults_minor": 300.0, "period_ns": 3e6, "gap_ns": 9e5}, certain)
    assert {answer.cause.name for answer in found.answers[:2]} == {"batch", "page_faults"}
    assert found.together[0] == ("batch", "page_faults") and found.together[1] > 0.5


def test_nothing_changed_is_no_fault() -> None:
    assert judged({}).first.cause.name == SOUND


def test_a_cause_is_ruled_out_by_its_own_sign_at_rest_and_by_anothers_that_moved_far() -> None:
    """In widths of sound runs (0.1): by hand from the two rules. Mutations: either rule left out."""
    shift = {"elements": [0.02, 0.7, 0.7, math.nan], "page_faults": [0.7, 0.7, 0.1, math.nan],
             "between_inferences": [0.3, 0.04, -0.9, math.nan], "slowdown": [0.0, 9.0, 0.0, math.nan]}
    chosen = [symptoms.BY_NAME[name] for name in shift]
    found = TABLE.ruled_out(np.array([*shift.values()]).T, chosen) < 0
    batch, faults, unknown, sound, both = found.transpose(1, 0, 2)
    # Columns: elements, page_faults, between_inferences, slowdown; the slowdown is no sign of anything.
    assert batch.tolist() == [[True, True, False, False], [False, True, False, False], [False] * 4, [False] * 4]
    assert faults.tolist() == [[False] * 4, [True, False, True, False], [True, False, True, False], [False] * 4]
    assert both.tolist() == [[True, False, False, False], [False, False, True, False], [False, False, True, False],
                             [False] * 4]
    assert not unknown.any() and not sound.any()


def test_fewer_cpus_are_a_sign_and_more_are_none() -> None:
    table = Likelihoods({"core_pinning": {"cpus_allowed": Law(-0.7, 0.3)}}, {"cpus_allowed": Law(0.0, 0.05)})
    fewer, more = table.ruled_out(np.array([[-0.3], [0.3]]), [symptoms.BY_NAME["cpus_allowed"]])
    assert not fewer.any() and more[0, 0] < 0


def test_every_cause_has_a_sign_and_every_sign_is_a_symptom() -> None:
    assert set(SIGNS) == set(CAUSES) - {UNKNOWN, SOUND}
    assert {name for signs in SIGNS.values() for name in signs} <= set(symptoms.BY_NAME)


def test_a_fault_that_nobody_learnt_is_unknown_and_not_its_relative() -> None:
    """A quota among contention, pinning and threads, which do as it does to all but one counter."""
    shipped = root_cause.shipped()
    laws = {cause: law for cause, law in shipped.laws.items() if cause != "cpu_quota"}
    runs = [run for run in recording.labelled([FAULTS / "h100_host_2.jsonl.gz"]) if run.cause == "cpu_quota"]
    said = [order[0] for _, order, _ in score.answers(replace(shipped, laws=laws), runs)]
    assert len(said) >= 8 and set(said) == {UNKNOWN}


@pytest.mark.parametrize("name", sorted(recording.IN_ROOT_GROUP))
def test_the_recordings_themselves_say_that_nothing_stopped_sound_runs(name: str) -> None:
    """A thread that a quota stops waits in the run queue meanwhile: the wait bounds the time that was derived as 0."""
    rows = [row for row in recording.read(FAULTS / name) if "cause" in row]
    planted = [row["signals"] for row in rows if row["cause"] == "cpu_quota"]
    assert len(planted) >= 8
    assert all(0.5 < one["throttled_ratio"] < 1.03 * one["wait_ratio"] for one in planted)
    sound = [row["signals"] for row in rows if row["cause"] == SOUND]
    assert len(sound) > 80 and max(one["wait_ratio"] for one in sound) < 0.005
    assert all(("cpu_quota" in row["cause"]) == (row["signals"]["throttled_ratio"] > 0) for row in rows)


def test_ranks_are_the_stated_sum() -> None:
    """Mutation: ease counted twice."""
    found = judged({"elements": 200.0, "period_ns": 2e6})
    first = found.ranked[0]
    assert first.answer.cause.name == "batch" and first.impact == pytest.approx(0.5)
    assert first.score == pytest.approx(0.35 * 0.5 + 0.2 * first.answer.posterior + 0.15 * 1.0 + 0.3 * 1.0)
    assert SOUND not in [one.answer.cause.name for one in found.ranked]


def table(spec, **columns):
    return spec.build(**columns)


def test_signals_of_a_process_by_hand() -> None:
    """Ten iterations of 2 ms every 3 ms. Mutation: warm-up counted in."""
    start = np.arange(10) * 3_000_000 + 1_000_000_000
    iters = table(INFERENCE_ITERS, iteration=[0, *range(10)], phase=["warmup", *["measurement"] * 10],
                  t_start_ns=[0, *start], t_end_ns=[1000, *(start + 2_000_000)], latency_ms=[0.001, *[2.0] * 10],
                  process=[0] * 11)
    account = table(ACCOUNT, process=[0, 0], t_ns=[1_000_000_500, 1_027_000_000], dur_ns=[900_000_000, 26_000_000],
                    threads=[4, 4], run_queue_wait_ns=[9, 2_600_000], switches_involuntary=[99, 9],
                    switches_voluntary=[99, 0], faults_minor=[99, 18], faults_major=[0, 0])
    events = table(SYSTEM_EVENTS, t_ns=[1_020_000_000] * 3 + [1], kind=["sample", "cpu_time", "psi_io", "sample"],
                   dur_ns=[10_000_000, 25_000_000, None, 5], value=[4.0, None, 100.0, 1.0], tier=["T1"] * 4)
    found = signals.of_process(iters, account, events, [{"core_mean_ns": 2.0}, {"core_mean_ns": 4.0}])
    assert found["period_ns"] == pytest.approx(2.9e6) and found["gap_ns"] == 1e6
    assert found["latency_median_ns"] == 2e6 and found["wait_ratio"] == pytest.approx(0.1)
    assert found["faults_minor"] == pytest.approx(18 * 29 / 26 / 10)
    assert found["cpu_ratio"] == 2.5 and found["psi_io_ratio"] == pytest.approx(0.01)
    assert found["probe_core_mean_ns"] == 3.0 and "throttled_ratio" not in found
    with pytest.raises(Absent, match="at least 5"):
        signals.of_process(iters.slice(0, 4), account, None, None)


def test_symptoms_by_their_formulas() -> None:
    before = Side(BASE, {"Add": 2, "MatMul": 2}, {"Add": 1, "Gemm": 1}, {"float32": 4})
    after = Side({**BASE, "period_ns": 2e6, "gap_ns": 5.1e5, "wait_ratio": 0.4, "faults_minor": 8.0},
                 {"Add": 2, "MatMul": 2}, {"Add": 2, "MatMul": 2}, {"float16": 4})
    found = symptoms.shifts(before, after)
    assert found["slowdown"] == pytest.approx(math.log(2)) and found["between_inferences"] == pytest.approx(0.5)
    assert found["waiting_part"] == pytest.approx(0.79) and found["page_faults"] == pytest.approx(math.log(5))
    assert found["nodes_unfused"] == pytest.approx(math.log(2)) and found["element_types"] == 1
    assert found["operators_given"] == 0 and found["operators_executed"] == pytest.approx(0.5)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_time_is_missing_and_never_a_number(value: float) -> None:
    found = {item.name: item for item in symptoms.compare(Side(BASE), Side({**BASE, "period_ns": value}))}
    assert found["slowdown"].missing and found["slowdown"].why_missing
    answers = posterior.judge(list(found.values()), TABLE).answers
    assert all(0 <= answer.posterior <= 1 for answer in answers)


def test_shipped_likelihoods_say_where_they_come_from_and_read_back() -> None:
    shipped = root_cause.shipped()
    assert {"machine", "date", "recorded_runs"} <= set(shipped.provenance)
    assert Likelihoods.from_document(json.loads(json.dumps(shipped.document()))) == shipped
    assert set(shipped.laws) | {UNKNOWN, SOUND} == set(CAUSES)
    assert {name for laws in shipped.laws.values() for name in laws} <= {symptom.name for symptom in SYMPTOMS}


@pytest.mark.parametrize("broken", [
    {}, {"schema_version": 99}, {"schema_version": 1, "laws": 3}, [], "x",
    {**TABLE.document(), "temperature": 0.0}, {**TABLE.document(), "sound": {"slowdown": [0.0, -1.0]}},
    {**TABLE.document(), "sound": {"slowdown": [0.0]}}])
def test_broken_likelihoods_are_refused(broken) -> None:
    with pytest.raises(BadBundle):
        Likelihoods.from_document(broken)


def test_the_shipped_likelihoods_explain_their_recordings() -> None:
    """No proof of worth (that is benchmarks.governance, held out), but the table, code and recordings fit together."""
    shipped = root_cause.shipped()
    runs = recording.labelled([FAULTS / name for name in shipped.provenance["recordings"]])
    single = [run for run in runs if "+" not in run.cause]
    right = [order[0] == run.cause for run, order, _ in score.answers(shipped, single)]
    assert len(single) > 800 and np.mean(right) > 0.95
    assert {cause: sum(run.cause == cause for run in single) for cause in shipped.rows} == shipped.rows


def test_calibration_error_of_known_cases() -> None:
    """Ten answers at 0.85 of which six are right: off by 0.25."""
    right = np.arange(10) < 6
    assert score.calibration_error(np.full(10, 0.85), right) == pytest.approx(0.25)
    mixed = score.calibration_error(np.array([0.95, 0.95, 0.15, 0.15]), np.array([True, True, False, False]))
    assert mixed == pytest.approx((2 * 0.05 + 2 * 0.15) / 4)


def test_the_interval_of_a_calibration_error_holds_it_and_narrows_with_runs() -> None:
    """Against the closed formula: one bin, so the error is that of a share."""
    few, many = (score.Tally(first=[True, False] * half, sure=[0.7] * 2 * half) for half in (20, 500))
    (low, high), (lower, upper) = few.ece_interval(), many.ece_interval()
    assert low < 0.2 < high and lower < 0.2 < upper and (upper - lower) < (high - low) / 2
    # Of 1000 answers at 0.7 of which half are right: a binomial share, so 0.2 with 1.96 standard deviations.
    assert (lower, upper) == pytest.approx((0.2 - 0.031, 0.2 + 0.031), abs=0.004)


def test_a_blind_figure_rests_on_the_other_recording_alone(monkeypatch) -> None:
    first, second = (recording.labelled([FAULTS / name]) for name in ("h100_host.jsonl.gz", "h100_host_2.jsonl.gz"))
    taught = []
    monkeypatch.setattr(score, "learn", lambda runs: taught.extend(runs) or root_cause.shipped())
    found = score.blind(first, second)
    single = [run for run in first if "+" not in run.cause]
    assert taught[:len(single)] == single and {id(run) for run in taught} == {id(run) for run in single}
    assert len(found["blind: unknown fault recognised"]) == len(found["blind: top-1"])
    assert len(found["blind: top-1"]) == sum(run.cause != SOUND and "+" not in run.cause for run in second)
    assert len(found["blind: no fault said where there is none"]) == sum(run.cause == SOUND for run in second)


def test_confirmed_causes_are_kept_once_per_session(tmp_path: Path) -> None:
    store = tmp_path / "new"
    assert confirmed.confirm(store, "s1", "batch") and not confirmed.confirm(store, "s1", "batch")
    assert confirmed.confirm(store, "s2", "threads") and confirmed.confirm(store, "s1", "threads")
    assert confirmed.counts(store) == {"threads": 2}
    with pytest.raises(UsageError, match="no name of a cause"):
        confirmed.confirm(store, "s3", "rm -rf")
    with pytest.raises(UsageError, match="no cause that can be answered"):
        root_cause.confirm(store, "s3", "gremlins")


@pytest.mark.parametrize("content", [b"{", b"[1]\n", b"\xff\xfe\n", b'{"session_id": 1}\n', b"[" * 100_000 + b"\n"])
def test_a_damaged_store_of_confirmations_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / confirmed.FILE).write_bytes(content)
    with pytest.raises(BadBundle):
        confirmed.read(tmp_path)


def test_negative_confirmations_are_refused() -> None:
    with pytest.raises(UsageError, match="less than 0"):
        posterior.priors(TABLE.answers, {"batch": -1})


def found_of(current):
    return root_cause.RootCauseAnswer("now", "before", ("before",), judged(current), TABLE, {}, (("batch", 1, 4),),
                            ("a note",))


def test_each_level_says_all_that_the_one_before_says() -> None:
    document = found_of({"elements": 200.0, "period_ns": 1.7e6}).document()
    texts = [report.render(document, level) for level in LEVELS]
    for shorter, longer in itertools.pairwise(texts):
        assert longer.startswith(shorter.rstrip("\n")) and len(longer) > len(shorter)
    assert len(texts[0].splitlines()) <= 6 and "batch" in texts[0].splitlines()[0]
    assert "log odds against no_fault" in texts[2] and "log odds" not in texts[1]
    assert max(map(len, texts[3].splitlines())) <= 80
    json.dumps(document, allow_nan=False)


KNOWN, STRANGE = {"elements": 200.0, "period_ns": 1.7e6}, {"period_ns": 1.3e6, "gap_ns": 3e5}
EQUIVALENT = root_cause.MeasuredChange(-0.2, 5.0, -0.2, (-0.9, 0.5), 0.99, 1.1, "equivalent", "within")
UNSEEN = root_cause.MeasuredChange(6.0, 5.0, 5.4, (-3.0, 14.0), 0.99, 11.0, "inconclusive", "too coarse")
FASTER = root_cause.MeasuredChange(-11.5, 5.0, 0.7, None, 0.99, None, "inconclusive", "too few")
SLOWER = root_cause.MeasuredChange(30.0, 5.0, 30.0, (20.0, 40.0), 0.99, 9.0, "regressed", "above")
BETWEEN = root_cause.MeasuredChange(30.0, 5.0, 0.1, (-0.5, 0.7), 0.99, 1.0, "equivalent", "within")
UNKNOWN_SIZE = root_cause.MeasuredChange(30.0, 5.0, 30.0, None, 0.99, None, "inconclusive", "too few")


@pytest.mark.parametrize(("current", "change", "says"), [
    (STRANGE, EQUIVALENT, "within the tolerance of 5 %"), (KNOWN, EQUIVALENT, "within the tolerance of 5 %"),
    (STRANGE, UNSEEN, "below the smallest that could be seen, 11 %"), (KNOWN, UNSEEN, ""),
    (STRANGE, FASTER, "not slower"), (KNOWN, FASTER, ""),
    (STRANGE, SLOWER, ""), (STRANGE, BETWEEN, ""), (STRANGE, UNKNOWN_SIZE, "")])
def test_where_nothing_changed_there_is_nothing_to_explain(current, change, says) -> None:
    """A slowdown between inferences is one, though the latency is the same. Mutation: judged by the latency alone."""
    answer = replace(found_of(current), change=change)
    assert (answer.judgement.first.cause.name == "batch") == (current is KNOWN)
    document = answer.document()
    assert (says in document["why_nothing"] if says else document["why_nothing"] is None)
    assert document["status"] == ("nothing_to_explain" if says else "explained")
    assert (document["cause"] is None) == bool(says) and document["answers"]  # the keys stay
    for level in LEVELS:
        text = report.render(document, level)
        assert text.startswith("nothing to explain") == bool(says) and (not says or "unknown  " not in text)
        assert max(map(len, text.splitlines())) <= 80
    if says and change.ci:
        low, high = change.ci
        assert f"[{low:+.1f}, {high:+.1f}] (99 % interval)" in " ".join(report.render(document, "executive").split())
    json.dumps(document, allow_nan=False)


def test_no_experiment_is_made_where_nothing_changed(tmp_path: Path) -> None:
    answer = replace(found_of(KNOWN), change=EQUIVALENT)
    checked = root_cause.check(answer, None, pytest.fail, pytest.fail, tmp_path)
    assert checked.check.status == "not made" and "nothing changed" in checked.check.why


def session_with(session_id: str, trust: Trust = UNCHECKED, **values: float):
    explained = Sample().explain()
    readings = {name: replace(reading, value=None, why_absent="not here")
                for name, reading in explained.readings.items()}
    readings |= {name: replace(readings[name], value=value, why_absent="") for name, value in values.items()}
    return replace(explained, session_id=session_id, diagnosis=diagnose(readings, trust=trust))


def test_what_speaks_against_a_side_is_named_first_with_its_reading() -> None:
    """Mutation: the sides exchanged, or conditions of the workload taken for those of the measurement."""
    false = Trust((Alarm("kernels are missing"),), checked=True)
    before = [session_with("s1", noise_impact_pct=34.0, kernel_amplification_ratio=9.0), session_with("s2", false)]
    told = [*contamination.of_side("baseline", before, None),
            *contamination.of_side("session", [session_with("s3", device_throttled_pct=60.0)], None)]
    assert [(item.side, item.session_id, item.condition, item.value) for item in told] == [
        ("baseline", "s2", "trace_check", None), ("baseline", "s1", "interference", 34.0),
        ("session", "s3", "throttled_clock", 60.0)]
    for change in (EQUIVALENT, SLOWER):
        document = replace(found_of(STRANGE), change=change, contaminated=tuple(told)).document()
        lines = report.render(document, "executive").splitlines()
        assert lines[0].startswith("baseline contaminated        s2: trace check: NOT TO BE TRUSTED")
        text = " ".join(" ".join(lines).split())
        assert "kernels are missing, and 1 more (--json)" in text
        assert text.index("session contaminated s3") < text.index("nothing to" if change is EQUIVALENT else "unknown:")


def test_however_long_a_condition_is_the_answer_follows_within_ten_lines() -> None:
    long = [replace(next(iter(contamination.of_side(side, [session_with("s1", noise_impact_pct=34.0)], None))),
                    text="measured badly: " + "interference 0, " * 40) for side in ("baseline", "session")]
    document = replace(found_of(STRANGE), change=SLOWER, contaminated=tuple(long)).document()
    assert any("unknown:" in line for line in report.render(document, "executive").splitlines()[:10])


class Told:
    """An explanation as far as the experiment asks: its plan and its session."""

    def __init__(self, period, **plan):
        self.period, self.record, self.session_id = period, {"plan": plan}, f"s{period}"


@pytest.mark.parametrize(("again", "status", "regained"), [(1.05, "proved", 0.95), (1.9, "refuted", 0.1)])
def test_the_experiment_takes_the_cause_back(monkeypatch, again, status, regained) -> None:
    monkeypatch.setattr(root_cause, "_period", lambda explained: explained.period)
    asked = []

    def rerun(plan):
        asked.append(plan)
        return Told(again)

    made = root_cause._experiment(of("batch"), Told(2.0, batch=4, model="m"), [Told(1.0, batch=1, model="m")], rerun)
    assert (made.status, made.session_id) == (status, f"s{again}") and made.regained == pytest.approx(regained)
    assert asked == [{"batch": 1, "model": "m", "tag": "root-cause"}]


@pytest.mark.parametrize(("cause", "current", "why"), [
    ("cpu_contention", Told(2.0, batch=4), "somebody else"), ("batch", Told(2.0, batch=1), "same batch"),
    ("batch", Told(1.01, batch=4), "not slower")])
def test_no_experiment_where_none_can_prove_anything(monkeypatch, cause, current, why) -> None:
    monkeypatch.setattr(root_cause, "_period", lambda explained: explained.period)
    made = root_cause._experiment(of(cause), current, [Told(1.0, batch=1)], lambda plan: pytest.fail("was run"))
    assert made.status == "not made" and why in made.why and made.regained is None
