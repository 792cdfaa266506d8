"""A proposer for column_sums of _sums.cu: JSON on stdin, a function on stdout.

Its first answer changes the signature; asked again with that reason, it brings the loop into the kernel and unrolls it.
"""

from __future__ import annotations

import json
import sys

CALL = """	if (at < columns)
		out[at] = column_sum(a, at, rows, columns);
"""
LOOP = """	if (at >= columns)
		return;
	float sum = 0.0f;
#pragma unroll 8
	for (int row = 0; row < rows; row++)
		sum += a[(size_t)row * columns + at];
	out[at] = sum;
"""


def main() -> None:
    """Answer one question."""
    asked = json.load(sys.stdin)
    source = asked["source"]
    if not asked["refused"]:
        print(source.replace("int rows,", "int rows, int more,"))
        return
    print(source.replace(CALL, LOOP))


if __name__ == "__main__":
    main()
