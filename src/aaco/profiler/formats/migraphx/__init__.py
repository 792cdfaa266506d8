"""MIGraphX programs."""
