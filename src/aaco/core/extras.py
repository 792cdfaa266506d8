"""The optional parts of an installation: which extra brings which module, and what to say where one is not there."""

from __future__ import annotations

from aaco.core.errors import Missing

# top-level module -> the extra of pyproject.toml that installs it; a test compares the two
EXTRAS = {
    "onnxruntime": "cpu",  # or cuda, migraphx, openvino: four wheels with this one module
    "fastapi": "dashboard",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "viztracer": "dashboard",
    "typst": "pdf",
    "textual": "top",
    "opentelemetry": "otlp",
}


def missing(error: ModuleNotFoundError) -> Missing | None:
    """Return the message about a missing module; None if no extra installs it: that is a defect."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    return Missing(f"this needs {module}, which is not installed", f"pip install 'aaco[{extra}]'")
