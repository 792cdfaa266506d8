"""Which devices a program on CUDA sees, by what CUDA_VISIBLE_DEVICES says."""

import pytest

from aaco.collectors.gpu.visible import OF_INSTANCE, OF_KINDS, Seen, visible

ALIKE = [Seen(number, "H200", uuid, False) for number, uuid in enumerate(("GPU-5a1c", "GPU-5b2d", "GPU-77aa"))]
MIXED = [ALIKE[0], ALIKE[1]._replace(name="T4"), ALIKE[2]]


@pytest.mark.parametrize(("said", "devices"), [
    (None, [0, 1, 2]), ("0", [0]), ("2,0", [2, 0]), (" 1 , 2", [1, 2]), ("GPU-5b", [1]), ("GPU-77aa,GPU-5a1c", [2, 0]),
    ("GPU-5", []), ("GPU-5a,GPU-9", [0]), ("0,7,1", [0]), ("-1", []), ("", []), ("1,-1,0", [1]), ("none", []),
    ("1,²", [1])])
def test_numbers_and_uuids_name_devices_until_one_names_none(said, devices):
    """Mutations: a beginning of two UUIDs taken for the first; what follows a wrong name counts; the order lost."""
    environment = {} if said is None else {"CUDA_VISIBLE_DEVICES": said}
    assert visible(ALIKE, environment) == {"devices": devices, "in_order": True}


def test_devices_of_several_kinds_have_no_known_numbers_but_by_place():
    """Mutations: CUDA's numbers believed to be the library's; UUIDs doubted, too."""
    assert visible(MIXED, {"CUDA_VISIBLE_DEVICES": "0"}) == {"why_not": OF_KINDS, "instance": False}
    assert visible(MIXED, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})["devices"] == [0]
    assert visible(MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-77,GPU-5b"}) == {"devices": [2, 1], "in_order": True}
    assert visible(MIXED, {}) == {"devices": [0, 1, 2], "in_order": False}


@pytest.mark.parametrize("said", ["MIG-1f2e", "MIG-GPU-5a1c/1/0", "0", "GPU-5a1c", None])
def test_an_instance_is_no_device(said):
    """By its name, or by that of a device that is divided. Mutation: the device is taken for it."""
    divided = [ALIKE[0]._replace(divided=True), *ALIKE[1:]]
    environment = {} if said is None else {"CUDA_VISIBLE_DEVICES": said}
    assert visible(divided, environment) == {"why_not": OF_INSTANCE, "instance": True}
    assert visible(divided, {"CUDA_VISIBLE_DEVICES": "1"})["devices"] == [1]
