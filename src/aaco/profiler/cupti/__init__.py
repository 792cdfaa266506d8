"""NVIDIA's CUPTI: our own tracer, which runs inside the program (inside/, startup/), and the captures it leaves."""

from __future__ import annotations

from aaco.profiler.cupti.capture import FORMAT, parse, read, recognises

__all__ = ["FORMAT", "parse", "read", "recognises"]
