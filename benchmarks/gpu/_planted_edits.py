"""Edits of the kernels of _optimize.cu that a search must refuse, and some that change the code and not the speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from benchmarks.gpu._optimize_program import SOURCE, Shape, numbers

END = "out[at] = value;"


class PlantedEdit(NamedTuple):
    """An edit of a kernel. reasons: those that refuse it."""

    name: str
    text: str
    reasons: frozenset[str]


def kernel_text(shape: Shape) -> str:
    """Return the source with one kernel."""
    text = SOURCE.read_text()
    begin = text.index(f'extern "C" __global__ void {shape.kernel}(')
    text = text[begin:text.index("\n}\n", begin) + 3]
    return text.replace("\tfor (", f"#pragma {shape.pragma}\n\tfor (") if shape.pragma else text


def edited(shape: Shape, end: str, begin: str = "", outside: str = "") -> str:
    """Return the kernel with other text in place of its last line, after its first and before all."""
    text = kernel_text(shape).replace(END, end)
    return outside + text.replace("\tfloat value = 0.0f;\n", f"\tfloat value = 0.0f;\n{begin}\n", 1)


WRONG = frozenset({"wrong_on_capture", "wrong_on_inputs", "not_repeatable", "wrong_when_timed"})


def wrong(shape: Shape) -> Iterator[PlantedEdit]:
    """Yield edits that compute something else, access what is not theirs, or do not work every time."""
    first = f"__float_as_uint(a[0]) == 0x{numbers(shape.inputs)[:1].view('<u4')[0]:x}u"
    last = f"at == {shape.n - 1}"

    def planted(name: str, reasons: Iterable[str], end: str, begin: str = "", outside: str = "") -> PlantedEdit:
        return PlantedEdit(name, edited(shape, end, begin, outside), frozenset(reasons))

    capture, bounds = {"wrong_on_capture"}, {"out_of_bounds"}
    written = bounds | capture  # next to the captured output may lie the captured input
    yield planted("all but the last", capture, f"if (!({last})) {END}")
    yield planted("every other one", capture, f"if (at & 1) {END}")
    yield planted("another one's result", capture, f"out[{last} ? 0 : at] = value;")
    yield planted("nothing", capture, "", "\tif (n > 0) return;")
    yield planted("stale where there is a number", capture, "if (isnan(out[at])) out[at] = value;")
    yield planted("NaN for a number", capture, "out[at] = at == 7 ? __int_as_float(0x7fc00000) : value;")
    yield planted("infinity for a number", capture, "out[at] = at == 7 ? __int_as_float(0x7f800000) : value;")
    yield planted("writes after the end", written, f"{END} if ({last}) out[n] = value;")
    yield planted("writes before the begin", written, f"{END} if (at == 0) out[-1] = value;")
    yield planted("reads after the end", bounds,
                  f"{END} if ({last} && a[{shape.inputs}] == 12345.678f) out[0] = 1.0f;")
    yield planted("reads before the begin", bounds, f"{END} if (at == 0 && a[-1] == 12345.678f) out[0] = 1.0f;")
    yield planted("right on the captured inputs only", {"wrong_on_inputs"},
                  f"out[at] = {first} ? value : value + 1.0f;")
    yield planted("less exact", {"less_exact", "wrong_on_capture"}, "out[at] = value * 1.000004f;")
    yield planted("rounded to fewer bits", {"less_exact", "wrong_on_capture"},
                  "out[at] = __uint_as_float(__float_as_uint(value) & 0xffffffc0u);")
    yield planted("kept from the first run", {"wrong_on_inputs"},
                  f"{END} kept[at] = value; made[at] = 1;",
                  "\tif (made[at]) { out[at] = kept[at]; return; }",
                  f"__device__ float kept[{shape.n}]; __device__ unsigned char made[{shape.n}];\n")
    yield planted("leaves out work after some runs", {"wrong_when_timed", "not_repeatable"},
                  f"{END} if (at == 0) runs++;", "\tif (runs > 14 && at % 64 == 3) return;",
                  "__device__ unsigned runs;\n")
    yield planted("a race", WRONG, "out[at] = value + (atomicAdd(&turn, 1u) % 4096u == 5u ? 1.0f : 0.0f);", "",
                  "__device__ unsigned turn;\n")
    yield planted("a race that seldom shows", WRONG,
                  f"{END} if (at == 0 && ++turn % 7u == 0u) out[5] = 1.0f;", "", "__device__ unsigned turn;\n")
    yield planted("changes its input", capture, f"{END} if (at == 5) ((float *)a)[3] = 9.0f;")
    yield planted("traps", {"fails"}, f"{END} if ({last}) asm volatile(\"trap;\");")


def equal_speed(shape: Shape, count: int) -> Iterator[PlantedEdit]:
    """Yield edits that make another code object and take no other time: a branch that is never taken."""
    for number in range(count):
        end = f"{END} if (n == -{number + 2}) out[0] = {number}.0f;"
        yield PlantedEdit(f"never taken {number}", edited(shape, end), frozenset())


def slowed(shape: Shape, percent: float) -> str:
    """Return the kernel of a chain with so much more work of the same kind, which nothing depends on."""
    more = round(shape.k * percent / 100)
    extra = f"""
	float wasted = a[at] + 1.0f;
	for (int i = 0; i < {more}; i++)
		wasted = wasted * 0.999f + 0.25f;
	if (wasted == -12345.678f) value = wasted;
	{END}"""
    return kernel_text(shape).replace("\t" + END, extra)
