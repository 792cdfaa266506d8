"""`aaco sla`: does a session keep what was promised?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.addresses import require_address
from aaco.report.ci import sla as report

if TYPE_CHECKING:
    from aaco.governance.sla import Policy, Report


@manual.group()
def sla() -> None:
    """Hold sessions against service-level objectives."""


@sla.command()
@options.session_reference
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE",
              help="A YAML policy.  [default: that of `aaco sla policy`]")
@click.option("--webhook", metavar="URL", help="Send an alert here. Better: name the variable in the policy.")
@click.option("--strict", is_flag=True, help="Exit with 4 where an objective is nearly missed or could not be judged.")
@options.with_session_and_settings
@options.as_json
def check(session: options.Session, policy_file: Path | None, webhook: str | None, strict: bool,
          settings: options.Settings, as_json: bool) -> None:
    """Hold SESSION (by default the latest) against a policy; exits with 3 where an objective is missed.

    Each objective is passed, a warning (within its margin, or its interval reaches across the limit), failed, or
    skipped with the reason why the session has no such reading. A failed alert gives a warning and changes
    nothing.
    """
    from aaco import pipeline
    from aaco.core import documents
    from aaco.governance import sla as governance

    policy = documents.load_yaml(policy_file, governance.Policy, "policy") if policy_file else governance.DEFAULT
    address = address_of(policy, webhook)
    checked_policy = governance.check(policy, pipeline.explain(session, settings).readings, session.id)
    say.answer(as_json, checked_policy.model_dump(mode="json"), lambda _: report.render(checked_policy))
    if address and checked_policy.status in (policy.webhook.on if policy.webhook and not webhook else ("fail", "warn")):
        _alert(address, checked_policy)
    sys.exit(governance.exit_code(checked_policy, strict))


@sla.command("policy")
@options.as_json
def show_policy(as_json: bool) -> None:
    """Print the default policy, to start your own from."""
    import yaml

    from aaco.governance import sla as governance

    document = governance.DEFAULT.model_dump(mode="json", exclude_none=True)
    say.document(document) if as_json else say.text(yaml.safe_dump(document, sort_keys=False))


def address_of(policy: Policy, webhook: str | None) -> str | None:
    """Return where alerts go, or None. Raises UsageError before anything is judged where it cannot be an address."""
    from aaco.workflows.alert_webhook import ADDRESS

    if webhook is None and policy.webhook:
        webhook = os.environ.get(policy.webhook.url_env)
        if not webhook:
            say.aside(f"warning: no alert will be sent: {policy.webhook.url_env} is not set", "warning")
            return None
    if webhook is not None:
        require_address(webhook, ADDRESS)
    return webhook


def _alert(address: str, checked_policy: Report) -> None:
    from aaco.workflows import alert_webhook as webhook

    worst = [report.line(outcome) for outcome in checked_policy.objectives if outcome.status in ("fail", "warn")]
    text = "\n".join([f"aaco {report.headline(checked_policy)}", *worst])
    delivery = webhook.send(address, {"text": text, "sla": checked_policy.model_dump(mode="json")})
    say.aside(delivery.said, "info" if delivery.arrived else "warning")
