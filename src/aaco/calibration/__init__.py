"""Measures the ceilings of this machine: bandwidth, arithmetic, launches."""
