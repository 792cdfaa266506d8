"""What reports say of a kernel's instructions."""

from aaco.analytics.instructions.inside import InstructionPart, KernelInstructions
from aaco.report.sections.findings.instructions import of_kernel


def kernel(*mix: InstructionPart) -> KernelInstructions:
    hits, samples = sum(part.hits for part in mix), sum(part.samples for part in mix)
    latency = None if mix[0].latency_cycles is None else sum(part.latency_cycles for part in mix)
    whole = InstructionPart("k", hits, latency, None, latency and 0, samples)
    return KernelInstructions(None, "k", "thread_trace", None, whole, mix, (), (), (), 0, {}, None, None, {}, None)


def rows(*mix: InstructionPart) -> dict[str, str]:
    return {row.label: row.text for row in of_kernel(kernel(*mix))}


def test_the_mix_is_by_executions_and_cycles_have_a_row_of_their_own():
    """Mutation: a wait that is 4 % of the instructions and half of the cycles shown as half of the mix."""
    found = rows(InstructionPart("waitcnt", 4, 510, 500, 0, 0), InstructionPart("valu", 96, 490, 0, 0, 0))
    assert found["Mix"] == "valu 96.0 %, waitcnt 4.0 %"
    assert found["Cycles by kind"] == "waitcnt 51.0 %, valu 49.0 %"


def test_samples_stand_in_where_executions_are_not_counted():
    found = rows(InstructionPart("vmem", 0, None, None, None, 30), InstructionPart("valu", 0, None, None, None, 10))
    assert found["Mix"] == "vmem 75.0 %, valu 25.0 %" and "Cycles by kind" not in found
