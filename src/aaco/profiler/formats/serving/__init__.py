"""Results of benchmarks of serving engines, and the spans of their requests."""
