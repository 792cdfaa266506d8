"""Tests that run in the guest of scripts/test-qemu and nowhere else: they load modules and rearrange control groups."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("AACO_GUEST"):
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="runs in a virtual machine: ./scripts/test-qemu"))


def busybox(*command: str | Path) -> str:
    """What one of busybox's tools prints; modprobe, insmod and rmmod may be on this machine in no other way."""
    return subprocess.run(["busybox", *command], check=True, text=True, stdout=subprocess.PIPE).stdout
