"""Measurements of the tool itself; each prints a table and JSON: python -m benchmarks.NAME."""
