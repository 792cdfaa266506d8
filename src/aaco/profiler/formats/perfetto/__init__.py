"""Perfetto traces, as rocprofv3 writes them."""
