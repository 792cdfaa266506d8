"""Runs the parts and prints their claims."""

import sys

from benchmarks import claims, llm

if __name__ == "__main__":
    sys.exit(claims.main(llm))
