"""Runs a workload in fresh processes and times it."""
