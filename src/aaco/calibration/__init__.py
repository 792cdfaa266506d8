"""Measures this machine's own ceilings."""
