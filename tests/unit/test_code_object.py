"""profiler.code_object and profiler.assembly: on made files, on real ones against llvm-readelf, and on damaged ones."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from aaco.core.errors import BadCapture
from aaco.profiler.formats.code_object import assembly, code_object
from tests.contract import hostile
from tests.fakes import code_objects as fake

FIELDS = {".vgpr_count": "vgpr", ".agpr_count": "agpr", ".sgpr_count": "sgpr", ".vgpr_spill_count": "vgpr_spills",
          ".sgpr_spill_count": "sgpr_spills", ".group_segment_fixed_size": "lds_bytes",
          ".private_segment_fixed_size": "scratch_bytes", ".wavefront_size": "wave_size",
          ".max_flat_workgroup_size": "workgroup_size", ".kernarg_segment_size": "kernarg_bytes",
          ".kernarg_segment_align": "kernarg_align", ".uses_dynamic_stack": "dynamic_stack", ".symbol": "symbol"}


@pytest.fixture
def write(tmp_path):
    def file(content, name="kernel.hsaco"):
        path = tmp_path / name
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
        return path

    return file


def test_a_code_object(write):
    """Mutation: read the descriptor's registers at another place."""
    (found,) = code_object.read(write(fake.code_object()))
    assert (found.arch, found.features) == ("gfx942", ("sramecc+", "xnack-"))
    (kernel,) = found.kernels
    assert {key: getattr(kernel, name) for key, name in FIELDS.items()} == {key: fake.KERNEL[key] for key in FIELDS}
    assert [(one.name, one.offset, one.size, one.kind) for one in kernel.arguments] == [
        ("a", 0, 8, "global_buffer"), (None, 8, 4, "by_value")]
    assert kernel.descriptor == code_object.Descriptor(1024, 16, 28, 23, (44 & 0x3F) * 4 + 4)


def test_what_the_note_lacks_is_unknown(write):
    (found,) = code_object.read(write(fake.code_object(fake.metadata({".name": "k", ".vgpr_count": "many"}))))
    (kernel,) = found.kernels
    assert (kernel.name, kernel.vgpr, kernel.sgpr, kernel.arguments, kernel.descriptor) == ("k", None, None, (), None)


def test_a_bundle(write):
    """The host's part of a bundle is no code object; each device's is one."""
    parts = {"host-x86_64-unknown-linux--": b"", "hipv4-amdgcn-amd-amdhsa--gfx90a": fake.code_object(
        fake.metadata(target="amdgcn-amd-amdhsa--gfx90a")), "hipv4-amdgcn-amd-amdhsa--gfx942": fake.code_object()}
    found = code_object.read(write(fake.bundle(parts)))
    assert [one.arch for one in found] == ["gfx90a", "gfx942"]


@pytest.mark.parametrize(("content", "said"), [
    (b"CCOB\x02\x00" + bytes(64), "compressed"), (fake.bundle({"hip-gfx942": b"CCOB" + bytes(64)}), "compressed"),
    (fake.code_object(machine=62), "machine 62"), (b"\x7fELF\x01\x01" + bytes(80), "64-bit"), (b"\x7fELF", "cut short"),
    (fake.code_object(raw=b"\xc1"), "not msgpack"), (fake.code_object(raw=b"\x91" * 100_000), "not msgpack"),
    (fake.code_object([1]), "no map"), (fake.code_object({"amdhsa.kernels": 3}), "no list of kernels"),
    (b"", "cut short")])
def test_what_is_no_code_object_is_refused_with_the_reason(write, content, said):
    with pytest.raises(BadCapture, match=said) as caught:
        code_object.read(write(content))
    assert caught.value.fix


@pytest.mark.parametrize("content", [fake.code_object(), fake.bundle({"a-gfx942": fake.code_object()}),
                                     fake.TEXT.encode()], ids=["object", "bundle", "text"])
def test_damaged_it_is_read_or_refused(write, content):
    """Cut and flipped at 300 seeded places: only BadCapture may come out. Mutation: follow an offset unchecked."""
    read = assembly.read if content.startswith(b"\t") else code_object.read
    for seed in range(150):
        for harm in (hostile.cut, hostile.flipped):
            path = write(harm(content, seed))
            try:
                read(path)
            except BadCapture as error:
                assert path.name in error.what and len(error.what) < 600
    chance = random.Random(1)
    for _ in range(100):  # 32-bit fields to extremes
        at = chance.randrange(0, len(content) - 4)
        extreme = chance.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80"])
        try:
            read(write(content[:at] + extreme + content[at + 4:]))
        except BadCapture:
            continue


def test_assembler_text(write):
    """Mutation: count a remark, behind ; or on a line of its own, as an instruction."""
    path = write(fake.TEXT, "kernel.amdgcn")
    assert assembly.recognises(path) and not code_object.recognises(path)
    found, texts = assembly.read(path)
    assert (found.arch, found.kernels[0].vgpr) == ("gfx942", 178)
    assert texts["axpy"].kinds == {"smem": 1, "waitcnt": 1, "mfma": 1, "vmem": 1, "lds": 1, "branch": 1, "other": 1}
    assert (texts["axpy"].occupancy, texts["axpy"].code_bytes) == (2, 40)
    assert texts["axpy"].mnemonics["v_mfma_f32_16x16x16_f16"] == 1


@pytest.mark.parametrize("text", [
    fake.TEXT.replace("  - .name: axpy", "  - &a .name: axpy\n  - *a"), fake.TEXT.replace("---\n", "--- [\n"),
    fake.TEXT.partition("\t.end_amdgpu")[0], fake.TEXT.replace("amdhsa.kernels:", "other:"),
    fake.TEXT.replace("---\n", "--- " + "[" * 5000 + "\n")])
def test_bad_metadata_is_refused(write, text):
    with pytest.raises(BadCapture):
        assembly.read(write(text, "kernel.amdgcn"))


READELF = shutil.which("llvm-readelf") or shutil.which("llvm-readelf-14")


def compiled(captures: Path, pattern: str) -> list[Path]:
    return sorted((captures / "compiled_here").glob(pattern))


@pytest.mark.captures
@pytest.mark.skipif(READELF is None, reason="no llvm-readelf on this machine")
def test_against_llvm_readelf(captures):
    """Every field of every kernel's note, as LLVM prints it; and each symbol of 64 bytes has a descriptor."""
    paths = compiled(captures, "**/*.hsaco") + compiled(captures, "*.co")
    assert paths
    for path in paths:
        printed = subprocess.run([READELF, "-n", str(path)], capture_output=True, text=True, check=True).stdout
        said = yaml.safe_load(printed.partition("---\n")[2].partition("\n...")[0])
        (found,) = code_object.read(path)
        assert found.target == said["amdhsa.target"]
        assert [kernel.name for kernel in found.kernels] == [one[".name"] for one in said["amdhsa.kernels"]]
        for kernel, one in zip(found.kernels, said["amdhsa.kernels"], strict=True):
            assert {key: getattr(kernel, name) for key, name in FIELDS.items()} == {key: one.get(key) for key in FIELDS}
            assert [(arg.offset, arg.size, arg.kind, arg.address_space) for arg in kernel.arguments] == [
                (arg[".offset"], arg[".size"], arg[".value_kind"], arg.get(".address_space")) for arg in one[".args"]]
            assert kernel.descriptor and kernel.descriptor.kernarg_bytes == kernel.kernarg_bytes
            assert kernel.descriptor.scratch_bytes == kernel.scratch_bytes
            granule = {"gfx908": 4, "gfx90a": 8, "gfx942": 8, "gfx950": 8, "gfx1100": 8, "gfx1201": 8}[found.arch]
            assert kernel.descriptor.vgpr_granules == max(1, -(-kernel.vgpr // granule))


@pytest.mark.captures
def test_the_descriptor_places_accumulation_registers_as_the_assembler_was_told(captures):
    for path in compiled(captures, "**/*.amdgcn"):
        (found,) = code_object.read(path.with_suffix(".hsaco"))
        told = re.search(r"\.amdhsa_accum_offset (\d+)", path.read_text())
        assert found.kernels[0].descriptor.accum_offset == (int(told[1]) if told else None)


@pytest.mark.captures
def test_text_and_object_say_the_same(captures):
    """But for the scalar registers of the object, which count those that the hardware reserves."""
    paths = compiled(captures, "**/*.amdgcn")
    assert paths
    for path in paths:
        text, functions = assembly.read(path)
        (built,) = code_object.read(path.with_suffix(".hsaco"))
        for one, other in zip(text.kernels, built.kernels, strict=True):
            assert (one.name, one.vgpr, one.agpr, one.vgpr_spills, one.arguments) == (
                other.name, other.vgpr, other.agpr, other.vgpr_spills, other.arguments)
        lines = path.read_text().split("\n.Lfunc_end0:")[0].split("\n")
        written = [line for line in lines if re.match(r"\t[a-z]+_", line)]
        assert sum(functions[text.kernels[0].name].kinds.values()) == len(written)
        mfma = sum(line.startswith(("\tv_mfma", "\tv_wmma")) for line in written)
        assert functions[text.kernels[0].name].kinds["mfma"] == mfma
