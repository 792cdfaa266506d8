"""Matrix products and their tiles as rows: which lose most to tiles that hang over the edge and waves half empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.kernels.product_tiles import OTHERWISE, PERSISTENT, alike, losses
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

TITLE = "Tiles of matrix products"
TOP = 5


@finding_view("products", "matrix products with the tiles that their kernels' names say", place=6, title=TITLE)
def rows(document: Mapping[str, Any], top: int = TOP) -> Iterator[Row]:
    """Yield the check, the loss, and a row for each of the first products."""
    if not (products := document.get("products")):
        return
    agreed = sum(one["agreement"] != OTHERWISE for one in products)
    yield Row("Launch check", f"of {format.plural(len(products), 'product')} {agreed:,} launched as many "
              "workgroups as there are tiles, or as run at once")
    yield Row("Quantisation loss", f"{format.percent(losses(products))} of the workgroup slots of products, by time")
    for one in alike(products)[:top]:
        yield Row(format.duration(one["device_ns"]), said(one))


def said(one: Mapping[str, Any]) -> str:
    """One product in a line."""
    batch = f"{one['batch']:,} x " if one["batch"] > 1 else ""
    tile = "x".join(map(str, one["tile_of_result"]))
    shared = f", each shared by {one['split_count']}" if one["split_count"] > 1 else ""
    how = f" ({one['agreement']})" if one["agreement"] in (PERSISTENT, OTHERWISE) else ""
    return (f"{batch}({one['rows']:,}, {one['columns']:,}, {one['depth']:,}) in tiles of {tile}{shared}: "
            f"{one['tiles']:,} on {one['units']:,} units, {format.plural(one['waves'], 'wave')}{how}; useful: tiles "
            f"{format.percent(one['tile_efficiency'])}, waves {format.percent(one['wave_efficiency'])}")
