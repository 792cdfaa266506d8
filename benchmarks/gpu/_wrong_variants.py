"""Planted proposals: texts of kernels that must be refused, each with the reasons that may refuse it.

Twelve kernels of native/testbeds and _kernels.cu, each in every wrong way. What the text shows is refused by the source
model, without a GPU (tests/unit/test_wrong_variants.py); the others compile, and a replay must refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TESTBEDS = Path(__file__).parents[2] / "native/testbeds"
KERNELS = Path(__file__).with_name("_kernels.cu")
TEXT, COMPILER, DEVICE = "text", "compiler", "device"  # what refuses a proposal at the earliest


@dataclass(frozen=True)
class PlantedKernel:
    """A kernel, and its one statement `place = value;` that leaves a result.

    place: name[index]. read: a pointer that it reads. size: a parameter that the shape decides; empty if none is.
    number: whether the result is a floating-point number. copies: whether it is one of the inputs, unchanged.
    """

    path: Path
    name: str
    statement: str
    out: str
    index: str
    value: str
    read: str
    size: str
    number: bool = True
    copies: bool = False

    @property
    def text(self) -> str:
        """The source file."""
        return self.path.read_text()

    @property
    def place(self) -> str:
        """What the statement assigns."""
        return f"{self.out}[{self.index}]"


@dataclass(frozen=True)
class WrongVariant:
    """A proposal that must be refused. stage: TEXT, COMPILER or DEVICE; reasons: those that may refuse it."""

    kernel: PlantedKernel
    kind: str
    name: str
    text: bytes
    stage: str
    reasons: frozenset[str]


def _testbed(name: str, out: str, index: str, value: str, read: str, size: str, **how: bool) -> PlantedKernel:
    statement = f"{out}[{index}] = {value};"
    return PlantedKernel(TESTBEDS / f"{name}.hip.cpp", name, statement, out, index, value, read, size, **how)


def _own(name: str, statement: str, out: str, index: str, value: str, read: str, size: str, **how: bool
         ) -> PlantedKernel:
    return PlantedKernel(KERNELS, name, statement, out, index, value, read, size, **how)


ROW = "(size_t)blockIdx.x * width + i"
PLANTED = (
    _testbed("attention", "out", ROW, "weighted / total", "query", "width"),
    _testbed("chase", "out", "at", "total", "first", "count"),
    _testbed("counter", "out", "(size_t)mine * THREADS + threadIdx.x", "2 * in[(size_t)mine * THREADS + threadIdx.x]",
             "in", "tiles"),
    _testbed("gather", "out", ROW, "row[i]", "table", "width", copies=True),
    _testbed("in_place", "weights", "at", "weights[at] * (1 - rate) - rate * gradient[at]", "gradient", "count"),
    _testbed("matmul", "c", "at", "total", "a", "k"),
    _testbed("reduction", "out", "blockIdx.x", "total", "in", "width"),
    _testbed("softmax", "out", ROW, "exponential(row[i] - most) / total", "in", "width"),
    _own("chase", "out[threadIdx.x] = sum;", "out", "threadIdx.x", "sum", "begin", "length", number=False),
    _own("counter", "out[at] = at * 3u + turn * (unsigned)(2.0f * scale);", "out", "at",
         "at * 3u + turn * (unsigned)(2.0f * scale)", "memory", "n", number=False),
    _own("accumulate", "memory[at] += scale;", "memory", "at", "memory[at] + scale", "memory", "n"),
    _own("scaled", "out[at] = scale * memory[at];", "out", "at", "scale * memory[at]", "memory", "n"),
)
CAPTURE = frozenset({"wrong_on_capture"})
BOUNDS = frozenset({"out_of_bounds", "fails"})
SELDOM = frozenset({"wrong_on_capture", "wrong_on_inputs", "not_repeatable", "wrong_when_timed",
                    "baseline_not_repeatable"})
SHAPES = frozenset({"wrong_on_other_shape"})


def variants(captured: Mapping[str, int] | None = None) -> Iterator[WrongVariant]:
    """Yield every wrong variant of every kernel. captured: the value that each kernel's `size` had in the capture, by
    the kernel's name; kernels without one have no variants that are right on the captured shape only.
    """
    for kernel in PLANTED:
        yield from of_text(kernel)
        yield from of_device(kernel)
        if (size := (captured or {}).get(kernel.name)) is not None:
            yield from of_shape(kernel, size)


def of_device(kernel: PlantedKernel) -> Iterator[WrongVariant]:
    """Yield variants that compile and pass for the kernel by their text."""
    place, value, index = kernel.place, kernel.value, f"(unsigned long long)({kernel.index})"
    right = f"{place} = {value};"

    def planted(kind: str, name: str, statement: str, reasons: frozenset[str] = CAPTURE, stage: str = DEVICE
                ) -> WrongVariant:
        return WrongVariant(kernel, kind, name, _with_statement(kernel, statement), stage, reasons)

    yield planted("edges", "all but the first", f"if ({index} != 0) {right}")
    yield planted("edges", "all but the sixth", f"if ({index} != 5) {right}")
    yield planted("edges", "the second half of each 64", f"if ({index} % 64 < 32) {right}")
    yield planted("stale", "writes nothing", ";")
    yield planted("stale", "every other one", f"if ({index} & 1) {right}")
    yield planted("stale", "adds to what was there", f"{place} += {value};")
    yield planted("race", "two threads for one place", f"{kernel.out}[({kernel.index}) & ~1ull] = {value};",
                  CAPTURE | {"not_repeatable"})
    yield planted("race", "by the clock", f"{place} = {value} + (clock64() & 64 ? 1 : 0);", SELDOM)
    yield planted("out of bounds", "one place further", f"{kernel.out}[({kernel.index}) + 1] = {value};",
                  BOUNDS | CAPTURE | {"not_repeatable"})
    yield planted("out of bounds", "also before the first",
                  f"{right} if ({index} == 0) ((volatile int *){kernel.out})[-1] = 1;", BOUNDS | CAPTURE)
    yield planted("out of bounds", "reads before the first",
                  f"{right} if (((const volatile int *){kernel.read})[-1] == 0x7fedcba9) {place} = 0;", BOUNDS)
    yield planted("memoised", "results of the first run",
                  f"static bool made[4096]; static float kept[4096]; unsigned slot = {index} % 4096; "
                  f"if (made[slot]) {place} = kept[slot]; else {{ {right} kept[slot] = {place}; made[slot] = true; }}",
                  SELDOM | {"wrong_on_other_shape"})
    yield planted("skips", "after some runs",
                  f"static unsigned runs; if ({index} == 0) runs++; if (runs < 15 || {index} % 64 != 0) {right}",
                  SELDOM)
    yield planted("skips", "where nothing looks poisoned",
                  f"if (!({place} > -1e30f && {place} < 1e30f) || {place} == 0) {right}", CAPTURE | SELDOM)
    yield planted("less exact", "a part in a million", f"{place} = ({value}) * 1.000001f;",
                  CAPTURE | {"less_exact"})
    if kernel.number:
        yield planted("less exact", "16 bits", f"{place} = __uint_as_float(__float_as_uint({value}) & 0xffff0000u);",
                      CAPTURE | {"less_exact"})
        yield planted("NaN", "at the eighth", f"{place} = {index} == 7 ? __uint_as_float(0x7fc00000u) : {value};")
        yield planted("NaN", "infinity at the eighth",
                      f"{place} = {index} == 7 ? __uint_as_float(0x7f800000u) : {value};")
    yield planted("changes its input", "a byte",
                  f"{right} if ({index} == 0) ((volatile unsigned char *){kernel.read})[4] ^= 64;", CAPTURE)
    yield planted("changes its input", "to the next number",
                  f"{right} if ({index} == 0) ((volatile unsigned *){kernel.read})[1] ^= 1;", CAPTURE)
    yield planted("fails", "traps", f"{right} if ({index} == 1) __trap();", frozenset({"fails"}))
    waits = f"while (((const volatile unsigned *){kernel.read})[0] != 0x7fedcba9u) ;"
    yield planted("fails", "never ends", f"{right} {waits}", frozenset({"hangs"}))
    arguments = ", ".join(_parameters(kernel))
    yield planted("second stream", "a launch of its own", f"{kernel.name}<<<1, 128>>>({arguments});",
                  frozenset({"compile_error"}), COMPILER)
    yield planted("does not compile", "an unknown name", f"{place} = no_such_name;", frozenset({"compile_error"}),
                  COMPILER)


def of_shape(kernel: PlantedKernel, size: int) -> Iterator[WrongVariant]:
    """Yield variants that are right if the kernel's size is the captured one."""
    for name, wrong in (("one more elsewhere", f"{kernel.value} + 1"), ("nothing elsewhere", "")):
        other = f"{kernel.place} = {wrong};" if wrong else ";"
        statement = f"if ({kernel.size} == {size}) {kernel.place} = {kernel.value}; else {other}"
        yield WrongVariant(kernel, "captured shape only", name, _with_statement(kernel, statement), DEVICE, SHAPES)


def of_text(kernel: PlantedKernel) -> Iterator[WrongVariant]:
    """Yield variants that the source model refuses."""
    text = kernel.text
    begin, end = _span(kernel)
    head, function, tail = text[:begin], text[begin:end], text[end:]
    brace = function.index("{")

    def planted(kind: str, name: str, whole: str | bytes, *reasons: str) -> WrongVariant:
        content = whole if isinstance(whole, bytes) else whole.encode()
        assert content != text.encode(), name
        return WrongVariant(kernel, kind, name, content, TEXT, frozenset(reasons))

    def in_signature(old: str, new: str) -> str:
        assert old in function[:brace]
        return head + function[:brace].replace(old, new, 1) + function[brace:] + tail

    def in_body(line: str) -> str:
        return f"{head}{function[:brace + 1]}\n{line}\n{function[brace + 1:]}{tail}"

    yield planted("signature", "another parameter", in_signature(f"{kernel.name}(", f"{kernel.name}(int more, "),
                  "signature")
    yield planted("signature", "no longer extern C", in_signature('extern "C" ', ""), "signature")
    yield planted("signature", "another name", in_signature(kernel.name, "other_" + kernel.name), "not_found")
    yield planted("attribute", "launch bounds", in_signature("void", "void __launch_bounds__(64)"), "signature")
    yield planted("attribute", "restrict", in_signature("*", "*__restrict__ "), "signature")
    yield planted("attribute", "noinline", in_signature("void", "__attribute__((noinline)) void"),
                  "signature")
    yield planted("outside", "a line before", f"/* faster */ {text}", "outside_kernel")
    yield planted("outside", "a macro before", f"#define {kernel.size} 1\n{text}", "outside_kernel", "macro_name")
    yield planted("outside", "a function after", text + "\n__device__ int more;\n", "outside_kernel")
    yield planted("outside", "the body ends early",
                  f"{head}{function[:-1]}}}\n__device__ void rest()\n{{ int more; }}{tail}", "outside_kernel")
    yield planted("macro tricks", "a size defined in the body", in_body(f"#define {kernel.size} 1"), "directive")
    yield planted("macro tricks", "what follows left out", in_body("#if 0") + "\n#endif\n", "directive", "syntax",
                  "outside_kernel")
    yield planted("macro tricks", "push_macro", in_body('_Pragma("push_macro(\\"THREADS\\")");'), "directive")
    yield planted("macro tricks", "braces by a macro", f"#define FINISH }}\n{in_body('if (0) { FINISH')}",
                  "macro_braces")
    yield planted("macro tricks", "a comment that stays open", f"{head}{function[:-1]}/* }}{tail}",
                  "syntax")
    yield planted("macro tricks", "digraphs", in_body("<% int more; %>"), "hidden")
    yield planted("macro tricks", "a line joined to a comment", in_body("int more; \\"), "hidden")
    yield planted("macro tricks", "text in another order", in_body("/* \u202e } */ ;"), "hidden")
    yield planted("macro tricks", "two kernels of one name", f"{text}\n{function}", "several_definitions")
    yield planted("macro tricks", "a file by the assembler", in_body('asm(".incbin \\"/etc/hostname\\"");'), "assembly")


def _with_statement(kernel: PlantedKernel, statement: str) -> bytes:
    begin, end = _span(kernel)
    function = kernel.text[begin:end]
    assert function.count(kernel.statement) == 1, (kernel.name, kernel.statement)
    return (kernel.text[:begin] + function.replace(kernel.statement, f"{{ {statement} }}") + kernel.text[end:]).encode()


def _span(kernel: PlantedKernel) -> tuple[int, int]:
    text = kernel.text
    begin = text.index(f'extern "C" __global__ void {kernel.name}(')
    return begin, text.index("\n}\n", begin) + 2


def _parameters(kernel: PlantedKernel) -> list[str]:
    begin, end = _span(kernel)
    function = kernel.text[begin:end]
    listed = function[function.index("(") + 1:function.index(")")]
    return [part.split()[-1].lstrip("*") for part in listed.split(",")]


