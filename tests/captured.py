"""Sessions from our own recordings under tests/captures: raw evidence as a run left it, nothing derived yet."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from aaco.core import clocks
from aaco.core.plan import Plan
from aaco.core.records import as_dict
from aaco.core.session import Session
from aaco.tracelake import layout

CAPTURES = Path(__file__).with_name("captures")


def session(capture: str, root: Path) -> Session:
    """A session under `root` with a copy of the capture's files, graphs unzipped."""
    folder = CAPTURES / capture
    runtime = json.loads((folder / layout.ORT_CONFIG).read_text())
    plan = Plan(model=folder.name, batch=1, backend=runtime["backend"],
                profile_iterations=runtime["profile"]["iterations"])
    made = Session.create(root, plan.model_dump(), "", "0")
    moment = folder / "clocks.json"  # of the machine that recorded it, where captures of several clocks are joined
    made.amend(clocks=json.loads(moment.read_text()) if moment.is_file() else as_dict(clocks.snapshot()),
               backend_asked=runtime["provider"], backend_ran=runtime["profile"]["providers"][0])
    shutil.copytree(folder, made.folder, dirs_exist_ok=True)
    for zipped in (*made.folder.glob("model/*.onnx.gz"), *made.folder.glob("profiler/raw/cupti-*/*.gz")):
        zipped.with_suffix("").write_bytes(gzip.decompress(zipped.read_bytes()))
        zipped.unlink()
    return made


def nodes_of(capture: str) -> list[dict[str, Any]]:
    """The node events of the capture's profile, as ONNX Runtime wrote them."""
    events = json.loads(gzip.decompress((CAPTURES / capture / layout.ORT_PROFILE).read_bytes()))
    return [event for event in events if event["name"].endswith("_kernel_time")]
