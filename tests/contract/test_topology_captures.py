"""profiler.kfd and profiler.rocminfo against the recorded files, by other means than theirs."""

import re
import tarfile

import pytest

from aaco.profiler.formats.system import kfd, rocminfo
from tests.parsed import gather, rows

pytestmark = pytest.mark.captures


@pytest.mark.parametrize(("name", "nodes", "devices", "arch", "units"), [
    ("topo-mi210-xgmi-pcie", 10, 8, "gfx90a", 104), ("topo-mi300-cpx", 65, 63, "gfx942", 38)])
def test_every_device_and_link_of_a_topology(captures, name, nodes, devices, arch, units):
    path = captures / "kfd-topology" / f"{name}.tar.gz"
    tables, facts = gather(kfd.parse(path))
    assert facts.records["node"] == nodes and len(facts.devices) == devices
    assert facts.problems == ({"topo-mi300-cpx": ("0 of 126 p2p_links are there; 65 nodes lack some, node 0 first",)
                               }.get(name, ()))
    assert {(device.arch, device.compute_units) for device in facts.devices} == {(arch, units)}
    expected = []
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            found = re.search(r"nodes/(\d+)/(io|p2p)_links/\d+/properties$", member.name)
            if found:
                said = dict(line.split() for line in tar.extractfile(member).read().decode().splitlines())
                expected.append((int(said["node_from"]), int(said["node_to"]), found[2] == "io", int(said["weight"]),
                                 int(said["max_bandwidth"]) or None))
    found = rows(tables["device_links"], "src_device", "dst_device", "direct", "weight", "max_bandwidth_mb_s")
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert facts.records["link"] == len(expected)


def test_four_mi300x(captures):
    path = captures / "rocminfo/thamada_mi300x_x4/MI300X_x4_rocminfo.txt"
    tables, facts = gather(rocminfo.parse(path))
    assert [(device.id, device.name, device.arch, device.compute_units) for device in facts.devices] == [
        (node, "AMD Instinct MI300X", "gfx942", 304) for node in (2, 3, 4, 5)]
    assert facts.problems == () and facts.records == {"agent": 6}
    assert {name: value for node, name, value in rows(tables["device_facts"], "device_id", "name", "value")
            if node == 2 and value} == {
        "simd_per_cu": 4, "shader_engines": 32, "wave_size": 64, "max_waves_per_cu": 32, "workgroup_max_size": 1024,
        "max_clock_mhz": 2100, "l1_bytes": 32 << 10, "l2_bytes": 32 << 20, "l3_bytes": 256 << 20, "lds_bytes": 64 << 10}
