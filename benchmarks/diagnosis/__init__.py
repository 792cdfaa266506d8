"""How right the diagnosis is, claim by claim, on real captures and our own labelled recordings.

`python -m benchmarks.diagnosis [--only PART] [--json FILE]` prints a table.
"""
