"""What `aaco try` is worth: what it must not keep, what it must find, and what a kill leaves.

    python -m benchmarks.try_advice [--only search] [--quick] [--json FILE]

`search` takes seconds; `planted`, `live`, `zoo` and `killed` run real searches, up to an hour each on two cores.
"""
