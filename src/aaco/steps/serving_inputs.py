"""What a user passes beside the traces of a serving engine: reference traces, and the shape of the model."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from aaco.analytics.serving.config_fields import TRY
from aaco.analytics.serving.model_config import read_config
from aaco.analytics.serving.served_model import ServedModel
from aaco.core import documents
from aaco.core.documents import encode
from aaco.core.errors import UsageError
from aaco.core.session import Session
from aaco.tracelake import layout

CONFIG = "config.json"


class ServingInputs(Struct, frozen=True):
    """captures: traces of the capture of device graphs. eager: traces of the same step without graphs; files, or
    folders of them. model_config: a config.json, or the folder that holds it. ranks: of tensor parallelism."""

    captures: tuple[Path, ...] = ()
    eager: tuple[Path, ...] = ()
    model_config: Path | None = None
    ranks: int | None = None


NO_INPUTS = ServingInputs()


def read_model(inputs: ServingInputs) -> ServedModel | None:
    """Return the model that the inputs describe, None if they do not. Raise UsageError."""
    path = inputs.model_config
    if path is None:
        if inputs.ranks is not None:
            raise UsageError("--tensor-parallel splits a model, and none is described", f"--model-config {CONFIG}")
        return None
    file = path / CONFIG if path.is_dir() else path
    content = documents.load_object(file, f"model's {CONFIG}")
    shape = read_config(content)
    if (shape.layers, shape.hidden, shape.heads) == (None, None, None):
        raise UsageError(f"{file}: it describes no model: neither its layers, nor its hidden size, nor its heads", TRY)
    return ServedModel(file.name, inputs.ranks, shape)


def keep_model(session: Session, model: ServedModel | None) -> None:
    """Write what the model is into the session. Raise StorageError."""
    if model is not None:
        session.write_json(layout.SERVED_MODEL, encode(model))
