"""`aaco compare`: two sides in turns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir
from aaco.cli.talk import talk
from aaco.core.errors import UsageError

if TYPE_CHECKING:
    from aaco.governance.verdict_document import RegressionVerdict
    from aaco.workflows.duet.compare import DuetSide

MODEL_DEFAULTS = {"processes": 5, "pairs": 100, "warmup": 10}
COMMAND_DEFAULTS = {"processes": 8, "pairs": 5, "warmup": 1}
OF_MODELS, OF_COMMANDS = ("backend", "batch", "lab", "lab_cpus"), ("lab", "lab_cpus", "timeout_s", "ignore_failure")


@manual.command()
@click.argument("models", nargs=-1, metavar="[A] [B]")
@click.option("--command", "commands", multiple=True, metavar="'CMD ARGUMENTS'",
              help="Compare commands: give it twice, or once with two environments. No shell is involved.")
@click.option("--option-a", multiple=True, metavar="KEY=VALUE", help="An option of A alone: backend, batch, "
              "io, intra_op_threads, inter_op_threads, graph_optimization, device_id, option.NAME of its provider, "
              "session.NAME of ONNX Runtime's session.")
@click.option("--option-b", multiple=True, metavar="KEY=VALUE", help="The same of B.")
@click.option("--env-a", multiple=True, metavar="NAME=VALUE", help="An environment variable of A alone.")
@click.option("--env-b", multiple=True, metavar="NAME=VALUE", help="The same of B.")
@click.option("--backend", "-b", help="A name from `aaco models`, or auto, for both.  [default: cpu]",
              shell_complete=options.of_kind("backend"))
@click.option("--batch", type=options.COUNT, help="Samples per inference.")
@options.shape
@options.custom_ops
@click.option("--processes", "-p", type=click.IntRange(2, 10_000),
              help="Fresh processes that hold both sides; of commands, blocks of runs.  [default: 5; commands 8]")
@click.option("--most-processes", "most", type=click.IntRange(2, 10_000),
              help="Go on to as many while the answer is not there; looks are paid for.  [default: do not]")
@click.option("--pairs", "-n", type=options.COUNT, help="Pairs per process.  [default: 100; commands 5]")
@click.option("--warmup", type=options.WHOLE, help="Turns of each side before.  [default: 10; commands 1]")
@click.option("--controls/--no-controls", default=True, show_default=True,
              help="Measure either side against itself in as many processes.")
@click.option("--vary-inputs", "vary", is_flag=True, help="Move the elements of every input by one place between "
              "pairs: what a side remembers of the last inference is of no use.")
@click.option("--device-time/--no-device-time", "device_time", default=True, show_default=True,
              help="Record what a device does in each turn. Without, no tracer makes launches of kernels slower.")
@click.option("--tolerance", "tolerance_pct", type=options.Percentage(), metavar="5%",
              help="Tolerated slowdown, the margin of equivalence: at least 0.5 %.  [default: analysis.tolerance_pct]")
@click.option("--level", type=options.POSITIVE, help="Confidence, e.g. 0.95.  [default: by analysis.false_alarm_pct]")
@click.option("--precision", "precision_pct", type=options.POSITIVE, metavar="PCT",
              help="Stop once the change is known to within as much.")
@click.option("--budget", "budget_s", type=options.SECONDS, help="Begin no process after this many seconds.")
@click.option("--seed", type=options.SEED, help="Of the order of everything.  [default: drawn, and printed]")
@click.option("--timeout", "timeout_s", type=options.SECONDS, help="Seconds a run of a command may take.")
@click.option("--ignore-failure", is_flag=True, help="Count the time of a command's run that fails.")
@click.option("--strict", is_flag=True, help="Exit with 4 when the answer is inconclusive.")
@click.option("--session", "of_session", metavar="SESSION", help="Judge a stored comparison again from its pairs.",
              shell_complete=options.of_kind("session"))
@options.lab
@options.lab_cpus
@baselines_dir
@options.with_settings
@options.as_json
def compare(models: tuple[str, ...], commands: tuple[str, ...], of_session: str | None, strict: bool,
            settings: options.Settings, as_json: bool, **arguments: Any) -> None:
    """Is B slower than A? Measures both in turns; exits with 3 on a confirmed regression.

    A and B are models (names or .onnx files); B may be left out where options or environments differ. Each fresh
    process holds both sides and alternates them, so that what the machine does meets both alike; order is random and
    recorded, and the session keeps every time. On CUDA and TensorRT the device's own time is judged, too.
    """
    if of_session is not None:
        from aaco.core.session import find
        from aaco.workflows.duet import kept

        answer(kept.again(find(of_session, settings.config.storage.sessions_dir)), strict, as_json)
        return
    baseline, current = _sides(models, commands, arguments)
    from aaco.workflows.duet import compare as duet

    analysis = settings.config.analysis
    by_settings = {"tolerance_pct": analysis.tolerance_pct, "level": 1 - analysis.false_alarm_pct / 100}
    request = _request(arguments, by_settings | (COMMAND_DEFAULTS if commands else MODEL_DEFAULTS))
    for_both = {name: arguments[name] for name in (OF_COMMANDS if commands else OF_MODELS)
                if arguments[name] is not None}
    if not commands:
        for_both |= {"shapes": options.shapes(arguments["shapes"]), "custom_ops": arguments["custom_ops"]}
    with talk() as show:
        comparison = duet.compare(baseline, current, request, settings, for_both, show)
    say.aside(f"session {comparison.session.id}")
    answer(comparison.verdict, strict, as_json)


def answer(verdict: RegressionVerdict, strict: bool, as_json: bool) -> None:
    """Print a verdict and exit as it says."""
    from aaco.governance.verdict import exit_code
    from aaco.report.sections import verdict as report

    say.answer(as_json, verdict.model_dump(mode="json"), report.render)
    sys.exit(exit_code(verdict, strict))


def _sides(models: tuple[str, ...], commands: tuple[str, ...], arguments: dict[str, Any]) -> tuple[DuetSide, DuetSide]:
    """The two sides as they were named. Raises UsageError unless there are two, in one way or another."""
    from aaco.workflows.duet.compare import DuetSide

    if bool(models) == bool(commands) or max(len(models), len(commands)) > 2:
        raise UsageError("name two models, or two commands", "aaco compare A.onnx B.onnx; "
                         "aaco compare --command 'cmd a' --command 'cmd b'; aaco compare --session SESSION")
    named = [*(DuetSide(model=model) for model in models),
             *(DuetSide(command=options.words("--command", text)) for text in commands)]
    both = [DuetSide(side.model, side.command, _pairs(f"--option-{letter}", arguments[f"option_{letter}"]),
                     _pairs(f"--env-{letter}", arguments[f"env_{letter}"]))
            for letter, side in zip("ab", (named * 2)[:2] if len(named) == 1 else named, strict=True)]
    return both[0], both[1]


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} {text}: not KEY=VALUE", f"{option} intra_op_threads=1")
        pairs[name] = value
    return pairs


def _request(arguments: dict[str, Any], defaults: dict[str, Any]) -> Any:
    from aaco.workflows.duet.compare import DuetRequest

    names = ("processes", "most", "pairs", "warmup", "controls", "tolerance_pct", "level", "precision_pct", "budget_s",
             "seed", "vary", "device_time")
    settings_given = {name: arguments[name] for name in names if arguments[name] is not None}
    return DuetRequest(**defaults | settings_given)
