"""`aaco llm`: an endpoint of a language model under a load."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from aaco.cli import llm_loads, manual, options, say
from aaco.cli.talk import talk
from aaco.core.errors import AacoError, UsageError

if TYPE_CHECKING:
    from aaco.core.config import Settings
    from aaco.core.show import Show
    from aaco.governance.sla import Policy
    from aaco.pipeline import Run
    from aaco.workflows.decode_run import DecodeRequest
    from aaco.workflows.llm_run import LoadRequest

PRESETS = ("llm-server", "llm-interactive")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OF_DECODERS = ("genai", "backend", "batch")  # options by the kind of target that they are for
OF_SERVERS = ("model", "api", "concurrency", "trace", "prompts", "shared_prefix_pct", "count_chunks", "body",
              "answers_as", "gap_timeout_s", "timeout_s", "real_time", "packet_stamps", "key_env", "key_file",
              "certificates", "turns", "conversations", "server_traces", "tokenizer")
PLAIN = "one endpoint without --against"
OF_ONE_REPORT = ("preset", "policy_file", "full")
OF_SERVERS_ALONE = ("a load that rises", "several --prompt-tokens", "--against")
# Options that would have no effect, by what the command does.
IGNORED = {"a load that rises": (*OF_ONE_REPORT, "strict", "against", "tolerance_pct", "batches",
                               "server_traces"),
           "--batches": (*OF_ONE_REPORT, "strict", "against", "tolerance_pct"),
           "several --prompt-tokens": (*OF_ONE_REPORT, "strict", "against", "tolerance_pct", "server_traces",
                                       "rate_per_s", "poisson_per_s", "trace", "prompts", "turns", "conversations"),
           "--against": (*OF_ONE_REPORT, "turns", "conversations", "server_traces", "tokenizer", "telemetry"),
           PLAIN: ("tolerance_pct",), "prompts of a file": ("shared_prefix_pct", "prompt_tokens"),
           "conversations of a file": ("shared_prefix_pct", "prompt_tokens"),
           "a URL that names its interface": ("api",), "a server without https": ("certificates",)}
LIMITED = {"ttft": "ttft_p99_ms", "tpot": "tpot_p99_ms", "latency": "request_latency_p99_ms"}


@manual.command()
@click.argument("target", required=False, metavar="URL|MODEL")
@click.option("--model", metavar="NAME", help="Model to ask the server for.")
@click.option("--genai", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="A model of onnxruntime-genai, in place of URL or MODEL; `aaco models --genai` writes one.")
@options.backend
@click.option("--batch", type=options.COUNT, help="Requests that MODEL answers at once.  [default: 1]")
@click.option("--api", type=click.Choice(["chat", "completions"]), default="chat", show_default=True,
              help="Interface, where the URL does not name it.")
@click.option("--batches", metavar="N,N", help="A session for each of these batches, and for each of several "
              "--prompt-tokens (64,512), and a table of them.")
@click.option("--requests", "-n", type=options.COUNT, help="Requests.  [default: 100, or those of the trace; of a "
              "load that rises at least 10 s of a rate]")
@click.option("--concurrency", "-c", type=llm_loads.OPEN, metavar="N|N,N|A:B", help="Requests open at once.  [default: "
              "1; no limit with --rate, --poisson and --trace]")
@click.option("--rate", "rate_per_s", type=llm_loads.RATE, metavar="R|R,R|A:B", help="Send R requests a second, "
              "whatever became of earlier ones.")
@click.option("--poisson", "poisson_per_s", type=llm_loads.RATE, metavar="R|R,R|A:B", help="The same at random times.")
@click.option("--trace", type=FILE, help='Send when a file says: JSON lines with "timestamp" in ms.')
@click.option("--prompts", type=FILE, help='Prompts: JSON lines with "prompt" or "messages", ShareGPT, or plain lines.')
@click.option("--turns", metavar="N|A:B", help="Hold conversations of so many turns, each with the answers before it; "
              "-n, --rate and -c are of conversations.")
@click.option("--conversations", type=FILE, help='Conversations: JSON lines with "turns" or "messages", or ShareGPT.')
@click.option("--prompt-tokens", default="128", show_default=True, metavar="N|A:B|SHAPE", help="Words of a made "
              "prompt: a number, an even range, normal:MEAN:SD or lognormal:MEDIAN:SIGMA; several (64,512) make a "
              "table over the context, and over --concurrency of a server.")
@click.option("--max-tokens", default="64", show_default=True, metavar="N|A:B|SHAPE", help="Most tokens of an "
              "answer, likewise.")
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
@click.option("--real-time", is_flag=True, help="Run the client before all other programs (CAP_SYS_NICE).")
@click.option("--packet-stamps", is_flag=True, help="Stamp each packet, also of those that are read together "
              "(CAP_NET_RAW).")
@click.option("--server-traces", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="Start and stop the profiler of vLLM or SGLang around the load, and explain slow tokens by the "
              "trace that it writes into DIR on this machine.")
@click.option("--telemetry", is_flag=True, help="Record this machine's devices and the energy of its processor "
              "meanwhile: power, joules per output token.")
@click.option("--tokenizer", type=click.Path(exists=True, path_type=Path), metavar="FILE|DIR", help="Count the text of "
              "the answers, too, by this tokenizer.json, and say how far the server's count is from it.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of made prompts and random times.")
@click.option("--api-key-env", "key_env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option("--api-key-file", "key_file", type=FILE, help="File that holds the API key.")
@click.option("--certificates", type=FILE, help="Authorities to trust for https, in place of the system's.")
@click.option("--tag", default="", help="A label to find the session by.")
@options.with_settings
@options.as_json
@options.full
def llm(target: str | None, slo: tuple[str, ...], preset: str | None, policy_file: Path | None, strict: bool,
        batches: str | None, against: str | None, tolerance_pct: float | None, tag: str, settings: Settings,
        as_json: bool, full: bool, **load_fields: Any) -> None:
    """Ask an OpenAI-compatible server at URL, or a decoder in a process of its own, and say how fast its tokens come.

    MODEL is a name from `aaco models`, or an .onnx file, of a decoder with a key-value cache.

    Times are those at which the kernel received the data. Each request is timed from when it was due and from when it
    was sent. What failed is counted by class and is in no latency. A quantile that so few requests cannot support is
    left out: p99 needs 662.

    A load that rises, as a list (--rate 10,20,40) or a range that doubles (--rate 1:64, --concurrency 1:64), makes a
    session for each step until the server does not keep up, and a table of them with the knee.

    Objectives of --preset or --policy decide the exit status, as in `aaco sla check`. Needs the extra aaco[llm]. Keys
    are taken from a variable or a file, and never kept.
    """
    from aaco.cli.report import print_report

    policy = _policy(preset, policy_file)
    load_fields["terms"] = terms = dict(map(_term, slo))
    if len(terms) < len(slo):
        raise UsageError("--slo: two levels of one name", "--slo ttft=500ms --slo tpot=50ms")
    has_contexts = bool(load_fields["model"] and not batches and "," in load_fields["prompt_tokens"])
    rising = None if has_contexts else llm_loads.take_rising(load_fields)
    mode = "several --prompt-tokens" if has_contexts else "a load that rises" if rising else \
        "--batches" if batches else "--against" if against else PLAIN
    _refuse(IGNORED[mode], mode)
    if mode in OF_SERVERS_ALONE and not load_fields["model"]:
        raise UsageError(f"{mode} is for a server and its model", "aaco llm URL --model NAME")
    if strict and mode == PLAIN and not policy:
        raise UsageError("--strict is of objectives or a verdict", "--preset, --policy or --against")
    if batches or has_contexts:
        _sweep(target, batches, load_fields, settings, tag, as_json)
        return
    if rising:
        llm_loads.ask(_of_server(target, load_fields), rising, settings, tag, as_json)
        return
    if against:
        _compare(_of_server(target, load_fields, against), against, settings, tolerance_pct, tag, strict, as_json)
        return
    with talk() as show:
        run = _ask(target, load_fields, settings, tag, show)
    print_report(run.explanation, as_json, full)
    if policy:
        from aaco.governance import sla
        from aaco.report.ci import sla as report

        checked = sla.check(policy, run.metrics, run.session.id)
        for line in report.render(checked).splitlines():
            say.aside(line)
        if code := sla.exit_code(checked, strict):
            sys.exit(code)
    if not run.explanation.examined["endpoint"]["ok"]:
        raise AacoError("no request was answered", f"aaco report {run.session.id}  # why")


def _ask(target: str | None, load_fields: dict[str, Any], settings: Settings, tag: str, show: Show) -> Run:
    """Ask a server, or a decoder in a process of its own. Raise UsageError for options of the other, AacoError."""
    from aaco.workflows import decode_run

    if load_fields["genai"] or (target and decode_run.is_model(target, settings)):
        return decode_run.ask_decoder(_of_decoder(target, load_fields), settings, tag, show)
    from aaco.workflows import llm_run

    return llm_run.ask_endpoint(_of_server(target, load_fields), settings, tag, show)


def _of_server(target: str | None, load_fields: dict[str, Any], against: str | None = None) -> LoadRequest:
    """Return what to ask of a server. Raise UsageError for an option of decoders, or one without an effect."""
    from aaco.workflows.llm_run import LoadRequest

    fields = _without(load_fields, OF_DECODERS, "a server")
    if not target or not fields["model"]:
        raise UsageError("name a server and its model, or a decoder",
                         "aaco llm URL --model NAME, aaco llm MODEL, or aaco llm --genai DIR")
    for mode in _modes_of_server([target, against] if against else [target], fields):
        _refuse(IGNORED[mode], mode)
    certificates = str(fields["certificates"]) if fields["certificates"] else None
    return LoadRequest(target, **fields | {"body": _body(fields["body"]), "certificates": certificates})


def _modes_of_server(urls: Sequence[str], fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield what leaves options without an effect. Raise UsageError for a URL that is none."""
    from aaco.llm import target

    if fields["prompts"] or fields["trace"]:
        yield "prompts of a file"
    if fields["conversations"]:
        yield "conversations of a file"
    if all(target.named_interface(url) for url in urls):
        yield "a URL that names its interface"
    if all(target.parse(url).scheme == "http" for url in urls):
        yield "a server without https"


def _of_decoder(target: str | None, load_fields: dict[str, Any]) -> DecodeRequest:
    """Return what to ask of a decoder. Raise UsageError for an option of servers."""
    from aaco.workflows.decode_run import DecodeRequest

    fields = _without(load_fields, OF_SERVERS, "a decoder in a process of its own")
    return DecodeRequest(target or "", **fields | {"batch": fields["batch"] or 1})


def _sweep(target: str | None, batches: str | None, load_fields: dict[str, Any], settings: Settings, tag: str,
           as_json: bool) -> None:
    """Measure a decoder at these batches, or a server with so many requests open, and print a table.

    Raise UsageError for batches of a server, AacoError.
    """
    from aaco.cli import llm_sweep
    from aaco.workflows import decode_run, decode_sweep

    prompts = load_fields.pop("prompt_tokens").split(",")
    request: DecodeRequest | LoadRequest
    if batches is None:
        at_once = llm_loads.take_open(load_fields)
        request = _of_server(target, load_fields)
    elif load_fields["batch"] or not (load_fields["genai"] or (target and decode_run.is_model(target, settings))):
        raise UsageError("--batches: of a decoder in a process of its own, and in place of --batch",
                         "aaco llm MODEL --batches 1,2,4")
    else:
        at_once, request = options.whole_numbers("--batches", batches), _of_decoder(target, load_fields)
    with talk() as show:
        swept = decode_sweep.sweep(request, at_once, prompts, settings, tag, show)
    say.answer(as_json, swept.document(), lambda _: llm_sweep.lines(swept))


def _without(load_fields: dict[str, Any], names: Collection[str], of: str) -> dict[str, Any]:
    """Return the options without those of the other kind of target. Raise UsageError where the user named one."""
    _refuse(names, of)
    return {name: setting for name, setting in load_fields.items() if name not in names}


def _refuse(names: Collection[str], of: str) -> None:
    """Raise UsageError where the user named one of these options, which would have no effect."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)
            raise UsageError(f"{option} is not for {of}", "aaco llm --help")


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
        fields = json.loads(text, parse_constant=_no_number) if text else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--body: not valid JSON: {error}", """--body '{"ignore_eos": true}'""") from error
    if not isinstance(fields, dict):
        raise UsageError("--body: no JSON object", """--body '{"ignore_eos": true}'""")
    if fields.get("n", 1) != 1 or isinstance(fields.get("prompt"), list):
        raise UsageError("--body: several answers to a request have no time per token", "one each, and more of -n")
    return fields


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


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
