"""The bottleneck rules; importing a file registers what it declares."""
