"""What waves and instructions did: thread traces and samples of the program counter."""

from aaco.core.tables.spec import CAPTURE, FLAG, INT, NAME, TEXT, TableSpec

WAVE_INSTRUCTIONS = TableSpec("wave_instructions", "profiler/wave_instructions.parquet",
                              "One row per traced instruction, or per finding of the program-counter samples at one.", {
    "code_object": (INT, "code object it lies in"),
    "vaddr": (INT, "address in the code object"),
    "instruction": (TEXT, "text of the instruction"),
    "category": (NAME, "valu, salu, vmem, smem, lds, flat, branch, mfma, barrier, waitcnt, message, other"),
    "source_line": (TEXT, "file and line it was compiled from"),
    "hits": (INT, "executions"),
    "latency_cycles": (INT, "cycles from issue to completion, summed"),
    "stall_cycles": (INT, "cycles it could not issue, summed"),
    "idle_cycles": (INT, "cycles between instructions, summed"),
    "samples": (INT, "program-counter samples"),
    "stall_reason": (NAME, "why it did not issue, where samples say so"),
    "instruction_id": (INT, "its position in the capture's listing, by which the wave tables name it"),
    "kernel_name": (NAME, "kernel that the listing puts it in"),
    "dispatch_id": (INT, "dispatch it was traced or sampled in, as the profiler numbers them"),
    "correlation_id": (INT, "links the dispatch to the call that launched it"),
    "issued": (FLAG, "whether the samples found it issuing; null where samples cannot tell"),
    "issue_type": (NAME, "kind of instruction the hardware saw issuing, as the profiler names it"),
    "active_waves": (INT, "waves running on the compute unit at each sample, summed over the samples"),
    **CAPTURE,
})
_WAVE = {"wave_id": (INT, "wave in waves; unique within its capture")}
_SHADER = {"shader_engine": (INT, "shader engine")}
_SLOT = {
    "cu": (INT, "compute unit; from gfx10 on, workgroup processor"),
    "simd": (INT, "SIMD in the compute unit"),
    "slot": (INT, "wave slot of the SIMD"),
}
WAVES = TableSpec("waves", "profiler/waves.parquet",
                  "One row per traced wave. Cycles of the shader clock rank and compare; they are no run time.", {
    **_WAVE, **_SHADER, **_SLOT,
    "wave": (INT, "position among the waves of its slot"),
    "begin_cycle": (INT, "begin"),
    "end_cycle": (INT, "end"),
    "instructions": (INT, "instructions executed; null where the capture only lists the wave"),
    **CAPTURE,
})
WAVE_TRACE = TableSpec("wave_trace", "profiler/wave_trace.parquet",
                       "One row per instruction that a traced wave executed, in the order of its execution.", {
    **_WAVE,
    "cycle": (INT, "when the wave first tried to issue it"),
    "instruction_id": (INT, "instruction in wave_instructions"),
    "kind": (NAME, "how the trace decoder classes it: smem, salu, vmem, flat, lds, valu, jump (branch taken), next "
                   "(branch not taken), immed (done by the sequencer itself), ..."),
    "stall_cycles": (INT, "cycles in which it could not issue; null where the decoder does not say"),
    "latency_cycles": (INT, "stall and issue (gfx9), or stall and execution (gfx10 and later)"),
    **CAPTURE,
})
WAVE_STATES = TableSpec("wave_states", "profiler/wave_states.parquet",
                        "What a traced wave was doing: one row per uninterrupted state.", {
    **_WAVE,
    "begin_cycle": (INT, "begin of the state: the wave's begin and the states before it, summed"),
    "state": (NAME, "empty, idle, exec, wait, stall"),
    "cycles": (INT, "how long"),
    **CAPTURE,
})
WAVE_WAITS = TableSpec("wave_waits", "profiler/wave_waits.parquet",
                       "What a waiting instruction waited for: one row per link, as the trace decoder resolved it.", {
    **_WAVE,
    "wait": (INT, "position among the wave's waits; several rows where it waited for several instructions"),
    "instruction_id": (INT, "the waiting instruction in wave_instructions"),
    "waited_for": (INT, "the instruction it waited for; null where nothing was in flight"),
    **CAPTURE,
})
OCCUPANCY = TableSpec("occupancy", "profiler/occupancy.parquet",
                      "Beginnings and ends of all waves of a traced shader engine, on all its compute units.", {
    **_SHADER,
    "cycle": (INT, "when; to 8 cycles where the capture packs an event into one number"),
    **_SLOT,
    "begins": (FLAG, "whether the wave begins or ends"),
    "kernel_name": (NAME, "kernel of the wave, where the capture resolved it"),
    **CAPTURE,
})
WAVE_STATE_COUNTS = TableSpec("wave_state_counts", "profiler/wave_state_counts.parquet",
                              "How many of the traced waves were in a state, over time.", {
    "state": (NAME, "empty, idle, exec, wait, stall"),
    "cycle": (INT, "from this cycle on"),
    "waves": (INT, "waves in that state"),
    **CAPTURE,
})
SHADER_CLOCKS = TableSpec("shader_clocks", "profiler/shader_clocks.parquet",
                          "The shader clock read together with the device's constant clock.", {
    **_SHADER,
    "cycle": (INT, "shader clock"),
    "realtime_ticks": (INT, "constant clock"),
    "realtime_hz": (INT, "ticks of the constant clock in a second; null where the capture does not say"),
    **CAPTURE,
})
