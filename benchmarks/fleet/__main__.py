"""Runs the parts and prints their claims."""

import sys

from benchmarks import claims, fleet

if __name__ == "__main__":
    sys.exit(claims.main(fleet))
