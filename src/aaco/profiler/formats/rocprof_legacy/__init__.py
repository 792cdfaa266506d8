"""Captures of rocprof v1 and v2, roctracer and RPD."""
