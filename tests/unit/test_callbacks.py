"""What CUPTI calls in a traced program, as compiled in the package: by its own functions, from many threads."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "native/cupti/callbacks.c"
INSIDE = ROOT / "src/aaco/profiler/cupti/inside"
ARCHITECTURES = ("x86_64", "aarch64")
lacking = [tool for tool in ("clang", "ld.lld", "make") if not shutil.which(tool)]
# Threads take buffers, write their own number and a count into each, and hand it back; another reads what came back.
STRESS = """
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include SOURCE_FILE
enum { THREADS = 4, EACH = 20000 };
static int over, refused;
static void *write_some(void *number)
{
	for (uint64_t count = 1; count <= EACH;) {
		uint8_t *buffer;
		size_t bytes, most;
		aaco_requested(&buffer, &bytes, &most);
		if (!buffer) { __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED); sched_yield(); continue; }
		for (size_t at = 0; at < 64; at++)
			if (buffer[at]) { puts("not zero"); exit(1); }
		uint64_t said[2] = {(uint64_t)number, count++};
		memcpy(buffer, said, 16);
		aaco_completed(0, 0, buffer, bytes, 16);
	}
	return 0;
}
static void *read_all(void *none)
{
	uint64_t last[THREADS + 1] = {0}, all = 0, said[2];
	while (all < THREADS * EACH) {
		size_t valid;
		uint8_t *buffer = aaco_take(&valid);
		if (!buffer) { sched_yield(); continue; }
		memcpy(said, buffer, 16);
		if (valid != 16 || said[0] > THREADS || said[1] <= last[said[0]]) { puts("lost or twice"); exit(1); }
		last[said[0]] = said[1];
		all++;
		memset(buffer, 0, valid);
		aaco_give(buffer);
	}
	return none;
}
int main(void)
{
	pthread_t threads[THREADS + 1];
	aaco_buffer_bytes = 4096;
	aaco_most = 5;
	aaco_prepare(2);
	pthread_create(&threads[0], 0, read_all, 0);
	for (long each = 1; each <= THREADS; each++) pthread_create(&threads[each], 0, write_some, (void *)each);
	for (int each = 0; each <= THREADS; each++) pthread_join(threads[each], 0);
	printf("%u held, %u made\\n", aaco_held, made);
	return 0;
}
"""


def library(architecture: str) -> Path:
    return INSIDE / f"callbacks-{architecture}.so"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_library_was_made_from_the_source_as_it_is(architecture):
    """Runs without a compiler. Mutation: change a comment of the source without scripts/blobs."""
    content = library(architecture).read_bytes()
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest().encode() in content, "run scripts/blobs"
    assert len(content) < 16_384 and str(ROOT).encode() not in content


@pytest.mark.skipif(bool(lacking), reason=f"not on PATH: {', '.join(lacking)}")
def test_building_twice_gives_the_same_and_what_is_packed(tmp_path):
    """The bytes are compared where compiler and linker are those of the packed ones.

    Mutation: flip a bit of a packed one's instructions.
    """
    for folder in ("first", "second"):
        subprocess.run(["make", "-C", SOURCE.parent, f"LIBRARIES={tmp_path / folder}"], check=True, capture_output=True)
    for architecture in ARCHITECTURES:
        one, two = ((tmp_path / folder / library(architecture).name).read_bytes() for folder in ("first", "second"))
        assert one == two
        packed = library(architecture).read_bytes()
        if _made_by(packed) == _made_by(one):
            assert one == packed


@pytest.mark.skipif(not shutil.which("gcc"), reason="not on PATH: gcc")
def test_what_threads_hand_back_is_read_once_and_buffers_go_round(tmp_path):
    """Five buffers, four threads, under the sanitizer of races. Mutations: the buffer's address stored before how much
    of it is valid; taken from the ready ones without an exchange.
    """
    (tmp_path / "stress.c").write_text(STRESS)
    program = tmp_path / "stress"
    subprocess.run(["gcc", "-O1", "-g", "-fsanitize=thread", "-pthread", f'-DSOURCE_FILE="{SOURCE}"', "-DSOURCE=none",
                    "-include", "stdlib.h", str(tmp_path / "stress.c"), "-o", str(program)], check=True)
    done = subprocess.run(["setarch", os.uname().machine, "-R", str(program)], capture_output=True, text=True,
                          timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "0 held, 5 made\n"), done.stdout + done.stderr


def test_a_buffer_that_was_promised_to_be_no_more_is_not_made():
    """In a process of its own, whose buffers they are; one that is not ours is left alone. Mutations: `<` for `<=`; any
    buffer taken for ours.
    """
    program = f"""
import ctypes
native = ctypes.CDLL({str(library(os.uname().machine))!r})
ctypes.c_uint32.in_dll(native, "aaco_most").value = 3
held = ctypes.c_uint32.in_dll(native, "aaco_held")
buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(7)
given = []
for _ in range(5):
    native.aaco_requested(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
    given.append((buffer.value, size.value, most.value))
native.aaco_completed(None, 0, ctypes.c_void_p(given[1][0]), ctypes.c_size_t(size.value or 4 << 20),
                      ctypes.c_size_t(5 << 20))
valid = ctypes.c_size_t()
native.aaco_completed(None, 0, None, ctypes.c_size_t(4 << 20), valid)
native.aaco_completed(None, 0, ctypes.c_void_p(given[0][0] + 8), ctypes.c_size_t(4 << 20), valid)  # nobody's
native.aaco_take.restype = ctypes.c_void_p
assert native.aaco_take(ctypes.byref(valid)) == given[1][0] and native.aaco_take(ctypes.byref(valid)) is None
print(len({{address for address, _, _ in given[:3]}}), given[2][1:], given[3], given[4], held.value, valid.value)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == f"3 ({4 << 20}, 0) (None, 0, 0) (None, 0, 0) 2 {4 << 20}\n"


def _made_by(content: bytes) -> list[bytes]:
    return sorted(line for line in content.split(b"\0") if b"clang version" in line or line.startswith(b"Linker:"))
