"""Readers of capture formats, and launchers of profilers."""
