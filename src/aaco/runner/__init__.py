"""Drives a workload and times it."""
