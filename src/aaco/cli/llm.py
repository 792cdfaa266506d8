"""`aaco llm`: an endpoint of a language model under a load."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.cli.talk import talk
from aaco.core.errors import UsageError

if TYPE_CHECKING:
    from aaco.core.config import Settings
    from aaco.governance.sla import Policy
    from aaco.workflows.llm_run import LoadRequest

PRESETS = ("llm-server", "llm-interactive")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
LIMITED = {"ttft": "ttft_p99_ms", "tpot": "tpot_p99_ms", "latency": "request_latency_p99_ms"}


@manual.command()
@click.argument("url")
@click.option("--model", required=True, metavar="NAME", help="Model to ask for.")
@click.option("--api", type=click.Choice(["chat", "completions"]), default="chat", show_default=True,
              help="Interface, where the URL does not name it.")
@click.option("--requests", "-n", type=options.COUNT, help="Requests.  [default: 100, or those of the trace]")
@click.option("--concurrency", "-c", type=options.COUNT, help="Requests open at once.  [default: 1; no limit with "
              "--rate, --poisson and --trace]")
@click.option("--rate", "rate_per_s", type=options.POSITIVE, metavar="R", help="Send R requests a second, whatever "
              "became of earlier ones.")
@click.option("--poisson", "poisson_per_s", type=options.POSITIVE, metavar="R", help="The same at random times.")
@click.option("--trace", type=FILE, help='Send when a file says: JSON lines with "timestamp" in ms.')
@click.option("--prompts", type=FILE, help='Prompts: JSON lines with "prompt" or "messages", ShareGPT, or plain lines.')
@click.option("--prompt-tokens", default="128", show_default=True, metavar="N|A:B", help="Words of a made prompt.")
@click.option("--max-tokens", default="64", show_default=True, metavar="N|A:B", help="Most tokens of an answer.")
@click.option("--shared-prefix", "shared_prefix_pct", type=click.FloatRange(0, 100), default=0.0, metavar="PCT",
              help="Share of each made prompt that is the same in all.")
@click.option("--count-chunks", is_flag=True, help="Ask vLLM and llama.cpp for the tokens of each chunk, which ITL "
              "needs.")
@click.option("--body", metavar="JSON", help='Further fields of each request: {"ignore_eos": true}.')
@click.option("--answers-as", multiple=True, metavar="NAME", help="Another name of the model that answers may give.")
@click.option("--slo", multiple=True, metavar="NAME=TIME", help="A level that goodput counts: ttft=500ms, tpot=50ms, "
              "latency=10s.")
@click.option("--preset", type=click.Choice(PRESETS), help="Hold the session against these objectives.")
@click.option("--policy", "policy_file", type=FILE, help="Hold the session against a YAML policy.")
@click.option("--strict", is_flag=True, help="Exit with 4 where an objective is nearly missed or could not be judged.")
@click.option("--against", metavar="URL", help="Ask another endpoint in turns, with the same prompts, and judge "
              "whether the first is slower; exits with 3 if it is.")
@click.option("--tolerance", "tolerance_pct", type=options.Percentage(), metavar="5%", help="Slowdown that --against "
              "tolerates.  [default: analysis.tolerance_pct]")
@click.option("--gap-timeout", "gap_timeout_s", type=options.SECONDS, default=60.0, show_default=True,
              help="Seconds an answer may pause.")
@click.option("--timeout", "timeout_s", type=options.SECONDS, default=600.0, show_default=True,
              help="Seconds an answer may take.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of made prompts and random times.")
@click.option("--api-key-env", "key_env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option("--api-key-file", "key_file", type=FILE, help="File that holds the API key.")
@click.option("--certificates", type=FILE, help="Authorities to trust for https, in place of the system's.")
@click.option("--tag", default="", help="A label to find the session by.")
@options.config_file
@options.sessions_dir
@options.as_json
@options.full
def llm(body: str | None, slo: tuple[str, ...], preset: str | None, policy_file: Path | None, strict: bool,
        against: str | None, tolerance_pct: float | None, certificates: Path | None, tag: str, config_file: Path | None,
        sessions_dir: Path | None, as_json: bool, full: bool, **load_fields: Any) -> None:
    """Ask an OpenAI-compatible server at URL, and say how fast its tokens come.

    Times are those at which the kernel received the data. Each request is timed from when it was due and from when it
    was sent. What failed is counted by class and is in no latency. A quantile that so few requests cannot support is
    left out: p99 needs 662.

    Objectives of --preset or --policy decide the exit status, as in `aaco sla check`. Needs the extra aaco[llm]. Keys
    are taken from a variable or a file, and never kept.
    """
    from aaco.cli.report import print_report
    from aaco.workflows import llm_run

    policy = _policy(preset, policy_file)
    request = llm_run.LoadRequest(body=_body(body), terms=dict(map(_term, slo)),
                                  certificates=str(certificates) if certificates else None, **load_fields)
    settings = options.settings(config_file, sessions_dir)
    if against:
        if policy:
            raise UsageError("--against and objectives: two verdicts", "leave out --preset and --policy")
        _compare(request, against, settings, tolerance_pct, tag, strict, as_json)
        return
    with talk() as show:
        run = llm_run.ask_endpoint(request, settings, tag, show)
    print_report(run.explanation, as_json, full)
    if policy:
        from aaco.governance import sla
        from aaco.report.ci import sla as report

        checked = sla.check(policy, run.metrics, run.session.id)
        for line in report.render(checked).splitlines():
            say.aside(line)
        sys.exit(sla.exit_code(checked, strict))


def _compare(request: LoadRequest, against: str, settings: Settings, tolerance_pct: float | None, tag: str,
             strict: bool, as_json: bool) -> None:
    """Ask two endpoints in turns, print the verdict and exit as it says."""
    from aaco.cli.compare import answer
    from aaco.workflows import llm_run

    tolerance = settings.config.analysis.tolerance_pct if tolerance_pct is None else tolerance_pct
    with talk() as show:
        compared = llm_run.compare_endpoints(request, against, settings, tolerance, tag, show)
    for side in (compared.baseline, compared.current):
        say.aside(f"session {side.session.id}")
    answer(compared.verdict, strict, as_json)


def _policy(preset: str | None, policy_file: Path | None) -> Policy | None:
    """Return the objectives to hold the session against. Raise UsageError."""
    from aaco.core import documents
    from aaco.governance import sla

    if preset and policy_file:
        raise UsageError("--preset and --policy: two policies", "give one of them")
    return sla.PRESETS[preset] if preset else documents.load_yaml(policy_file, sla.Policy, "policy") if policy_file \
        else None


def _body(text: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--body: not valid JSON: {error}", """--body '{"ignore_eos": true}'""") from error
    if not isinstance(fields, dict):
        raise UsageError("--body: no JSON object", """--body '{"ignore_eos": true}'""")
    return fields


def _term(text: str) -> tuple[str, float]:
    """Return name and limit in ms of "ttft=500ms". Raise UsageError."""
    from aaco.analytics import metrics
    from aaco.core import registry
    from aaco.governance import sla

    name, _, limit = text.partition("=")
    if name not in LIMITED:
        raise UsageError(f"--slo {text}: not NAME=TIME with one of {', '.join(LIMITED)}", "--slo ttft=500ms")
    registry.load(metrics, "aaco.metrics")
    return name, sla.limit_of(limit, registry.METRICS[LIMITED[name]])
