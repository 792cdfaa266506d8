"""Packs a light skeleton into a blob: `python3 pack.py SKELETON SOURCE BLOB`.

A blob is zlib-compressed: one line of JSON (what the loader must know, and what it was made from), then the bytes of
the loader's data and of its instructions. src/aaco/collectors/host/bpf.py reads it.
"""

import hashlib
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path


def c_string(skeleton: str, name: str) -> bytes:
    """The bytes of the C string literal that the skeleton assigns to opts.NAME."""
    literal = re.search(rf'opts\.{name} = \(void \*\)"(.*?)";', skeleton, re.DOTALL)
    size = re.search(rf"opts\.{name}_sz = (\d+)", skeleton)
    if not literal or not size:
        sys.exit(f"no opts.{name} in the skeleton: another version of bpftool?")
    found = bytes(int(code or "0", 16) for code in re.findall(r"\\(?:x([0-9a-f]{2})|0)", literal[1]))
    if len(found) != int(size[1]):
        sys.exit(f"opts.{name}: {len(found)} bytes found, {size[1]} announced")
    return found


def version(tool: str) -> str:
    """The first line of what a tool says of its version."""
    return subprocess.run([tool, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]


def source_hash(source: Path) -> str:
    """SHA-256 over a feature's source and the headers beside it, in order of their names."""
    whole = hashlib.sha256()
    for path in (source, *sorted(source.parent.glob("*.h"))):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def pack(skeleton: str, source: Path) -> bytes:
    """The blob."""
    data, instructions = c_string(skeleton, "data"), c_string(skeleton, "insns")
    facts = {
        "name": source.name.removesuffix(".bpf.c"),
        "maps": re.findall(r"struct bpf_map_desc (\w+);", skeleton),
        "programs": re.findall(r"struct bpf_prog_desc (\w+);", skeleton),
        "data_bytes": len(data), "instruction_bytes": len(instructions),
        "source_sha256": source_hash(source), "compiler": version("clang"), "bpftool": version("bpftool"),
    }
    return zlib.compress(json.dumps(facts).encode() + b"\n" + data + instructions, 9)


if __name__ == "__main__":
    _, skeleton_path, source_path, blob_path = map(Path, sys.argv)
    Path(blob_path).write_bytes(pack(skeleton_path.read_text(), source_path))
