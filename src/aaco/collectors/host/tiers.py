"""The ways to record the operating system, the best one first; ladder.py says which of them a host allows."""

TIERS = {"T3": "BPF", "GPU": "GPU driver events", "T2": "perf events", "T1": "/proc samples"}
