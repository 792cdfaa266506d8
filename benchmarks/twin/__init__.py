"""How right the digital twin is: batches, nodes and kernels that it was not shown.

`python -m benchmarks.twin [--only PART] [--json FILE]` prints a table; `python -m benchmarks.twin._record FILE` records
sweeps on this machine, whose file AACO_TWIN_SWEEPS names in place of the one that is kept.
"""
