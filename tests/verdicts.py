"""Verdicts for tests of what reads one."""

from __future__ import annotations

from typing import Any

from aaco.governance.verdict_document import RegressionVerdict


def verdict_with(**fields: Any) -> RegressionVerdict:
    """Return the verdict of a comparison that failed, but for these fields."""
    failed = RegressionVerdict(status="error", why="why", regression=False, severity="none", recommendation="next",
                               tool_version="0", reproduce_command="again")
    return failed.model_copy(update=fields)
