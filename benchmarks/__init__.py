"""Measurements of the tool itself; each prints a table and JSON: python -m benchmarks.NAME."""

import os

# What is measured starts as an installed program does: compiled, not compiling all that it imports on each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
