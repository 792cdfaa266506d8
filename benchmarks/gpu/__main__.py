"""Refuses without an NVIDIA GPU; else runs the parts, prints their claims, and keeps them with what they ran on."""

import sys

from aaco.core.errors import Missing
from benchmarks import claims, gpu
from benchmarks.gpu import _device

if __name__ == "__main__":
    try:
        about = _device.facts()
    except Missing as error:
        print(error, file=sys.stderr)
        sys.exit(int(error.exit_code))
    sys.exit(claims.main(gpu, about))
