"""What a captured kernel launch holds, whether it is whole, and whether its addresses are free: documents, and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.replay.capture import KernelCapture
from aaco.replay.documents import pages_of
from aaco.replay.reserve import Reservation
from aaco.replay.verify import CaptureVerification
from aaco.report import format

SCHEMA_VERSION = 1
SECRETS = ("the memory of a program may hold secrets (weights, prompts, keys): nothing is taken out of a capture, and "
           "no bundle of a session contains one")


def inspected(capture: KernelCapture) -> dict[str, Any]:
    """Return the answer of `aaco replay inspect`."""
    document, launch = capture.document, capture.launch
    return {"schema_version": SCHEMA_VERSION, "capture": str(capture.path), "format": document.schema_version,
            "tool_version": document.tool_version, "captured_from": document.captured_from.model_dump(mode="json"),
            "launch": launch.model_dump(mode="json"), "code": document.code.model_dump(mode="json"),
            "memory_bytes": sum(region.size for region in capture.regions),
            "regions": [_region(capture, number) for number in range(len(capture.regions))],
            "not_captured": [lack.model_dump(mode="json") for lack in document.not_captured],
            "measured_roles": capture.roles.model_dump(mode="json") if capture.roles else None, "notes": [SECRETS]}


def _region(capture: KernelCapture, number: int) -> dict[str, Any]:
    region = capture.regions[number]
    changed = None if region.before is None or region.after is None else len(capture.changed_pages(region))
    return {"base": region.base, "size": region.size, "role": region.role, "symbol": region.symbol,
            "pages": pages_of(region, capture.document.page_bytes), "changed_pages": changed}


def inspect_lines(inspected: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document of inspect as text."""
    launch, origin = inspected["launch"], inspected["captured_from"]
    yield format.clean(launch["demangled"] or launch["symbol"])
    yield (f"  launch {launch['number']}: grid {_dimensions(launch['grid'])} {launch['grid_unit']}, block "
           f"{_dimensions(launch['block'])}, dynamic local memory {launch['dynamic_lds_bytes']:,} bytes")
    layout = "places unknown" if launch["layout"] is None else f"{len(launch['layout'])} arguments"
    yield f"  {layout}, {len(launch['arguments']) // 2} bytes; {len(launch['attributes'])} attributes"
    yield (f"  {format.clean(origin['device'])}, {format.clean(origin['isa'])}, driver "
           f"{format.clean(origin['driver'] or 'not recorded')}; {inspected['code']['kind']} of "
           f"{inspected['code']['bytes']:,} bytes; format {inspected['format']}")
    yield f"{len(inspected['regions'])} regions, {inspected['memory_bytes']:,} bytes"
    for region in inspected["regions"]:
        changed = region["changed_pages"]
        after = "state after the launch not captured" if changed is None else (
            f"{changed} of {region['pages']} pages changed")
        symbol = f" {format.clean(region['symbol'])}" if region["symbol"] else ""
        yield f"  {region['base']:#x} {region['size']:>14,} {region['role']}{symbol}: {after}"
    for lack in inspected["not_captured"]:
        yield f"not captured: {format.clean(lack['what'])}: {format.clean(lack['why'])}"
    yield from (f"note: {note}" for note in inspected["notes"])


def _dimensions(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))


def verified(capture: KernelCapture, verification: CaptureVerification) -> dict[str, Any]:
    """Return the answer of `aaco replay verify`."""
    return {"schema_version": SCHEMA_VERSION, "capture": str(capture.path), "format": capture.document.schema_version,
            "sha256": capture.sha256, "pages": verification.pages, "digests": verification.digests,
            "whole": not verification.problems, "problems": list(verification.problems)}


def verify_lines(verified: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document of verify as text."""
    yield from map(format.clean, verified["problems"])
    if verified["whole"]:
        how = f"{verified['digests']} different" if verified["digests"] else "without digests: damage would not be seen"
        yield f"whole: {verified['pages']} pages, {how}; sha256 {verified['sha256']}"


def reserve_lines(reservations: Sequence[Reservation], granule_bytes: int) -> Iterator[str]:
    """Yield what became of each region, and a summary."""
    for made in reservations:
        yield f"{made.region.base:#x} {made.region.size} {made.outcome}"
    yield f"Regions: {len(reservations)}"
    yield f"Total bytes: {sum(made.region.size for made in reservations)}"
    yield f"Page size: {granule_bytes}"
