"""Read by every Python program that has this folder on its PYTHONPATH: those have the libraries beside FAKE_ROCM."""

import os
from pathlib import Path

import engine

if folder := os.environ.get("FAKE_ROCM"):
    engine.install(Path(folder))
