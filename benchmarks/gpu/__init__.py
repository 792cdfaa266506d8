"""What holds on a real GPU, claim by claim; without one it refuses in one line, with exit code 6.

`python -m benchmarks.gpu [--only PART] [--json FILE]` prints a table, and at its end how long each part took and what
it met. All is kept in benchmarks/results/gpu-DATE.json with the driver, the device and its clocks, after every part: a
run that is cut keeps what it had. A part that fails is a missed claim, and the others go on.
"""
