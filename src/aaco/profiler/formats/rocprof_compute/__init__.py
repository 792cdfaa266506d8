"""Workload folders of rocprof-compute."""
