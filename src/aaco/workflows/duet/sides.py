"""What is compared: two models, or one under two settings or environments, or two commands."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ValidationError

from aaco.collectors.inventory import environment
from aaco.core.config import Settings
from aaco.core.errors import UsageError, first_problem
from aaco.core.near import near
from aaco.core.plan import HOST, Command, Plan
from aaco.core.redaction import redact_variable
from aaco.core.show import SILENT, Show
from aaco.governance.verdict_document import EnvironmentDifference
from aaco.runner.duet import CommandSide, ModelSide
from aaco.runner.registry import SESSION_ATTRIBUTES, BackendEntry
from aaco.steps import run

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OF_A_BACKEND = ("intra_op_threads", "inter_op_threads", "graph_optimization", "device_id")
PROVIDER_OPTION, SESSION_OPTION = "option.", "session."  # before the name of an option of the provider, the session
OF_A_PLAN = ("backend", "batch", "io")
KEYS = (*OF_A_PLAN, *OF_A_BACKEND, f"{PROVIDER_OPTION}NAME", f"{SESSION_OPTION}NAME")


class DuetSide(Struct, frozen=True):
    """One side as a person names it: a model with options (KEYS), or a command; and environment variables."""

    model: str = ""
    command: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class PreparedSide(Struct, frozen=True):
    """A side that exists. facts: what may differ between two sides; config: a hash of what it runs with.

    on_host: whether the processor does the work, so that time on the host's clock is the time of the work.
    """

    label: str
    runs: ModelSide | CommandSide
    facts: Mapping[str, str | None]
    config: str
    on_host: bool
    plan: Plan
    identifies: Mapping[str, Any]

    @property
    def same_as(self) -> tuple[str, str, object]:
        """Equal on both sides of a comparison of a thing with itself."""
        return self.label, self.config, self.identifies["model_hash"]


def prepare(side: DuetSide, settings: Settings, given: Mapping[str, Any], show: Show = SILENT) -> PreparedSide:
    """Find or build what the side names. given: fields of Plan. Raises AacoError."""
    _require_variables(side.environment)
    return _command(side, settings, given, show) if side.command else _model(side, settings, given, show)


def differences(baseline: PreparedSide, current: PreparedSide, ran: Mapping[str, Mapping[str, str | None]]) -> tuple[
        EnvironmentDifference, ...]:
    """Every fact that is not the same on both sides, with what the processes reported of them. None of them blocks:
    that they differ is what is compared."""
    before, after = {**baseline.facts, **ran["baseline"]}, {**current.facts, **ran["current"]}
    return tuple(EnvironmentDifference(fact=name, baseline=before.get(name), current=after.get(name), blocks=False)
                 for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name))


def _model(side: DuetSide, settings: Settings, given: Mapping[str, Any], show: Show) -> PreparedSide:
    options = dict(side.options)
    unknown = [name for name in options
               if name not in KEYS and not name.startswith((PROVIDER_OPTION, SESSION_OPTION))]
    if unknown:
        raise UsageError(f"no option {unknown[0]!r} of a side", f"known: {', '.join(KEYS)}")
    plan_fields = dict(given) | {name: options.pop(name) for name in OF_A_PLAN if name in options}
    # How a run measures is a setting; a duet has its own warm-up, and a laboratory where its request names one.
    plan = run.complete_plan(settings, side.model, plan_fields).model_copy(
        update={"lab": given.get("lab"), "settle": False})
    prepared = run.prepare(plan, settings, show)
    assert isinstance(prepared, run.PreparedModel)
    backend = _with(prepared.workload.backend, options)
    prepared = replace(prepared, workload=replace(prepared.workload, backend=backend))
    identifies = prepared.identifies
    facts: dict[str, str | None] = {
        "model": prepared.plan.model, "model_hash": prepared.identity.sha256, "provider": backend.provider,
        "graph_optimization": backend.graph_optimization, "batch": str(prepared.plan.batch)}
    facts |= {name if "." in name else f"{SESSION_OPTION}{name}": str(value)
              for name, value in backend.session_options.items()}
    facts |= {f"{PROVIDER_OPTION}{name}": value for name, value in backend.provider_options.items()}
    facts |= {f"input.{name}": f"{array.dtype} {list(array.shape)}"
              for name, array in prepared.workload.inputs.items()}
    return PreparedSide(prepared.plan.model, ModelSide(prepared.workload, dict(side.environment)),
                        facts | _shown(side.environment), _hash(identifies["config_hash"], side.environment),
                        backend.provider == environment.CPU_PROVIDER, prepared.plan, identifies)


def _command(side: DuetSide, settings: Settings, given: Mapping[str, Any], show: Show) -> PreparedSide:
    if side.options:
        raise UsageError(f"a command has no option {next(iter(side.options))!r}", "options are a model's")
    command = Command(argv=side.command, timeout_s=given.get("timeout_s"),
                      ignore_failure=bool(given.get("ignore_failure")))
    plan = Plan.of_command(command, runs=1, warmup=0, lab=given.get("lab"), lab_cpus=given.get("lab_cpus"))
    prepared = run.prepare(plan, settings, show)
    assert isinstance(prepared, run.PreparedCommand)
    label = shlex.join(prepared.shown.words)
    facts = {"command": label, "executable_sha256": prepared.sha256, "provider": HOST}
    return PreparedSide(label, CommandSide(command.argv, dict(side.environment), command.timeout_s,
                                           command.ignore_failure),
                        facts | _shown(side.environment),
                        _hash(prepared.identifies["config_hash"], side.environment), True, plan, prepared.identifies)


def _with(backend: BackendEntry, options: Mapping[str, str]) -> BackendEntry:
    """The backend with a side's own options. Raises UsageError."""
    if not options:
        return backend
    fields = backend.model_dump()
    fields |= {name: value for name, value in options.items() if name in OF_A_BACKEND}
    fields["options"] |= _prefixed(options, PROVIDER_OPTION)
    fields["session"] |= {_session_name(name): {"true": True, "false": False}.get(value, value)
                          for name, value in _prefixed(options, SESSION_OPTION).items()}
    try:
        return BackendEntry.model_validate(fields)
    except ValidationError as error:
        raise UsageError(f"options of a side: {first_problem(error)}", f"known: {', '.join(KEYS)}") from error


def _prefixed(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _session_name(name: str) -> str:
    """Return the name of a session's option: an entry of its configuration begins with `session.` itself.

    What resembles an attribute is one, maybe misspelt, which the backend's entry then refuses.
    """
    return name if near(name, SESSION_ATTRIBUTES) else f"{SESSION_OPTION}{name}"


def _require_variables(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise UsageError(f"{name!r} cannot name an environment variable", "NAME=VALUE")


def _shown(variables: Mapping[str, str]) -> dict[str, str | None]:
    """Variables as they may be kept: what looks like a credential is redacted."""
    return {f"environment.{name}": redact_variable(name, value) for name, value in variables.items()}


def _hash(config: str, variables: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([config, _shown(variables)], sort_keys=True).encode()).hexdigest()[:16]
