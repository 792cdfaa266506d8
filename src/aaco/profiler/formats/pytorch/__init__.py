"""PyTorch profiler traces, and Chrome traces of other tools."""
