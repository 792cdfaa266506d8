"""How right verdicts and their causes are, claim by claim: false alarms, power, calibration, on recorded and made data.

`python -m benchmarks.governance [--only PART] [--json FILE]` prints a table; everything random is seeded.
"""
