"""`aaco fleet`: the facts of many bundles in one lake, and what they say together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from aaco.cli import manual, options, say
from aaco.cli.talk import talk
from aaco.core.errors import Exit, UsageError
from aaco.core.records import as_dict
from aaco.core.words import plural

if TYPE_CHECKING:
    from aaco.fleet.scan import Engine, FleetFilter

Command = Callable[..., Any]
MOST_IN_ALERT = 20  # sessions of each kind that the text of an alert names; the document has all
SMALL_FILES = 64  # from so many files in landing on, questions are slower than they need be

lake_option = click.option("--lake", type=click.Path(path_type=Path, file_okay=False),
                           help="The lake: a folder, or s3://BUCKET/PREFIX.  [default: storage.fleet_dir]")
metric_option = click.option("--metric", default="latency_ms", show_default=True, help="Which metric is judged.")


class Asked(Struct, frozen=True):
    """The options of all questions: which lake, which sessions, how many false discoveries, where it runs, JSON."""

    lake: Path
    choice: FleetFilter
    fdr: float
    engine: Engine
    as_json: bool


def question(function: Command) -> Command:
    """Give a verb that tests for changes the options of all questions, as its first argument."""
    return click.option("--fdr", type=options.Real(0, 0.5, min_open=True), default=0.05, show_default=True,
                        help="Share of false discoveries among what is listed.")(counting(function))


def counting(function: Command) -> Command:
    """Give a verb that tests nothing the options of all questions, as its first argument."""
    @wraps(function)
    def asked(*, lake: Path | None, config_file: Path | None, model: str | None, device: str | None,
              labels: tuple[str, ...], engine: str, address: str | None, as_json: bool, fdr: float = 0.0,
              **own: Any) -> None:
        from aaco.fleet.scan import FleetFilter

        choice = FleetFilter.of(model, device, labels)
        function(Asked(_lake(lake, config_file), choice, fdr, _engine(engine, address), as_json), **own)

    command: Command = asked
    for option in (options.as_json, options.config_file, lake_option,
                   click.option("--address", help="With --engine ray: HOST:PORT or ray://HOST:PORT of a cluster, or "
                                "local, which starts one on this machine."),
                   click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
                                help="Where files are read: in this process, or by tasks of Ray."),
                   click.option("--label", "labels", multiple=True, metavar="NAME=VALUE",
                                help="Only sessions with this label of their scheduler, such as job=4711; several: "
                                "with all of them."),
                   click.option("--device", help="Only sessions on this device."),
                   click.option("--model", help="Only sessions of this model.")):
        command = option(command)
    return command


@manual.group()
def fleet() -> None:
    """The facts of many bundles in one lake: what is off, where it heads, and on which nodes."""


@fleet.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...", type=click.Path(path_type=Path))
@click.option("--workers", type=options.COUNT, help="Processes that read bundles.  [default: one per CPU]")
@lake_option
@options.config_file
@options.as_json
def ingest(paths: tuple[Path, ...], workers: int | None, lake: Path | None, config_file: Path | None,
           as_json: bool) -> None:
    """Take bundles into the lake, each once: bundle files, session folders, folders of them, s3://BUCKET/PREFIX, or
    https://HOST/NAME.tar.zst.

    Every hash is checked. What is damaged, incomplete, not to be had, or has the id of another session is refused by
    itself; then the command exits with 2.
    """
    from aaco.fleet.remote import ingest_all

    with talk() as show:
        done = ingest_all(_lake(lake, config_file), paths, workers or os.cpu_count() or 1, show)
    _warn_of(done.refused)
    say.answer(as_json,
               {"schema_version": 1, "added": done.added, "present": done.present, "refused": done.refused},
               lambda _: [f"{len(done.added)} added, {done.present} already there, {len(done.refused)} refused"])
    sys.exit(Exit.USAGE if done.refused else Exit.FINE)


@fleet.command()
@lake_option
@options.config_file
@options.as_json
def compact(lake: Path | None, config_file: Path | None, as_json: bool) -> None:
    """Put small files together, one or a few for each month, model and device, and drop what was retired."""
    from aaco.fleet import compaction

    done = compaction.compact(_lake(lake, config_file))
    say.answer(as_json, {"schema_version": 1, **as_dict(done)}, lambda _: [
        f"{plural(done.sessions, 'session')} compacted, {done.dropped} dropped; {done.files} files, {done.written} of "
        f"them new, {done.removed} old ones removed"])


@fleet.command()
@click.argument("sessions", nargs=-1)
@click.option("--before", type=click.DateTime(["%Y-%m-%d"]), help="Also every session created before this day, UTC.")
@click.option("--author", required=True, help="Who decides it.")
@click.option("--reason", required=True, help="Why.")
@lake_option
@options.config_file
@options.as_json
def retire(sessions: tuple[str, ...], before: datetime | None, author: str, reason: str, lake: Path | None,
           config_file: Path | None, as_json: bool) -> None:
    """Leave SESSIONS out from now on; the next `aaco fleet compact` drops their facts. Bundles are not touched."""
    from aaco.fleet.catalog import Catalog

    if not sessions and before is None:
        raise UsageError("no session is named", "aaco fleet retire SESSION..., or --before YYYY-MM-DD")
    with Catalog.open(_lake(lake, config_file), write=True) as catalog:
        limit_ns = int(before.replace(tzinfo=UTC).timestamp() * 1e9) if before else None
        old = [row["session_id"] for row in catalog.sessions() if limit_ns is not None and row["time_ns"] < limit_ns]
        count = catalog.retire([*sessions, *old], author, reason)
    say.answer(as_json, {"schema_version": 1, "retired": count}, lambda _: [f"{count} retired"])


@fleet.command()
@lake_option
@options.config_file
@options.as_json
def status(lake: Path | None, config_file: Path | None, as_json: bool) -> None:
    """What the lake holds: sessions, files, models, devices, nodes, and nodes with a clock ahead."""
    from aaco.fleet import answers

    say.answer(as_json, answers.status(_lake(lake, config_file)), _status_lines)


def _status_lines(document: dict[str, Any]) -> Iterator[str]:
    yield (f"{_sessions(document)} of {plural(len(document['models']), 'model')} on "
           f"{plural(len(document['devices']), 'device')} and {plural(document['nodes'], 'node')}; "
           f"{document['retired']} retired")
    yield f"{document['files']} compacted files, {plural(document['landing'], 'session')} not compacted"
    for row in document["clocks_ahead"]:
        say.aside(f"warning: the clock of node {row['node'] or '(not recorded)'} is ahead: {_sessions(row)} "
                  "newer than the ingest; the place in trends is wrong", "warning")
    if document["landing"] > SMALL_FILES:
        say.aside("aaco fleet compact  # makes questions faster")


@fleet.command()
@metric_option
@click.option("--webhook-env", "variable", metavar="NAME",
              help="Alert the address in this environment variable if any session is worse or better.")
@question
def regressions(asked: Asked, metric: str, variable: str | None) -> None:
    """Sessions with a level off that of comparable ones, for the worse and for the better.

    Comparable: the same model, device, backend, machine, configuration and batch. Exits with 3 if any is worse. A
    failed alert gives a warning and changes nothing.
    """
    from aaco.fleet import answers

    address = _address(variable)
    document = answers.regressions(asked.lake, metric, asked.choice, asked.fdr, asked.engine)
    say.answer(asked.as_json, document, _regressions_lines)
    if address and (document["worse"] or document["better"]):
        _alert(address, document)
    sys.exit(Exit.REGRESSION if document["worse"] else Exit.FINE)


def _address(variable: str | None) -> str | None:
    """Return where alerts go. Raise UsageError before anything is judged where it cannot be an address."""
    from aaco.core.addresses import require_address
    from aaco.workflows.alert_webhook import ADDRESS

    if variable is None:
        return None
    address = os.environ.get(variable)
    if not address:
        raise UsageError(f"no alert can be sent: {variable} is not set", "set it to the address of the webhook")
    require_address(address, ADDRESS)
    return address


def _alert(address: str, document: dict[str, Any]) -> None:
    rows = [_shifted(kind, row) for kind in ("worse", "better") for row in document[kind][:MOST_IN_ALERT]]
    _send(address, [f"aaco fleet: {_counted(document)}", *rows], "fleet", document)


def _send(address: str, lines: list[str], name: str, document: dict[str, Any]) -> None:
    from aaco.workflows import alert_webhook as webhook

    delivery = webhook.send(address, {"text": "\n".join(lines), name: document})
    say.aside(delivery.said, "info" if delivery.arrived else "warning")


def _counted(document: dict[str, Any]) -> str:
    return (f"{len(document['worse'])} worse, {len(document['better'])} better of {document['judged']} judged "
            f"sessions (false discovery rate {document['fdr']:g})")


def _regressions_lines(document: dict[str, Any]) -> Iterator[str]:
    for kind in ("worse", "better"):
        for row in document[kind]:
            yield _shifted(kind, row)
    yield _counted(document)
    yield from _absent_lines(document["not_judged"])


@fleet.command()
@click.option("--most", type=options.COUNT, default=20, show_default=True, help="Rows of each list.")
@question
def top(asked: Asked, most: int) -> None:
    """What to look at first: slow nodes, processes and devices that lag in their session, the longest kernels."""
    from aaco.fleet import answers

    say.answer(asked.as_json, answers.top(asked.lake, asked.choice, asked.fdr, most, asked.engine), _top_lines)


@fleet.command()
@metric_option
@question
def trend(asked: Asked, metric: str) -> None:
    """Where each group of comparable sessions is heading, degrading first, and where its level changed."""
    from aaco.fleet import answers

    document = answers.trend(asked.lake, metric, asked.choice, asked.fdr, asked.engine)
    say.answer(asked.as_json, document, _trend_lines)


def _trend_lines(document: dict[str, Any]) -> Iterator[str]:
    order = {"degrading": 0, "improving": 1, "none": 2, None: 3}
    for row in sorted(document["groups"], key=lambda row: order[row["trend"]]):
        moved = row["why_absent"] if row["trend"] is None else (
            f"{row['trend'].replace('none', 'no trend')}, {row['moved_pct']:+.1f} % over {_sessions(row)} "
            f"(q = {row['q_value']:.1g})")
        yield f"{_group(row)}: {moved}"
        for change in row["changes"]:
            yield (f"  changed at {change['session_id']}: {change['change_pct']:+.1f} %, {change['before']:.4g} to "
                   f"{change['after']:.4g} {row['unit']}, {change['verdict']} (q = {change['q_value']:.1g})"
                   + _commits(change))


def _commits(change: dict[str, Any]) -> str:
    before, after = change["commit_before"], change["commit"]
    if before is None or after is None or before == after:
        return ""
    return f"; commit {before[:10]} before it, {after[:10]} from it on"


@fleet.command()
@metric_option
@question
def heatmap(asked: Asked, metric: str) -> None:
    """Share of sessions that are worse than comparable ones, for each model and device.

    Below 5 % excellent, below 15 % good, below 30 % degraded, else critical.
    """
    from aaco.fleet import answers

    document = answers.heatmap(asked.lake, metric, asked.choice, asked.fdr, asked.engine)
    say.answer(asked.as_json, document, _heatmap_lines)


def _heatmap_lines(document: dict[str, Any]) -> Iterator[str]:
    for cell in document["cells"]:
        pooled = f", {cell['fingerprints']} fingerprints, each against its own" if cell["fingerprints"] > 1 else ""
        yield (say.row([(cell["model"] or "n/a", 24), (cell["device"] or "n/a", 24), (cell["band"], 11)])
               + f"{cell['worse']} of {cell['judged']} worse ({100 * cell['share']:.1f} %){pooled}"
               + _per_ceiling(cell))
    yield from _absent_lines(document["absent"])


def _per_ceiling(cell: dict[str, Any]) -> str:
    if cell["per_tflops"] is None:
        return ""
    return f"; {cell['per_tflops']:.3g} samples/s for each TFLOP/s of the measured peak, across fingerprints"


@fleet.command()
@counting
def scaling(asked: Asked) -> None:
    """Scaling efficiency: throughput per device over that on the fewest devices that comparable sessions used.

    Comparable: the same model, device, backend, machine, configuration and batch.
    """
    from aaco.fleet import answers

    say.answer(asked.as_json, answers.scaling(asked.lake, asked.choice, asked.engine), _scaling_lines)


def _scaling_lines(document: dict[str, Any]) -> Iterator[str]:
    for row in document["groups"]:
        rate = f"{row['throughput']:.4g} {row['unit']} on {plural(row['devices_used'], 'device')} ({_sessions(row)})"
        yield (f"{_group(row)}: {rate}" + ("" if row["efficiency"] is None else (
            f", efficiency {100 * row['efficiency']:.1f} % of {plural(row['base_devices'], 'device')}")))
    for row in document["absent"]:
        yield f"{_group(row)}: no efficiency of {_sessions(row)}: {row['why_absent']}"


@fleet.command()
@counting
def health(asked: Asked) -> None:
    """Devices that were too hot, or had their clock lowered for heat or by the hardware, in a session, by node.

    Of each its worst state, with the evidence, from the telemetry of its sessions (`aaco run --telemetry`).
    """
    from aaco.fleet import answers

    say.answer(asked.as_json, answers.health(asked.lake, asked.choice, asked.engine), _health_lines)


def _health_lines(document: dict[str, Any]) -> Iterator[str]:
    for row in document["unhealthy"]:
        yield (f"{row['state']}: device {row['device_id']} ({row['device'] or 'n/a'}) of node "
               f"{row['node'] or 'not recorded'} in {row['session_id']}, not healthy in {row['unhealthy']} of "
               f"{_sessions(row)}: {row['evidence']}")
    yield (f"{plural(document['devices'], 'device')} watched, {len(document['unhealthy'])} of them not always "
           "healthy")
    yield from _unknown_lines(document["absent"])


def _unknown_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield f"not known of {_sessions(row)}: {row['why_absent']}"


@fleet.command()
@click.option("--most", type=options.COUNT, default=20, show_default=True, help="Rows of the list.")
@counting
def labels(asked: Asked, most: int) -> None:
    """In how many sessions each label of a scheduler is: what --label can choose."""
    from aaco.fleet import answers

    say.answer(asked.as_json, answers.labels(asked.lake, asked.choice, most, asked.engine), _labels_lines)


def _labels_lines(document: dict[str, Any]) -> Iterator[str]:
    for row in document["labels"]:
        yield f"{row['name']}={row['value']}: {_sessions(row)}"
    if document["found"] > len(document["labels"]):
        yield f"and {document['found'] - len(document['labels'])} more; --most {document['found']} lists them"
    yield from _unknown_lines(document["absent"])


@fleet.command()
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE",
              help="A YAML policy.  [default: that of `aaco sla policy`]")
@click.option("--newest", type=options.COUNT, help="Only so many sessions of each group, the newest.  [default: all]")
@click.option("--webhook-env", "variable", metavar="NAME",
              help="Alert the address in this environment variable where a group fails or warns.  [default: what the "
                   "policy says]")
@click.option("--strict", is_flag=True, help="Exit with 4 where a group nearly fails or could not be judged.")
@counting
def sla(asked: Asked, policy_file: Path | None, newest: int | None, variable: str | None, strict: bool) -> None:
    """Hold each group of comparable sessions against a policy of `aaco sla`; exits with 3 where one fails.

    The median of a group's sessions is judged; how many single sessions are beyond the limit is given, too. A metric
    that the lake does not hold, and every metric of a group of one session, is skipped with the reason. A failed alert
    gives a warning and changes nothing.
    """
    from aaco.cli.sla import address_of
    from aaco.core import documents
    from aaco.fleet import objectives
    from aaco.governance import sla as governance

    policy = documents.load_yaml(policy_file, governance.Policy, "policy") if policy_file else governance.DEFAULT
    address = _address(variable) if variable else address_of(policy, None)
    document = objectives.check(asked.lake, policy, asked.choice, newest, asked.engine)
    say.answer(asked.as_json, document, _sla_lines)
    worth = policy.webhook.on if policy.webhook and not variable else ("fail", "warn")
    alerting = [group for group in document["groups"] if group["status"] in worth]
    if address and alerting:
        rows = [line for group in alerting[:MOST_IN_ALERT] for line in _sla_group_lines(group, document["not_held"])]
        _send(address, [f"aaco fleet sla: {_sla_counts(document)}", *rows], "sla", document)
    sys.exit(governance.exit_of([outcome["status"] for group in document["groups"] for outcome in group["objectives"]],
                                strict))


def _sla_lines(document: dict[str, Any]) -> Iterator[str]:
    yield _sla_counts(document)
    for group in document["groups"]:
        yield from _sla_group_lines(group, document["not_held"])
    if document["not_held"]:
        yield f"skipped, as a lake does not hold them: {', '.join(document['not_held'])}"


def _sla_counts(document: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in document["counts"].items() if count)
    return f"{document['status'].upper()}: groups against policy {document['policy']}: {counts or 'there is none'}"


def _sla_group_lines(group: dict[str, Any], not_held: list[str]) -> Iterator[str]:
    """Yield a line for a group, and for each of its objectives that did not pass or that some session misses."""
    from aaco.governance.sla import Outcome
    from aaco.report.ci.sla import line

    yield f"{group['status']} {_group(group)}, {_sessions(group)}"
    for row in group["objectives"]:
        if (row["status"] != "pass" or row["beyond"]) and row["metric"] not in not_held:
            yield f"  {row['status']} {line(Outcome.model_validate(row))}{_beyond(row)}"


def _beyond(row: dict[str, Any]) -> str:
    if not row["beyond"]:
        return ""
    return f"; {row['beyond']} of {row['measured']} sessions are beyond it, {row['worst_session']} most"


@fleet.command()
@click.option("--output", "-o", type=click.Path(path_type=Path),
              help="Write to this file; - is standard output. On a terminal it goes to fleet.html.")
@question
def report(asked: Asked, output: Path | None) -> None:
    """All of it as an HTML page of one file: regressions, nodes, stragglers, heat map, trends, scaling, kernels."""
    from aaco.fleet.overview import overview

    if output is None and sys.stdout.isatty():
        output = Path("fleet.html")
    say.answer(asked.as_json, overview(asked.lake, asked.choice, asked.fdr, asked.engine), _page, "Fleet", output)


@fleet.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...", type=click.Path(path_type=Path))
@click.option("--fdr", type=options.Real(0, 0.5, min_open=True), default=0.05, show_default=True,
              help="Share of false discoveries among what is listed.")
@click.option("--most", type=options.COUNT, default=20, show_default=True, help="Rows of each list.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write an HTML page to this file.")
@options.as_json
def card(paths: tuple[Path, ...], fdr: float, most: int, output: Path | None, as_json: bool) -> None:
    """The report card of one job: bundle files, session folders, or folders of them. No lake is needed or written.

    Exits with 2 if a bundle is refused; the others are on the card.
    """
    from aaco.fleet import overview

    with talk() as show:
        document = overview.card(paths, fdr, most, show)
    _warn_of(document["refused"])
    say.answer(as_json, document, lambda _: _card_lines(document, most) if output is None
               else _page(document, "Report card", output))
    sys.exit(Exit.USAGE if document["refused"] else Exit.FINE)


def _warn_of(refused: Mapping[str, str]) -> None:
    for path, why in refused.items():
        say.aside(f"refused: {path}: {why.removeprefix(f'{path}: ')}", "warning")


def _page(document: dict[str, Any], title: str, output: Path | None) -> str | tuple[()]:
    """Return the page to print; nothing where it was written to a file."""
    from aaco.core.files import write_atomically
    from aaco.report.renderers import fleet_page

    page = fleet_page.render(document, title)
    if output in (None, Path("-")):
        return page
    write_atomically(output, lambda file: file.write(page.encode()))
    say.aside(f"wrote {output}")
    return ()


def _lake(lake: Path | None, config_file: Path | None) -> Path:
    if lake is not None and config_file is None:
        return lake  # to read settings takes longer than to open it
    return options.settings(config_file, storage={"fleet_dir": lake}).config.storage.fleet_dir


def _engine(name: str, address: str | None) -> Engine:
    """Return where maps run. Raise UsageError: a cluster is never looked for."""
    from aaco.fleet.scan import LOCAL

    if name == "local":
        if address is not None:
            raise UsageError("--address without --engine ray", "--engine ray")
        return LOCAL
    from aaco.fleet.ray_engine import RayEngine

    if address is None:
        raise UsageError("--engine ray needs --address: no cluster is looked for",
                         "--address HOST:PORT, ray://HOST:PORT or local")
    return RayEngine(address)


def _sessions(row: dict[str, Any]) -> str:
    return plural(row["sessions"], "session")


def _group(row: dict[str, Any]) -> str:
    several = f"{row['several_devices']} x " if row.get("several_devices") else ""
    return (f"{row['model'] or 'n/a'} on {several}{row['device'] or 'n/a'} ({row['backend'] or 'n/a'}, "
            f"{row['fingerprint']})")


def _skewed(row: dict[str, Any]) -> str:
    from aaco.report.sections.fleet import device

    late = (f"the others wait for {device(row['straggler'])} ({row['straggler_pct']:.1f} % of the time)"
            if row["straggler"] else row["why_no_straggler"])
    return (f"skewed {row['session_id']}: {device(row['slowest'])} is {row['skew_pct']:+.1f} % off the median of "
            f"{plural(row['devices'], 'device')}; {late}")


def _shifted(kind: str, row: dict[str, Any]) -> str:
    return (f"{kind} {row['session_id']}: {row['change_pct']:+.1f} %, {row['level']:.4g} {row['unit']} against "
            f"{row['base']:.4g}, {_group(row)}, node {row['node'] or 'not recorded'} (q = {row['q_value']:.1g})")


def _absent_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        count = sum(row["sessions"] for row in rows)
        yield f"not judged: {plural(count, 'session')} in {plural(len(rows), 'group')}; {rows[0]['why_absent']}"


def _top_lines(document: dict[str, Any]) -> Iterator[str]:
    for row in document["slow_nodes"]:
        yield (f"slow node {row['node']}: {row['shift_pct']:+.1f} % over {_sessions(row)} "
               f"(q = {row['q_value']:.1g})")
    for row in document["stragglers"]:
        yield (f"straggler {row['session_id']} process {row['process']}: {row['behind_pct']:+.1f} % behind the "
               f"others of its session, node {row['node'] or 'not recorded'} (q = {row['q_value']:.1g})")
    for row in document["device_skews"]:
        yield _skewed(row)
    for row in document["kernels"]:
        yield (f"kernel {row['kernel_name']}: {100 * row['share']:.1f} % of kernel time on {row['device'] or 'n/a'}, "
               f"{row['total_ns'] / 1e6:.6g} ms, {plural(row['calls'], 'call')}, {_sessions(row)}")
    if document["nodes_not_judged"]:
        yield (f"not judged: {plural(len(document['nodes_not_judged']), 'node')}; "
               f"{document['nodes_not_judged'][0]['why_absent']}")


def _card_lines(document: dict[str, Any], most: int) -> Iterator[str]:
    counts = document["regressions"]
    yield (f"{plural(len(document['listed']), 'session')}: {len(counts['worse'])} worse, {len(counts['better'])} "
           f"better of {counts['judged']} judged by {document['metric']} (false discovery rate {document['fdr']:g})")
    for row in document["listed"][:most]:
        yield _card_row(row)
    if len(document["listed"]) > most:
        yield f"and {len(document['listed']) - most} more; --most {len(document['listed'])} lists them"
    yield from _top_lines(document["top"])


def _card_row(row: dict[str, Any]) -> str:
    if row["level"] is None:
        return f"{row['session_id']}: no level, {row['why_absent']}{_card_devices(row)}{_card_described(row)}"
    slowest = row["slowest_process_pct"]
    spread = "" if slowest is None else f", slowest of {row['processes']} processes {slowest:+.1f} %"
    judged = (f"{row['verdict']}, {row['change_pct']:+.1f} % (q = {row['q_value']:.1g})" if row["verdict"]
              else f"not judged, {row['why_absent']}")
    return (f"{row['session_id']}: {row['level']:.4g} {row['unit']}{spread}{_card_devices(row)}; {judged}"
            f"{_card_described(row)}")


def _card_described(row: dict[str, Any]) -> str:
    labels = "".join(f" {name}={text}" for name, text in row["labels"].items())
    state = "" if row["health"] is None else f"; {row['health']}: {row['health_evidence']}"
    return state + (f";{labels}" if labels else "")


def _card_devices(row: dict[str, Any]) -> str:
    from aaco.report.sections.fleet import device

    skew = row["device_skew_pct"]
    return "" if skew is None else f", slowest device ({device(row['slowest_device'])}) {skew:+.1f} %"
