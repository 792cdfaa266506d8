"""Settings: built-in default < file < environment < command line, and where each value came from."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aaco.core.errors import UsageError
from aaco.core.presets import PRESETS, Layer


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Profiling(_Section):
    """How `aaco run` measures, unless the command line or the model's registry entry says otherwise."""

    warmup: int | None = Field(default=None, ge=0, description="warm-up iterations; empty: the model's entry, else 10")
    iterations: int | None = Field(default=None, ge=1, description="measured iterations; empty: the model's, else 100")
    processes: int = Field(default=1, ge=1, description="fresh processes, one after the other: the unit of replication")
    profile_iterations: int = Field(default=10, ge=1, description="iterations of the separate profiled pass")
    budget_s: float | None = Field(default=None, gt=0, description="stop measuring after this long, per process")
    precision_pct: float | None = Field(default=None, gt=0, description="stop at this width of the median's interval")
    calibrate: bool = Field(default=True, description="measure this machine's ceilings when none are cached")


class Analysis(_Section):
    """Thresholds the readings use."""

    microkernel_us: float = Field(default=10.0, gt=0, description="a kernel shorter than this is a microkernel")
    tolerance_pct: float = Field(default=5.0, gt=0, description="a slowdown up to this is accepted")


class Storage(_Section):
    """Where things are kept, and for how long."""

    sessions_dir: Path = Field(default=Path("sessions"), description="session bundles")
    baselines_dir: Path = Field(default=Path("baselines"), description="saved baselines")
    cache_dir: Path = Field(default=Path("~/.cache/aaco"), description="built zoo models, measured ceilings")
    models_file: Path = Field(default=Path("configs/models.yaml"), description="your models, over the built-in ones")
    backends_file: Path = Field(default=Path("configs/backends.yaml"), description="your backends, likewise")
    max_sessions: int = Field(default=100, ge=1, description="aaco gc keeps at most this many")
    max_age_days: int = Field(default=30, ge=1, description="aaco gc removes sessions older than this")


class Config(_Section):
    """Every setting."""

    profiling: Profiling = Profiling()
    analysis: Analysis = Analysis()
    storage: Storage = Storage()


ENVIRONMENT = {
    "AACO_SESSION_DIR": ("storage", "sessions_dir"),
    "AACO_BASELINE_DIR": ("storage", "baselines_dir"),
    "AACO_CACHE_DIR": ("storage", "cache_dir"),
}


@dataclass(frozen=True)
class Settings:
    """The resolved configuration and, per dotted key, which layer decided it."""

    config: Config
    origins: Mapping[str, str]


def search_path() -> list[Path]:
    """Where a configuration file is looked for when --config and AACO_CONFIG name none; the first found is used."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [Path("aaco.yaml"), home / "aaco" / "config.yaml", Path("/etc/aaco/config.yaml")]


def resolve(file: Path | None = None, preset: str | None = None, overrides: Layer | None = None,
            environment: Mapping[str, str] | None = None) -> Settings:
    """Merge the layers. Raises UsageError that names the file and key for anything unknown or out of range."""
    environment = os.environ if environment is None else environment
    named = file or (Path(environment["AACO_CONFIG"]) if environment.get("AACO_CONFIG") else None)
    path = named or next((candidate for candidate in search_path() if candidate.is_file()), None)
    layers: list[tuple[str, Layer]] = []
    if path:
        layers.append((f"file {path}", _read(path)))
    if preset:
        layers.append((f"preset {preset}", PRESETS[preset]))
    layers += [(f"environment {name}", {section: {key: environment[name]}})
               for name, (section, key) in ENVIRONMENT.items() if environment.get(name)]
    layers.append(("command line", overrides or {}))
    return _merge(layers)


def _merge(layers: list[tuple[str, Layer]]) -> Settings:
    values: dict[str, dict[str, Any]] = {name: {} for name in Config.model_fields}
    origins = {f"{name}.{key}": "default" for name, section in _sections().items() for key in section.model_fields}
    for origin, layer in layers:
        _validate(origin, layer)
        for section, keys in layer.items():
            for key, value in keys.items():
                values[section][key] = value
                origins[f"{section}.{key}"] = origin
    return Settings(Config.model_validate(values), origins)


def _validate(origin: str, layer: Layer) -> None:
    try:
        Config.model_validate(layer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{origin}: {where}: {first['msg']}", _nearest(first["loc"])) from error


def _nearest(location: tuple[Any, ...]) -> str:
    sections = _sections()
    known = sections[location[0]].model_fields if len(location) > 1 and location[0] in sections else sections
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


def _sections() -> dict[str, type[_Section]]:
    return {"profiling": Profiling, "analysis": Analysis, "storage": Storage}


def _read(path: Path) -> Layer:
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name an existing file with --config or AACO_CONFIG") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid YAML: {' '.join(str(error).split())}", "aaco config show") from error
    if not isinstance(document or {}, dict) or not all(isinstance(keys, dict) for keys in (document or {}).values()):
        raise UsageError(f"{path}: expected sections of key: value pairs", f"sections: {', '.join(_sections())}")
    return document or {}
