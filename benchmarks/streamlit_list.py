"""The list of sessions as a Streamlit application, the other candidate of docs/decisions/0007-dashboard.md.

`python -m benchmarks.dashboard --streamlit PYTHON` runs it in an environment that has Streamlit; nothing imports it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import streamlit


@streamlit.cache_data
def rows(root: str) -> list[dict[str, str]]:
    """Every session, newest first; read once, as our index reads it."""
    found = []
    for path in sorted(Path(root).glob("*/*/session.json"), reverse=True):
        record = json.loads(path.read_text())
        found.append({"session": record["session_id"], "started": record["created_utc"], "state": record["status"],
                      "model": record["plan"]["model"], "backend": record["plan"]["backend"], "tag": record["tag"]})
    return found


every = rows(sys.argv[1])
text = streamlit.text_input("Search")
chosen = [row for row in every if text in row["session"] or text in row["tag"]]
streamlit.dataframe(chosen)
streamlit.write(f"{len(chosen)} sessions")
