"""What a captured kernel launch holds, whether it is whole, and whether its addresses are free: documents, and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.core.records import as_dict
from aaco.replay import cache
from aaco.replay.capture import KernelCapture
from aaco.replay.documents import pages_of
from aaco.replay.engine import CacheMode, ReplayRequest
from aaco.replay.reserve import Reservation
from aaco.replay.run import ReplayResult
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


def replayed(result: ReplayResult, application_us: float | None = None,
             by_cache: Mapping[CacheMode, float] | None = None,
             compared: ReplayResult | None = None) -> dict[str, Any]:
    """Return the answer of `aaco replay run`."""
    agreement = cache.nearest(application_us, by_cache) if application_us and by_cache else None
    return {"schema_version": SCHEMA_VERSION, **_replay(result), "application_us": application_us,
            "median_us_by_cache": dict(by_cache or {}),
            "cache_agreement": cache.agreement_line(agreement) if agreement else None,
            "compared": _replay(compared) if compared else None}


def _replay(result: ReplayResult) -> dict[str, Any]:
    return {"kernel": result.symbol, "device": result.device, "request": _request(result.request),
            "fidelity": as_dict(result.fidelity), "median_us": result.median_us, "times_us": list(result.times_us),
            "no_time": result.no_time,
            "empty_pair_us": result.empty_pair_us, "regions": result.regions, "exact_addresses": result.exact_addresses,
            "host_regions_on_device": result.substituted, "variables": result.variables, "memory_bytes": result.bytes,
            "uses": [use.model_dump(mode="json") for use in result.uses], "processes": result.processes,
            "processes_without_addresses": result.taken}


def _request(request: ReplayRequest) -> dict[str, Any]:
    return as_dict(request) | {"tolerance": request.tolerance._asdict() if request.tolerance else None}


def replay_lines(replayed: Mapping[str, Any], raw: bool = False) -> Iterator[str]:
    """Yield the document of run as text. raw: with the time of each launch."""
    yield from _replay_lines(replayed, raw)
    for mode, time_us in replayed["median_us_by_cache"].items():
        yield f"  cache {mode}: {time_us:.2f} us"
    if replayed["cache_agreement"]:
        yield f"  {replayed['cache_agreement']}"
    if second := replayed["compared"]:
        yield from _replay_lines(second, raw)
        if None not in (replayed["median_us"], second["median_us"]):
            yield f"the second takes {second['median_us'] / replayed['median_us']:.3f} times as long"


def _replay_lines(replayed: Mapping[str, Any], raw: bool) -> Iterator[str]:
    verdict = replayed["fidelity"]
    yield format.clean(replayed["kernel"])
    yield f"  {verdict['verdict']}: {verdict['reason']}"
    yield (f"  {format.clean(replayed['device'])}: {replayed['exact_addresses']} of {replayed['regions']} regions at "
           f"their addresses, {replayed['variables']} variables of the module, {replayed['memory_bytes']:,} bytes")
    if replayed["processes"] > 1:
        yield (f"  {replayed['processes']} processes: {replayed['processes_without_addresses']} ended because an "
               "address was taken, the others because the kernel did not survive inverted memory")
    if replayed["median_us"] is None:
        yield f"  no time: {replayed['no_time']}"
        return
    times = replayed["times_us"]
    yield (f"  median {replayed['median_us']:.2f} us of {len(times)} launches, {min(times):.2f} to {max(times):.2f}; "
           f"an empty pair of events, {replayed['empty_pair_us']:.2f} us, is subtracted")
    if raw:
        yield from (f"  {time_us:.2f}" for time_us in times)
