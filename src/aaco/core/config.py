"""Settings: built-in default < file < environment < command line, and where each value came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from aaco.core.errors import UsageError, first_problem
from aaco.core.near import near
from aaco.core.plan import Count, Noise, Positive, Seconds, Warmup, Whole
from aaco.core.presets import PRESETS, Layer

Laboratory = Literal["none", "basic", "soft", "standard", "strict", "paranoid"]  # of laboratory.levels, which is above


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Profiling(_Section):
    """How `aaco run` measures, unless the command line or the model's registry entry says otherwise."""

    warmup: Warmup | None = Field(default=None, description="warm-up iterations, or auto: until the latencies have "
                                  "settled; empty: the model's entry, else 10")
    iterations: Count | None = Field(default=None, description="measured iterations; empty: the model's, else 100")
    processes: Count = Field(default=1, description="fresh processes, one after the other: the unit of replication")
    profile_iterations: Count = Field(default=10, description="iterations of the separate profiled pass")
    budget_s: Seconds | None = Field(default=None, description="stop measuring after this long, per process")
    precision_pct: Positive | None = Field(default=None, description="stop at this width of the median's interval")
    noise: Noise = Field(default="tag", description="tag disturbed iterations, discard them from the statistics, or "
                                                    "repeat until enough are clean")
    lab: Laboratory | None = Field(default=None, description="level of the laboratory around every pass of `aaco run` "
                                   "and `aaco sweep`; empty: none")
    calibrate: bool = Field(default=True, description="measure this machine's ceilings when none are cached")


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _rising(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] >= limits[1]:
        raise ValueError("the second limit must be above the first")
    return limits


# From the first on a reading is a warning, from the second on it is bad.
Limits = Annotated[tuple[Positive, Positive], AfterValidator(_rising)]


class Analysis(_Section):
    """Thresholds the readings use. Those of two limits are of the metric of that name: warning, and bad."""

    microkernel_us: Positive = Field(default=10.0, description="a kernel shorter than this is a microkernel")
    kernel_wait_us: Positive = Field(default=5.0, description="a gap up to this is the way from kernel to kernel")
    critical_path_work: Whole = Field(default=150_000, description="pieces of device work up to which an import looks "
                                      "for the critical path, at about 1 kB each; `aaco critical-path` has no limit")
    tolerance_pct: Positive = Field(default=5.0, description="a slowdown up to this is accepted")
    false_alarm_pct: Positive = Field(default=1.0, le=50, description="of comparisons of a thing with itself, how many "
                                      "may be called changed")
    host_switches_per_s: Limits = Field(default=(8_000.0, 20_000.0), description="context switches of the host")
    host_interrupts_per_s: Limits = Field(default=(5_000.0, 15_000.0), description="interrupts of the host")
    host_softirqs_per_s: Limits = Field(default=(3_000.0, 10_000.0), description="softirqs of the host")
    host_major_faults_per_s: Limits = Field(default=(100.0, 1_000.0), description="page faults with I/O of the host")
    pressure_cpu_pct: Limits = Field(default=(5.0, 20.0), description="time in which some task waited for a CPU")
    pressure_memory_pct: Limits = Field(default=(5.0, 20.0), description="time in which some task waited for memory")
    pressure_io_pct: Limits = Field(default=(10.0, 30.0), description="time in which some task waited for I/O")
    cpu_throttles_per_s: Limits = Field(default=(0.001, 1.0), description="times that the processor grew too hot")
    cpu_clock_below_max_pct: Limits = Field(default=(25.0, 50.0), description="how far the CPU clock is below its top")
    wait_per_switch_ms: Limits = Field(default=(1.0, 10.0), description="mean wait of the process's threads for a CPU")


# Of analytics.bottleneck.kernel_classes, which is above.
KernelClass = Literal["communication", "tiny", "divergence", "lds", "memory_bandwidth", "compute_throughput", "scalar",
                      "occupancy", "memory_latency", "latency", "unclear"]


class Optimize(_Section):
    """The gates of `aaco optimize`: a kernel that fails one is not worth the effort."""

    min_headroom: Share = Field(default=0.10, description="share of a kernel's time that its roofline says could be "
                                                          "gained, at least")
    min_path_share: Share = Field(default=0.20, description="share of the critical path that it is on, at least")
    min_priority: Share = Field(default=0.05, description="product of the two, at least")
    classes: tuple[KernelClass, ...] = Field(default=("memory_latency",), description="what limits it: one of these")


class Storage(_Section):
    """Where things are kept, and for how long."""

    sessions_dir: Path = Field(default=Path("sessions"), description="session bundles")
    baselines_dir: Path = Field(default=Path("baselines"), description="saved baselines")
    fleet_dir: Path = Field(default=Path("fleet"), description="the lake of `aaco fleet`: a folder, or "
                           "s3://BUCKET/PREFIX")
    cache_dir: Path = Field(default=Path("~/.cache/aaco"), description="built zoo models, measured ceilings")
    lab_dir: Path | None = Field(default=None, description="journals of laboratories; empty: /run/aaco/lab for root, "
                                 "else lab in cache_dir")
    models_file: Path = Field(default=Path("configs/models.yaml"), description="your models, over the built-in ones")
    backends_file: Path = Field(default=Path("configs/backends.yaml"), description="your backends, likewise")
    max_sessions: Count = Field(default=100, description="aaco gc keeps at most this many")
    max_age_days: int = Field(default=30, ge=1, le=100_000, description="aaco gc removes sessions older than this")


class Config(_Section):
    """Every setting."""

    profiling: Profiling = Profiling()
    analysis: Analysis = Analysis()
    optimize: Optimize = Optimize()
    storage: Storage = Storage()

    @classmethod
    def default(cls) -> Config:
        """Return the built-in values; files and environment are ignored."""
        return cls()

    @classmethod
    def from_file(cls, path: str | Path) -> Config:
        """Return a file's values over the built-in ones; the environment is ignored. Raise UsageError."""
        return _merge([(f"file {path}", _read(Path(path)))]).config

    @classmethod
    def from_dict(cls, sections: Layer) -> Config:
        """Sections of key: value pairs over the built-in values. Raises UsageError."""
        return _merge([("given sections", sections)]).config


ENVIRONMENT = {
    "AACO_SESSION_DIR": ("storage", "sessions_dir"),
    "AACO_BASELINE_DIR": ("storage", "baselines_dir"),
    "AACO_FLEET_DIR": ("storage", "fleet_dir"),
    "AACO_CACHE_DIR": ("storage", "cache_dir"),
    "AACO_LAB_DIR": ("storage", "lab_dir"),
    "AACO_LAB_MODE": ("profiling", "lab"),
}
# The other variables that are read, by whom they concern; and names that other guides give to what has one here.
VARIABLES = (*ENVIRONMENT, "AACO_CONFIG", "AACO_LOG_LEVEL", "AACO_COMPLETE", "AACO_MARKERS", "AACO_MARKER_LIBRARIES",
             "AACO_CUPTI", "AACO_CUPTI_MODE", "AACO_CUPTI_TRACE", "AACO_CUPTI_LAUNCH", "AACO_CUPTI_KERNEL",
             "AACO_CUPTI_NUMBER", "AACO_CUPTI_BYTES", "AACO_RECORDED_BY", "AACO_TRACED_BY", "AACO_SERVE_READ_TOKEN",
             "AACO_SERVE_WRITE_TOKEN", "AACO_TINYGRAD")
OTHERWISE = {"AACO_OUTPUT_DIR": "AACO_SESSION_DIR", "AACO_SESSIONS_DIR": "AACO_SESSION_DIR"}
PREFIX = "AACO_"


def unread(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with AACO's prefix that nothing reads, each with the name that was meant; empty if none is
    similar, so it belongs to the user (a token that an option names, say)."""
    variables = [name.removeprefix(PREFIX) for name in VARIABLES]
    meant_by_name = {}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in VARIABLES:
            alike = near(name.removeprefix(PREFIX), variables, 1)
            meant_by_name[name] = OTHERWISE.get(name) or (PREFIX + alike[0] if alike else "")
    return meant_by_name


class Settings(Struct, frozen=True):
    """The resolved configuration and, per dotted key, which layer decided it."""

    config: Config
    origins: Mapping[str, str]


def search_path() -> list[Path]:
    """Where a configuration file is looked for when --config and AACO_CONFIG name none; the first found is used."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [Path("aaco.yaml"), home / "aaco" / "config.yaml", Path("/etc/aaco/config.yaml")]


def resolve(file: Path | None = None, preset: str | None = None, overrides: Layer | None = None,
            environment: Mapping[str, str] | None = None, overridden_by: str = "command line") -> Settings:
    """Merge the layers; `overridden_by` is what errors call the last. Raises UsageError that names the file and key for
    anything unknown or out of range."""
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
    layers.append((overridden_by, overrides or {}))
    return _merge(layers)


def taken(config: Config) -> Settings:
    """Return the settings of a configuration made elsewhere; files and environment are ignored."""
    return _merge([("Config", config.model_dump(exclude_unset=True))])


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
        raise UsageError(f"{origin}: {first_problem(error)}", _hint(error.errors()[0]["loc"])) from error


def _hint(location: tuple[Any, ...]) -> str:
    """Return what a key (section, name, place inside) with an invalid value is; for an unknown one, a similar key."""
    section, key = (*map(str, location), "", "")[:2]
    fields = _sections()[section].model_fields if section in _sections() else {}
    return f"{section}.{key}: {fields[key].description}" if key in fields else _nearest(location)


def _nearest(location: tuple[Any, ...]) -> str:
    sections = _sections()
    names = sections[location[0]].model_fields if len(location) > 1 and location[0] in sections else sections
    close = near(str(location[-1]), names, 1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(names)}"


def _sections() -> dict[str, type[_Section]]:
    return {"profiling": Profiling, "analysis": Analysis, "storage": Storage}


def _read(path: Path) -> Layer:
    import yaml

    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name an existing file with --config or AACO_CONFIG") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid YAML: {' '.join(str(error).split())}", "aaco config show") from error
    if not isinstance(document or {}, dict) or not all(isinstance(keys, dict) for keys in (document or {}).values()):
        raise UsageError(f"{path}: expected sections of key: value pairs", f"sections: {', '.join(_sections())}")
    return document or {}
