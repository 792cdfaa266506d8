"""Baselines and the history of measurements."""
