"""profiler.kfd on small topologies, unpacked and packed, sound and hostile."""

import gzip
import io
import shutil
import tarfile

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import CapturedDevice, Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.system import kfd
from tests.parsed import gather, rows

GPU = {"cpu_cores_count": 0, "simd_count": 152, "simd_per_cu": 4, "io_links_count": 1, "lds_size_in_kb": 64,
       "gfx_target_version": 90402, "wave_front_size": 64, "num_xcc": 1}
CPU = {"cpu_cores_count": 96, "simd_count": 0}
LINK = {"type": 11, "node_from": 1, "node_to": 0, "weight": 15, "min_bandwidth": 0, "max_bandwidth": 50000}
FILES = {"nodes/0/properties": CPU, "nodes/1/properties": GPU, "nodes/1/io_links/0/properties": LINK,
         "nodes/1/mem_banks/0/properties": {"heap_type": 1, "size_in_bytes": 1 << 34},
         "nodes/1/mem_banks/1/properties": {"heap_type": 0, "size_in_bytes": 7}, "generation_id": {"x": 1}}


def lines(pairs):
    return "".join(f"{name} {value}\n" for name, value in pairs.items()).encode()


def tree(folder, files=FILES):
    for name, pairs in files.items():
        path = folder / "topology" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines(pairs))
    return folder / "topology/nodes/0/properties"


def tarball(path, files=FILES, mode="w:gz", extra=()):
    with tarfile.open(path, mode) as tar:
        for name, pairs in files.items():
            add(tar, f"topology/{name}", lines(pairs))
        for info, content in extra:
            tar.addfile(info, io.BytesIO(content))
    return path


def add(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("form", ["tree", "w:gz", "w"])
def test_devices_facts_and_links(tmp_path, form):
    """Mutation: take heap type 0, the system's memory, for the device's own."""
    path = tree(tmp_path) if form == "tree" else tarball(tmp_path / "t.tar", mode=form)
    assert registry.recognise(path) is kfd
    tables, facts = gather(kfd.parse(path))
    assert facts.devices == (CapturedDevice(1, arch="gfx942", compute_units=38, vram_bytes=1 << 34),)
    assert facts.records == {"node": 2, "link": 1} and facts.left_out == {kfd.PROCESSORS: Subtotal(1, 0)}
    assert facts.problems == ()
    assert rows(tables["device_links"], "src_device", "dst_device", "kind", "direct", "weight", "min_bandwidth_mb_s",
                "max_bandwidth_mb_s") == [(1, 0, "xgmi", True, 15, None, 50000)]
    assert rows(tables["device_facts"], "device_id", "name", "value") == [
        (1, "simd_per_cu", 4.0), (1, "lds_bytes", 65536.0), (1, "wave_size", 64.0), (1, "xcc", 1.0)]


def test_only_the_first_node_stands_for_an_unpacked_topology(tmp_path):
    first = tree(tmp_path)
    other = tmp_path / "topology/nodes/1/properties"
    assert not kfd.recognises(other)
    assert set(kfd.members(first)) == {path for path in (tmp_path / "topology/nodes").rglob("*") if path.is_file()}
    lonely = tmp_path / "properties"
    lonely.write_bytes(lines(CPU))
    assert not kfd.recognises(lonely) and kfd.members(lonely) == (lonely,)


def test_a_link_that_is_not_there_is_a_problem(tmp_path):
    files = {name: pairs for name, pairs in FILES.items() if "io_links" not in name}
    assert gather(kfd.parse(tarball(tmp_path / "t.tgz", files)))[1].problems == (
        "0 of 1 io_links are there; 1 nodes lack some, node 1 first",)


def test_what_is_no_number_is_a_problem(tmp_path):
    path = tree(tmp_path)
    (tmp_path / "topology/nodes/1/mem_banks/0/properties").write_text("heap_type one\n")
    _, facts = gather(kfd.parse(path))
    assert facts.devices[0].vram_bytes is None
    assert [problem.split(": ")[1] for problem in facts.problems] == ["not properties and their numbers"]


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def test_a_hostile_tarball_reaches_nothing_outside_itself(tmp_path):
    """Mutation: unpack it. Links, devices and paths upward are passed over; nothing is written."""
    secret = tmp_path / "secret"
    secret.write_bytes(lines(GPU))
    up = tarfile.TarInfo("../../nodes/7/properties")
    up.size = len(lines(GPU))
    path = tarball(tmp_path / "t.tgz", extra=[
        link("topology/nodes/5/properties", str(secret)),
        link("topology/nodes/6/properties", str(secret), tarfile.LNKTYPE),
        link("topology/nodes/8/properties", "", tarfile.FIFOTYPE), link("/etc/nodes/9/properties", "/etc/passwd"),
        (up, lines(GPU))])
    before = sorted(tmp_path.rglob("*"))
    _, facts = gather(kfd.parse(path))
    assert [device.id for device in facts.devices] == [1, 7]  # the path upward is a name and no more
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_cut_short(tmp_path, part):
    path = tarball(tmp_path / "t.tgz")
    content = path.read_bytes()
    path.write_bytes(content[:int(part * len(content))])
    with pytest.raises(BadCapture, match=r"t\.tgz"):
        list(kfd.parse(path))


def test_cut_between_two_files(tmp_path):
    """Mutation: leave out the look at the last block, and the tarball reads as a whole one with less in it."""
    path = tarball(tmp_path / "t.tar", mode="w")
    path.write_bytes(path.read_bytes()[:4 * 512])  # two files, a header and a block of content each
    with pytest.raises(BadCapture, match="cut short"):
        list(kfd.parse(path))


def test_a_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.tgz"
    with tarfile.open(path, "w:gz") as tar:
        add(tar, "topology/nodes/0/properties", lines(CPU))
        add(tar, "topology/nodes/1/properties", b"\0" * (kfd.MOST_BYTES + 1))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(BadCapture, match="over 128 MiB unpacked"):
        list(kfd.parse(path))


def test_more_files_than_any_topology_has(tmp_path, monkeypatch):
    monkeypatch.setattr(kfd, "MOST_FILES", 3)
    for path in (tarball(tmp_path / "t.tgz"), tree(tmp_path)):
        with pytest.raises(BadCapture, match="over 3 files"):
            list(kfd.parse(path))


def test_another_tarball_is_no_topology(tmp_path):
    path = tarball(tmp_path / "t.tgz", {"a/b": {"x": 1}})
    assert not kfd.recognises(path)
    with pytest.raises(BadCapture, match="no node"):
        list(kfd.parse(path))


def test_zipped_text_is_no_tarball(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b"{}" * 1000))
    assert not kfd.recognises(path)
    shutil.copy(path, tmp_path / "t.tgz")
    with pytest.raises(BadCapture, match=r"t\.tgz: not a tarball"):
        list(kfd.parse(tmp_path / "t.tgz"))
