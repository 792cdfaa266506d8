"""What processes that are not ours compute on a device, where its driver tells whose work it does."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent

OWN, OTHERS = "own_sm_pct", "others_sm_pct"  # of the samples table


def others(samples: pa.Table) -> pa.Table:
    """The samples of others' share, of devices on which ours worked: who else has another device is no neighbour.

    Raises Absent where ours is not told from it: then all of it may be ours.
    """
    own = samples.filter(pc.equal(samples["name"].cast(pa.string()), OWN))
    if not own.num_rows:
        raise Absent("the driver does not tell whose work the device does")
    worked = own.filter(pc.greater(own["value"], 0))
    if not worked.num_rows:
        raise Absent("none of the processes that the driver tells of is seen to be ours: it was too short, or this "
                     "container has process numbers of its own")
    found = samples.filter(pc.equal(samples["name"].cast(pa.string()), OTHERS))
    return found.filter(pc.is_in(found["device_id"], worked["device_id"].unique()))
