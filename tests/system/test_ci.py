"""`aaco ci` on real measurements, and the ready workflows, run command by command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ci"
MARKER = "<!-- aaco-ci: demo -->"
# A program that sleeps is hardly slowed by its neighbours: on a busy machine, too, twice as long is twice as long. (And
# a shell is there at once, where Python takes a time of its own.)
WORK = ["sh", "-c", "sleep $(cat seconds)"]
FAST, SLOW = 0.15, 0.45
RUNS = 5


def suite(folder: Path, *benchmarks: dict, **more) -> Path:
    path = folder / "aaco-ci.yaml"
    path.write_text(yaml.safe_dump({"tolerance_pct": 40, "benchmarks": list(benchmarks), **more}))
    return path


def entry(**more) -> dict:
    return {"name": "nap", "baseline": "main", **more}


def measure(made: Aaco, seconds: float, tag: str) -> None:
    (made.folder / "seconds").write_text(str(seconds))
    made.inside("profile", "-n", RUNS, "--warmup", 0, "-q", "--tag", tag, "--", *WORK)


@pytest.fixture(scope="module")
def based(tmp_path_factory, cache) -> Aaco:
    """A baseline of a fast program."""
    made = Aaco(tmp_path_factory.mktemp("ci"), cache)
    measure(made, FAST, "fast")
    made.inside("baseline", "save", "main", "fast")
    return made


@pytest.fixture(scope="module")
def folder(based) -> Aaco:
    """The same, with more sessions of the fast program and of a slow one."""
    for seconds, tag in ((FAST, "fast-too"), (SLOW, "slow"), (SLOW, "slow-too")):
        measure(based, seconds, tag)
    return based


def document(done) -> dict:
    return json.loads(done.stdout)


def test_what_is_run_here_turns_red_only_after_fresh_processes(based):
    """Mutation: the first look decides (then there is no second session)."""
    made = suite(based.folder, entry(command=WORK, baseline_command=["sleep", str(FAST)], processes=RUNS, warmup=0))
    (based.folder / "seconds").write_text(str(SLOW))
    report = document(based.inside("ci", made, "-q", "--json", expect=3))
    check = report["benchmarks"][0]["checks"][0]
    assert check["outcome"] == "regressed" and len(check["confirmed_by"]) == 1 and 40 < check["effect_pct"] < 400
    first, again = report["benchmarks"][0]["session_ids"]
    assert first != again
    verdict, confirming = (json.loads(next(based.folder.glob(f"sessions/2*/{one}/regress/verdict.json")).read_text())
                           for one in (first, again))
    assert verdict["confirmed_by"] == check["confirmed_by"] == [again]
    assert document(based.inside("info", first, "--json"))["damaged"] == {}
    assert confirming["status"] == "regressed"
    fresh, = report["benchmarks"][0]["fresh_baseline_ids"]
    assert fresh == based.latest.resolve().name and fresh not in (first, again)


def test_where_the_baselines_version_is_as_slow_it_is_the_machine(based):
    """Mutation: the baseline's version is not measured."""
    (based.folder / "seconds").write_text(str(SLOW))
    made = suite(based.folder, entry(command=WORK, baseline_command=[*WORK, "as-before"], processes=RUNS, warmup=0))
    report = document(based.inside("ci", made, "-q", "--json", expect=0))
    check = report["benchmarks"][0]["checks"][0]
    assert check["outcome"] == "unconfirmed" and "the machine changed" in check["why"]


@pytest.mark.parametrize(("more", "code", "outcome"), [
    ({"session": "fast-too"}, 0, {"equivalent", "inconclusive"}), ({"session": "slow"}, 0, {"suspect"}),
    ({"session": "slow", "confirm": ["slow-too"]}, 3, {"regressed"}),
    ({"session": "slow", "confirm": ["fast-too"]}, 0, {"unconfirmed"}),
    ({"session": "slow", "confirm": ["slow-too", "fast-too"]}, 0, {"unconfirmed"}),
    ({"session": "slow", "baseline": "nothing"}, 0, {"no_baseline"}), ({"session": "no-such"}, 2, {"error"}),
    ({"session": "slow", "confirm": ["no-such"]}, 2, {"error"}),
    ({"command": ["no-such-program"]}, 6, {"error"}), ({"model": "no-such-model"}, 5, {"error"})])
def test_outcomes_and_exit_codes(folder, more, code, outcome):
    report = document(folder.inside("ci", suite(folder.folder, entry(**more)), "-q", "--json", expect=code))
    assert {report["benchmarks"][0]["outcome"]} <= outcome and report["exit_code"] == code
    if outcome & {"suspect", "no_baseline"}:
        folder.inside("ci", "-q", "--strict", expect=4)


def test_a_failed_benchmark_beside_a_regression(folder):
    red = entry(session="slow", confirm=["slow-too"])
    broken = entry(name="broken", command=["no-such-program"])
    done = folder.inside("ci", suite(folder.folder, red, broken), "-q", "-o", "out", expect=3)
    assert "the tool failed (exit 6)" in done.stdout and "regressed" in done.stdout
    root = ET.parse(folder.folder / "out" / "junit.xml").getroot()
    assert (int(root.get("failures")) > 0, root.get("errors")) == (True, "1")
    log = json.loads((folder.folder / "out" / "aaco.sarif").read_text())
    assert not log["runs"][0]["invocations"][0]["executionSuccessful"] and log["runs"][0]["results"]
    text = (folder.folder / "out" / "comment.md").read_text()
    assert text.startswith("<!-- aaco-ci: aaco -->") and "no-such-program" in text


def test_ignored_until_and_expired(folder):
    red = entry(session="slow", confirm=["slow-too"])
    for until, code in (("2999-12-31", 0), ("2020-01-01", 3)):
        known = [{"benchmark": "nap", "metric": "*", "until": until, "reason": "the disk was swapped"}]
        done = folder.inside("ci", suite(folder.folder, red, ignore=known), "-q", expect=code)
        assert "the disk was swapped" in " ".join(done.stdout.split())


def test_objectives_of_a_suite(folder):
    (folder.folder / "tight.yaml").write_text("objectives: [{metric: p50, max: 1 ms}]")
    missed = {"name": "nap", "session": "fast", "confirm": ["fast-too"], "sla": "tight.yaml"}
    report = document(folder.inside("ci", suite(folder.folder, missed), "-q", "--json", expect=3))
    assert report["benchmarks"][0]["outcome"] == "missed"
    del missed["confirm"]
    assert folder.inside("ci", suite(folder.folder, missed), "-q").stdout.startswith("INCONCLUSIVE")


def test_what_is_wrong_in_the_suite_is_said_before_anything_is_measured(folder):
    before = folder.inside("ls", "--json").stdout
    good = entry(command=WORK)
    folder.inside("ci", suite(folder.folder, good, sla="nowhere.yaml"), expect=2)
    folder.inside("ci", suite(folder.folder, good, good), expect=2)
    folder.inside("ci", "nowhere.yaml", expect=2)
    assert folder.inside("ls", "--json").stdout == before


# --- the ready workflows ---

GH = """#!/usr/bin/env bash
# Stands for the forge: keeps one comment in a file, and says what was asked of it.
echo "$@" >> "$FORGE/asked"
case " $* " in
  *" --jq "*) if [ -f "$FORGE/comment" ]; then echo 7; fi ;;
  *" DELETE "*) rm "$FORGE/comment" ;;
  *body=@*) for word in "$@"; do case $word in body=@*) cp "${word#body=@}" "$FORGE/comment" ;; esac; done ;;
esac
"""


@pytest.fixture
def forge(tmp_path, cache) -> tuple[Aaco, dict[str, str]]:
    """A folder with the examples' suite, and `aaco`, `pip` and `gh` on the PATH, of which the first is real."""
    made = Aaco(tmp_path / "work", cache)
    bin_, forge = tmp_path / "bin", tmp_path / "forge"
    bin_.mkdir()
    forge.mkdir()
    shutil.copy(EXAMPLES / "aaco-ci.yaml", made.folder)
    limits = (EXAMPLES / "slo.yaml").read_text()
    assert " ms}" in limits and "min: 20}" in limits  # any machine keeps a thousand times as much
    (made.folder / "slo.yaml").write_text(limits.replace(" ms}", " s}").replace("min: 20}", "min: 0.02}"))
    programs = {"aaco": f'#!/usr/bin/env bash\nexec {shlex.quote(sys.executable)} -m aaco "$@"\n',
                "pip": "#!/usr/bin/env bash\nexit 0\n", "gh": GH}
    for name, text in programs.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    return made, made.environment(PATH=path, FORGE=str(forge), GITHUB_STEP_SUMMARY=str(forge / "summary"))


def bash(made: Aaco, text: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-eo", "pipefail", "-c", text], cwd=made.folder, env=environment, text=True,
                          capture_output=True, timeout=280)


def steps(name: str) -> dict[str, dict]:
    workflow = yaml.safe_load((EXAMPLES / name).read_text())
    return {step["name"]: step for step in workflow["jobs"]["aaco"]["steps"] if "run" in step}


def github(made: Aaco, environment: dict[str, str], event: str, expect: tuple[int, ...] = (0,)) -> str:
    """Runs the steps of the workflow as GitHub would for this event; what they printed."""
    environment = environment | {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": event}
    said, failed = [], False
    for step in steps("github.yml").values():
        condition = step.get("if", "success()")
        if (condition == "failure()" and not failed) or ("pull_request" in condition and event != "pull_request") or (
                condition == "success()" and failed):
            continue
        given = {key: re.sub(r"\$\{\{.*?\}\}", "17", value) for key, value in step.get("env", {}).items()}
        done = bash(made, step["run"], environment | given)
        assert done.returncode in (*expect, 0), f"{step['name']}\n{done.stdout}\n{done.stderr}"
        failed |= done.returncode != 0
        said.append(done.stdout)
    return "".join(said)


def test_the_github_workflow(forge):
    made, environment = forge
    store = Path(environment["FORGE"])
    github(made, environment, "push")
    assert (made.folder / "aaco-ci" / "aaco-ci.json").is_file() and not (store / "asked").exists()
    assert MARKER in (store / "summary").read_text()
    listed = json.loads((made.inside("baseline", "list", "--json")).stdout)["baselines"]
    assert {each["name"] for each in listed} <= {"main-bert", "main-json"}
    # The change makes the model slower than its objective allows: an order of magnitude, whatever else runs here.
    (made.folder / "slo.yaml").write_text("objectives: [{metric: p50, max: 1 us}]")
    said = github(made, environment, "pull_request", expect=(3,))
    assert "::error file=aaco-ci.yaml,title=missed%3A bert tiny latency_p50_ms::" in said
    assert (store / "comment").read_text().startswith(MARKER) and "missed" in (store / "comment").read_text()
    assert (made.folder / "aaco-ci" / "evidence.tar.zst").is_file()
    made.inside("bundle", "verify", "aaco-ci/evidence.tar.zst")
    (made.folder / "aaco-ci" / "comment.md").write_text(f"{MARKER}\nagain\n")  # the steps of the comment alone
    step = steps("github.yml")["One comment, written anew each time; none where nothing changed"]["run"]
    whole = environment | {"REPOSITORY": "o/r", "NUMBER": "17"}
    assert bash(made, step, whole).returncode == 0 and "again" in (store / "comment").read_text()
    assert "PATCH repos/o/r/issues/comments/7" in (store / "asked").read_text().splitlines()[-1]
    (made.folder / "aaco-ci" / "comment.md").write_text("")
    assert bash(made, step, whole).returncode == 0 and not (store / "comment").exists()
    asked = (store / "asked").read_text()
    assert bash(made, step, whole).returncode == 0 and not (store / "comment").exists()
    assert "--jq" in (store / "asked").read_text().removeprefix(asked)


def test_the_gitlab_job(forge):
    made, environment = forge
    job = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())["aaco"]
    for text in (*job["before_script"], *job["script"], *job["after_script"]):
        done = bash(made, text, environment | {"CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"})
        assert done.returncode == 0, done.stderr
    assert ET.parse(made.folder / job["artifacts"]["reports"]["junit"]).getroot().get("errors") == "0"


def test_the_keys_of_a_benchmark_are_in_the_guide():
    from aaco.governance.suite import Benchmark, Suite

    named = set(re.findall(r"`(\w+)`", (ROOT / "docs/guides/ci.md").read_text()))
    assert set(Benchmark.model_fields) | set(Suite.model_fields) - {"schema_version", "benchmarks"} <= named
