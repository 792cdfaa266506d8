"""What holds on a real GPU, claim by claim; without one it refuses in one line, with exit code 6.

`python -m benchmarks.gpu [--only PART] [--json FILE]` prints a table, and keeps it in
benchmarks/results/gpu-DATE.json with the driver, the device and its clocks.
"""
