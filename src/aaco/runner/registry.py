"""The two registries: models and backends by name, packaged defaults overlaid by the user's YAML files.

An entry of a later file replaces the earlier entry of that name whole. Unknown keys are errors. The path of a model is
relative to the current folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aaco.core import extras, files
from aaco.core.errors import Missing, ModelError, UsageError
from aaco.core.near import meant, near

AUTO = "auto"  # in place of a backend's name: the first that is here
PACKAGED_MODELS = Path(__file__).with_name("models.yaml")
PACKAGED_BACKENDS = Path(__file__).with_name("backends.yaml")
Dtype = Literal["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32",
                "int64", "uint64", "bool", "string"]
Shape = tuple[Annotated[int, Field(ge=-1, strict=True)] | str, ...]
Option = bool | int | float | str
E = TypeVar("E", "ModelEntry", "BackendEntry")
_MIGRAPHX, _TENSORRT, _CUDA = "MIGraphXExecutionProvider", "TensorrtExecutionProvider", "CUDAExecutionProvider"
# A precision switch has the same meaning everywhere and another name in each provider (ONNX Runtime 1.23-1.27:
# migraphx_execution_provider_info.cc, tensorrt_execution_provider_info.cc).
_PREFIXES = {_MIGRAPHX: "migraphx_", _TENSORRT: "trt_"}
_SWITCHES = {
    "fp16_enable": {_MIGRAPHX, _TENSORRT},
    "bf16_enable": {_MIGRAPHX, _TENSORRT},
    "int8_enable": {_MIGRAPHX, _TENSORRT},
    "fp8_enable": {_MIGRAPHX},
    "exhaustive_tune": {_MIGRAPHX},
}
SESSION_ATTRIBUTES: Mapping[str, tuple[bool | str, ...]] = {
    "execution_mode": ("sequential", "parallel"), "enable_mem_pattern": (True, False),
    "enable_cpu_mem_arena": (True, False)}
_WITH_DEVICES = {_MIGRAPHX, _TENSORRT, _CUDA}


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class InputEntry(_Entry):
    """One input of a model: its shape (a name or -1 leaves a dimension to the defaults) and element type."""

    name: str
    shape: Shape
    dtype: Dtype | None = None


class ModelEntry(_Entry):
    """A model by name. In YAML, inputs are either `input_shapes: {name: shape}` or `inputs: [{name, shape, dtype}]`."""

    name: str
    path: str | None = Field(default=None, description=".onnx file, relative to the current folder")
    zoo: str | None = Field(default=None, description="recipe to build when there is no file; default: its name")
    inputs: tuple[InputEntry, ...] = Field(default=(), description="shapes of dynamic inputs; the batch is --batch")
    dtype: Dtype | None = Field(default=None, description="type the float inputs must have (an integer type: the "
                                                          "integer inputs); nothing is converted")
    warmup: int | None = Field(default=None, ge=0, description="warm-up iterations")
    iterations: int | None = Field(default=None, ge=1, description="measured iterations")
    tags: tuple[str, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int | str | None, ...]]:
        """Return each described input's shape; None for -1."""
        return {item.name: tuple(None if size == -1 else size for size in item.shape) for item in self.inputs}

    @model_validator(mode="before")
    @classmethod
    def _read_dialects(cls, data: Any) -> Any:
        """Return the fields with `input_shapes: {name: shape}` rewritten as `inputs` without types."""
        if not isinstance(data, dict) or "input_shapes" not in data:
            return data
        if "inputs" in data:
            raise ValueError("give input_shapes or inputs, not both")
        shapes = data["input_shapes"]
        if not isinstance(shapes, dict):
            raise ValueError("input_shapes must be a map of input name to shape")
        others = {key: value for key, value in data.items() if key != "input_shapes"}
        return others | {"inputs": [{"name": name, "shape": shape} for name, shape in shapes.items()]}


class BackendEntry(_Entry):
    """An ONNX Runtime execution provider with its options, under a short name."""

    name: str
    provider: str = Field(pattern="ExecutionProvider$")
    device_id: int | None = Field(default=None, ge=0, description="which device of that kind")
    options: dict[str, Option] = Field(default={}, description="provider options by ONNX Runtime's names, or a switch "
                                                               "such as fp16_enable")
    intra_op_threads: int | None = Field(default=None, ge=0, description="threads inside an operator; 0: one per core")
    inter_op_threads: int | None = Field(default=None, ge=0, description="threads across operators; 0: one per core")
    graph_optimization: Literal["disable", "basic", "extended", "all"] = Field(
        default="all", description="how far ONNX Runtime rewrites the graph")
    session: dict[str, Option] = Field(
        default={}, description="further options of the session by ONNX Runtime's names: execution_mode (sequential or "
                                "parallel), enable_mem_pattern, enable_cpu_mem_arena, or an entry of its configuration "
                                "such as session.intra_op.allow_spinning")
    extra: str | None = Field(default=None, description="the extra of this package that installs the provider")
    priority: int = Field(default=0, description="listings put the highest first, and so does the choice of auto")
    retired: str = Field(default="", description="why this backend cannot run any more")

    @property
    def provider_options(self) -> dict[str, str]:
        """Return the options under the provider's names, as ONNX Runtime requires: text, and True or False."""
        device = {} if self.device_id is None else {"device_id": str(self.device_id)}
        return device | {_option_name(self.provider, name): str(value) for name, value in self.options.items()}

    @property
    def session_options(self) -> dict[str, Option]:
        """Return the attributes to set on onnxruntime.SessionOptions, and, by their dotted names, the entries of its
        configuration, as text.
        """
        threads = {"intra_op_num_threads": self.intra_op_threads, "inter_op_num_threads": self.inter_op_threads}
        return {name: value for name, value in threads.items() if value is not None} | {
            name: _entry_text(value) if "." in name else value for name, value in self.session.items()}

    @property
    def install(self) -> str:
        """Return what to do if the provider is missing."""
        if self.extra:
            return f"{extras.install(self.extra)}, in an environment with no other onnxruntime wheel"
        return f"install a build of ONNX Runtime that has {self.provider}"

    @model_validator(mode="before")
    @classmethod
    def _read_switches(cls, data: Any) -> Any:
        """Return the fields with switches at the top level (`fp16_enable: true`) moved into `options`."""
        if not isinstance(data, dict) or not isinstance(data.get("options") or {}, dict):
            return data
        beside = {name: data[name] for name in _SWITCHES if name in data}
        others = {name: value for name, value in data.items() if name not in _SWITCHES}
        return others | {"options": (data.get("options") or {}) | beside}

    @model_validator(mode="after")
    def _check_session(self) -> BackendEntry:
        for name, value in self.session.items():
            if "." not in name and name not in SESSION_ATTRIBUTES:
                raise ValueError(f"session.{name} is none of {', '.join(SESSION_ATTRIBUTES)}, nor an entry of ONNX "
                                 "Runtime's session configuration, which has a dot")
            if name in SESSION_ATTRIBUTES and value not in SESSION_ATTRIBUTES[name]:
                raise ValueError(f"session.{name} is one of {', '.join(map(str, SESSION_ATTRIBUTES[name]))}")
        return self

    @model_validator(mode="after")
    def _check_provider(self) -> BackendEntry:
        for name in self.options.keys() & _SWITCHES.keys():
            if self.provider not in _SWITCHES[name]:
                raise ValueError(f"{self.provider} has no {name}; give the provider's own option under options")
        if self.device_id is not None and self.provider not in _WITH_DEVICES:
            raise ValueError(f"{self.provider} takes no device_id")
        return self


class ResolvedModel(NamedTuple):
    """An existing model file, the entry that describes it, and whether its weights are synthetic."""

    path: Path
    entry: ModelEntry
    synthetic: bool


def models(files: Iterable[Path] = ()) -> dict[str, ModelEntry]:
    """Return the packaged models overlaid by those of `files` that exist, in order. Raise UsageError for a bad file."""
    raw = _merge_files(PACKAGED_MODELS, files, "models")
    return {name: _build_entry(ModelEntry, name, fields, file) for name, (fields, file) in raw.items()}


def backends(files: Iterable[Path] = ()) -> dict[str, BackendEntry]:
    """Return the packaged backends overlaid by those of `files` that exist, highest priority first.

    Raise UsageError.
    """
    raw = _merge_files(PACKAGED_BACKENDS, files, "backends")
    if AUTO in raw:
        raise UsageError(f"{raw[AUTO][1]}: no backend can be named {AUTO}: that chooses one", "give it another name")
    entries = [_build_entry(BackendEntry, name, fields, file) for name, (fields, file) in raw.items()]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: -entry.priority)}


def backend(name: str, entries: Mapping[str, BackendEntry]) -> BackendEntry:
    """Return the backend of this name. Raise UsageError for an unknown one.

    Raise Missing for one that was retired, or if no ONNX Runtime is installed.
    """
    entry = entries.get(name)
    if entry is None:
        raise UsageError(f"no backend {name!r}{meant(name, entries)}", f"known: {', '.join(entries)}, or {AUTO}")
    if entry.retired:
        alive = [candidate.name for candidate in entries.values() if not candidate.retired]
        raise Missing(f"backend {name}: {entry.retired}", f"--backend {' or '.join(alive)}")
    if find_spec("onnxruntime") is None:
        raise Missing(f"backend {name}: this needs onnxruntime, which is not installed", entry.install)
    return entry


def resolve_model(name_or_path: str, entries: Mapping[str, ModelEntry], cache: Path, seed: int = 0) -> ResolvedModel:
    """Return the file to run: a registered name's file; else the zoo's, built under `cache` on first use; or a path.

    Raise ModelError for a name or file that does not exist, StorageError if the zoo cannot write.
    """
    from aaco.runner import zoo  # imports onnx, which listing the registries does not need

    entry = entries.get(name_or_path)
    if entry and entry.path and Path(entry.path).exists():
        return _resolve_file(Path(entry.path), entry)
    recipe = (entry and entry.zoo) or zoo.recipe_name(name_or_path)
    if recipe:
        return ResolvedModel(zoo.build(recipe, cache, seed), entry or ModelEntry(name=recipe), synthetic=True)
    if entry is None and _is_path(name_or_path):
        return _resolve_file(Path(name_or_path), ModelEntry(name=Path(name_or_path).stem))
    raise _unknown_model(name_or_path, entry, entries)


def _resolve_file(path: Path, entry: ModelEntry) -> ResolvedModel:
    from aaco.runner import model_file, zoo

    if not files.is_text(str(path.resolve())):
        raise ModelError(f"{path}: a part of its path is not UTF-8, as ONNX Runtime asks", "give it another name")
    return ResolvedModel(path, entry, model_file.metadata(path).get(zoo.SYNTHETIC) == "true")


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith(".onnx") or Path(text).is_file()


def _unknown_model(name: str, entry: ModelEntry | None, entries: Mapping[str, ModelEntry]) -> ModelError:
    if entry and entry.path:
        return ModelError(f"model {name!r}: {entry.path} does not exist (from {Path.cwd()}), and the zoo has no recipe "
                          "of that name", "put the file there, or correct the entry's path; paths start at the "
                          "current folder")
    return ModelError(f"no model {name!r}{meant(name, entries)}",
                      "aaco models  # lists them; any .onnx file works by its path")


def _entry_text(value: Option) -> str:
    """Return an entry of a session's configuration as ONNX Runtime reads it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _option_name(provider: str, name: str) -> str:
    return _PREFIXES[provider] + name if name in _SWITCHES else name


def _merge_files(packaged: Path, files: Iterable[Path], section: str) -> dict[str, tuple[Any, Path]]:
    merged: dict[str, tuple[Any, Path]] = {}
    for file in [packaged, *(file for file in files if file.exists())]:
        merged |= {name: (fields, file) for name, fields in _read_entries(file, section).items()}
    return merged


def _read_entries(file: Path, section: str) -> dict[str, Any]:
    """Return the entries of one YAML file, by name. Raise UsageError."""
    fix = f"its form is: {section}: {{name: {{key: value}}}}"
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "check the file's permissions") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not valid YAML: {' '.join(str(error).split())}", fix) from error
    if document is None:
        return {}
    if not isinstance(document, dict) or set(document) != {section}:
        keys = ", ".join(map(repr, document)) if isinstance(document, dict) else type(document).__name__
        raise UsageError(f"{file}: expected one key {section!r}, found {keys}", fix)
    entries = document[section] or {}
    if not isinstance(entries, dict) or not all(isinstance(name, str) for name in entries):
        raise UsageError(f"{file}: {section} must map names to entries", fix)
    return entries


def _build_entry(kind: type[E], name: str, fields: Any, file: Path) -> E:
    if not isinstance(fields, dict):
        raise UsageError(f"{file}: {name} must map keys to values", f"keys: {', '.join(_allowed_keys(kind))}")
    try:
        return kind.model_validate({"name": name} | fields)
    except ValidationError as error:
        # A misspelt key is also a missing one: the misspelling says more.
        worst: Any = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        place = ".".join([name, *map(str, worst["loc"])])
        raise UsageError(f"{file}: {place}: {worst['msg']}", _suggest_key(kind, worst["loc"])) from error


def _suggest_key(kind: type[_Entry], location: Sequence[int | str]) -> str:
    inside = InputEntry if location[:1] == ("inputs",) and len(location) > 1 else kind
    keys = _allowed_keys(inside)
    likely = near(str(location[-1]) if location else "", keys, 1)
    unknown = likely and likely[0] != location[-1]
    return f"did you mean {likely[0]!r}?" if unknown else f"keys: {', '.join(keys)}"


def _allowed_keys(kind: type[_Entry]) -> list[str]:
    """Return the keys allowed in an entry of this kind."""
    dialects = {ModelEntry: ["input_shapes"], BackendEntry: list(_SWITCHES)}
    return [*kind.model_fields, *dialects.get(kind, [])]
