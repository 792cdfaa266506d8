"""The optional parts of an installation: which extra brings which module, and what to say where one is not there."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec

from aaco.core.errors import Missing

# top-level module -> the extra of pyproject.toml that installs it; a test compares the two
EXTRAS = {
    "onnxruntime": "cpu",  # or cuda, migraphx, openvino: four wheels with this one module
    "fastapi": "dashboard",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "viztracer": "dashboard",
    "httptools": "llm",
    "onnxruntime_genai": "genai",
    "tokenizers": "tokenizer",
    "typst": "pdf",
    "textual": "top",
    "opentelemetry": "otlp",
    "psycopg": "postgres",
    "ray": "ray",
    "sympy": "optimize",
    "tree_sitter": "kernels",
    "tree_sitter_cpp": "kernels",
}
NAMED = re.compile(r"aaco\[(\w+)\]")


def missing(error: ModuleNotFoundError) -> Missing | None:
    """Return the message about a missing module; None if no extra installs it: that is a defect."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    return Missing(f"this needs {module}, which is not installed", install(extra))


def install(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    It names the extra's packages: `aaco` itself may be of a folder or a file, which no index has.
    """
    from importlib import metadata  # brings in all of email, which no working command needs

    try:
        required = metadata.requires("aaco") or []
    except metadata.PackageNotFoundError:
        return f"pip install 'aaco[{extra}]'"
    packages = [package.strip() for package, _, marker in (line.partition(";") for line in required)
                if f"extra == '{extra}'" in marker.replace('"', "'")]
    return f"{add(*packages)}  # aaco[{extra}]"


def add(*packages: str) -> str:
    """Return the command that adds packages to this installation."""
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return f"{pip} {shlex.join(packages)}"


def named_and_missing(text: str) -> list[str]:
    """Return the extras that a text names, as in aaco[pdf], and of which a module is not installed."""
    lacking = {extra for module, extra in EXTRAS.items() if not find_spec(module)}
    return [extra for extra in dict.fromkeys(NAMED.findall(text)) if extra in lacking]
