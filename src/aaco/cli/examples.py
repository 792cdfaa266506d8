"""Examples of every verb, shown by its help; a test parses each line, and runs those that are cheap."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """What a line is for, and the line as it is typed; short enough for 80 columns."""

    why: str
    line: str


def _of(*pairs: str) -> tuple[Example, ...]:
    return tuple(map(Example, pairs[::2], pairs[1::2]))


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "run": _of("where does the time of a model go, on the CPU?", "aaco run resnet50 --batch 1",
               "on an AMD GPU, with what the operating system does to it",
               "aaco run --model resnet50 --backend migraphx --profile --telemetry"),
    "sweep": _of("which batch gives the most within 20 ms?", "aaco sweep resnet50 --batches 1,2,4,8 --slo 20"),
    "compare": _of("is B slower than A? both measured in turns", "aaco compare before.onnx after.onnx --tolerance 5%",
                   "the same of two commands", "aaco compare --command './old -n 9' --command './new -n 9'"),
    "trace": _of("which kernels take a program's device time, and how full they run it?",
                 "aaco trace --pmc SQ_WAVES,OccupancyPercent -- ./app --size 4096"),
    "profile": _of("how long does a program take, run ten times?", "aaco profile --runs 10 -- python3 train.py"),
    "lab run": _of("run a program on two quiet CPUs", "aaco lab run --level basic --cpus 2-3 -- ./program"),
    "lab enter": _of("make the machine quiet until `aaco lab exit`", "aaco lab enter --level strict"),
    "lab exit": _of("put everything back", "aaco lab exit --manifest capsule.json"),
    "lab status": _of("what is changed now?", "aaco lab status"),
    "lab restore": _of("after a crash", "aaco lab restore"),
    "lab diff": _of("were two experiments made alike?", "aaco lab diff before.json after.json"),
    "capsule": _of("make the machine quiet", "aaco capsule --level strict"),
    "uncapsule": _of("and put everything back", "aaco uncapsule"),
    "import": _of("a PyTorch or rocprofv3 trace becomes a session", "aaco import trace.json.gz --as training",
                  "a folder with one file per rank", "aaco import traces/ --tag ranks"),
    "kernels": _of("the ten kernels that took the most time", "aaco kernels --top 10"),
    "instructions": _of("where do the waves of the kernels wait?", "aaco instructions latest"),
    "critical-path": _of("what would a twice as fast kernel gain?", "aaco critical-path --what-if 'gemm*=0.5'"),
    "ops": _of("the operators that took the device's time", "aaco ops --json"),
    "roofline": _of("how near their ceilings do kernels come?", "aaco roofline latest"),
    "ir": _of("what did each pass of the compiler do?", "aaco ir passes.mlir"),
    "isa": _of("registers and occupancy of compiled kernels", "aaco isa kernels.co"),
    "sql": _of("ask the tables of the latest session",
               "aaco sql 'SELECT phase, count(*) FROM inference_iters GROUP BY 1'",
               "of every session, for another program", "aaco sql 'SELECT * FROM kernels' --all --format csv"),
    "check": _of("can the trace be trusted?", "aaco check latest"),
    "features": _of("every metric of the latest session, as a row of CSV", "aaco features"),
    "perfetto": _of("open the result with https://ui.perfetto.dev", "aaco perfetto latest -o trace.pftrace"),
    "summary": _of("the first look at the latest session", "aaco summary"),
    "chi": _of("the health of the latest session", "aaco chi"),
    "report": _of("the latest session", "aaco report",
                  "as a page", "aaco report --session latest --format html -o report.html",
                  "as a document for programs", "aaco report latest --json"),
    "explain": _of("what does this number mean, and what is it here?", "aaco explain KAR"),
    "analyze": _of("answers of a run that was killed", "aaco analyze latest"),
    "diff": _of("is the latest session slower than the baseline?", "aaco diff --baseline main --threshold 5%"),
    "regression": _of("the same under its other name", "aaco regression --baseline main --session latest"),
    "drift": _of("where did histories change their level?", "aaco drift --metric latency_p50_ms"),
    "root-cause": _of("why is the latest session slower?", "aaco root-cause --baseline main"),
    "outputs": _of("do two sessions compute the same?", "aaco outputs main latest"),
    "baseline save": _of("the latest session is what to compare with", "aaco baseline save main"),
    "baseline list": _of("which are there?", "aaco baseline list"),
    "baseline show": _of("what is in it?", "aaco baseline show main"),
    "baseline export": _of("take it to another machine", "aaco baseline export main -o main.json"),
    "baseline import": _of("and in there", "aaco baseline import main.json main"),
    "baseline promote": _of("from now on this is the level", "aaco baseline promote main latest"),
    "baseline expire": _of("without one session", "aaco baseline expire main 20260101_000000_abcdef"),
    "history add": _of("remember the latest session", "aaco history add latest"),
    "history import": _of("what pytest-benchmark measured", "aaco history import benchmarks.json"),
    "history list": _of("what has a history?", "aaco history list"),
    "history sessions": _of("the medians of a model, in the order of time", "aaco history sessions resnet50"),
    "history accept": _of("the new level is meant",
                          "aaco history accept resnet50 latest --author me --reason driver"),
    "history branch": _of("what a branch was made from", "aaco history branch feature 1a2b3c4"),
    "ci": _of("a pull request", "aaco ci aaco-ci.yaml -o reports",
              "the main branch", "aaco ci aaco-ci.yaml --save-baselines"),
    "bundle export": _of("a session as one file", "aaco bundle export latest -o session.tar.zst"),
    "bundle verify": _of("is it whole?", "aaco bundle verify session.tar.zst"),
    "bundle import": _of("somebody else's session becomes one of mine", "aaco bundle import session.tar.zst"),
    "sla check": _of("does the latest session keep the default objectives?", "aaco sla check",
                     "or mine", "aaco sla check latest --policy sla.yaml --strict"),
    "sla policy": _of("a policy to start from", "aaco sla policy"),
    "ls": _of("the newest sessions", "aaco ls --limit 5", "those of one model", "aaco ls --model resnet50"),
    "info": _of("what is installed?", "aaco info", "what is in a session?", "aaco info latest"),
    "gc": _of("what could go?", "aaco gc --dry-run"),
    "env diff": _of("what changed between two runs?", "aaco env diff 20260101 latest"),
    "models": _of("what can be run, and on what?", "aaco models"),
    "doctor": _of("what does not work here, and how to fix it?", "aaco doctor",
                  "which commands would make the machine quiet?", "aaco doctor --prepare"),
    "calibrate": _of("what is the most this machine can do?", "aaco calibrate"),
    "config show": _of("where does each setting come from?", "aaco config show"),
    "dashboard": _of("the sessions of this folder, at http://127.0.0.1:8501", "aaco dashboard",
                     "of another, at any free port", "aaco dashboard --sessions-dir nightly/sessions --port 0"),
    "serve": _of("the sessions of this folder, for programs on this machine", "aaco serve",
                 "for others, who show a token", "aaco serve --host 0.0.0.0 --tokens tokens.txt"),
    "completion": _of("complete words in bash, from now on and in this shell",
                      "aaco completion bash > ~/.local/share/bash-completion/completions/aaco",
                      "the same in fish", "aaco completion fish > ~/.config/fish/completions/aaco.fish"),
}
