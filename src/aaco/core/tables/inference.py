"""What is known of each inference."""

from __future__ import annotations

from aaco.core.tables.spec import FLAG, INT, NAME, REAL, TEXTS, TableSpec

INFERENCE_ITERS = TableSpec("inference_iters", "metrics/inference_iters.parquet", "One row per inference.", {
    "iteration": (INT, "0-based, counted within process and phase"),
    "phase": (NAME, "warmup or measurement"),
    "t_start_ns": (INT, "start"),
    "t_end_ns": (INT, "end"),
    "latency_ms": (REAL, "(t_end_ns - t_start_ns) / 1e6"),
    "batch": (INT, "samples per inference"),
    "process": (INT, "index of the fresh process that ran it"),
    "clean": (FLAG, "interference cost it less than 5 % by all that was recorded; null when nothing watched"),
    "noise_reasons": (TEXTS, "what interfered"),
    "noise_impact_pct": (REAL, "how much longer it took for that, as estimated; null when nothing watched"),
    "contamination": (REAL, "0.7 x largest + 0.3 x mean of the signals' scores, 0-1; beyond 0.5 discard"),
    "counted": (FLAG, "whether the statistics rest on it: under --noise discard and repeat clean ones only; null: all"),
}, never_null=("iteration", "phase", "t_start_ns", "t_end_ns", "latency_ms", "process"))
ITERATION_FEATURES = TableSpec("iteration_features", "metrics/iteration_features.parquet",
                               "One row per inference: what was going on while it ran.", {
    "process": (INT, "index of the fresh process"),
    "phase": (NAME, "warmup or measurement"),
    "iteration": (INT, "0-based within process and phase"),
    "t_start_ns": (INT, "start"), "t_end_ns": (INT, "end"),
    "latency_ms": (REAL, "latency"),
    "run_queue_wait_ns": (REAL, "time its threads waited for a CPU; exact from T3, else samples spread over their "
                          "interval"),
    "preempted_ns": (REAL, "time its threads were off the CPU because another task took it; null without T2 or T3"),
    "interrupt_ns": (REAL, "time interrupts, softirqs and timers took from its threads; null without T3"),
    "steal_ns": (REAL, "time the hypervisor gave to others"),
    "switches_voluntary": (REAL, "context switches by its own will"),
    "switches_involuntary": (REAL, "preemptions"),
    "migrations": (REAL, "moves to another CPU"),
    "faults_minor": (REAL, "page faults without I/O"),
    "faults_major": (REAL, "page faults with I/O"),
    "psi_cpu_us": (REAL, "time some task of the host waited for a CPU"),
    "psi_memory_us": (REAL, "time some task of the host waited for memory"),
    "psi_io_us": (REAL, "time some task of the host waited for I/O"),
    "cpu_mhz": (REAL, "clock of its CPUs"),
    "sclk_mhz": (REAL, "core clock of the device"),
    "power_w": (REAL, "power of the device"),
    "temp_c": (REAL, "temperature of the device"),
    "core_canary_ns": (REAL, "time of known work for the processor, mean of the looks before and after"),
    "memory_canary_ns": (REAL, "time of known work for the memory, mean of the looks before and after"),
}, never_null=("process", "phase", "iteration", "latency_ms"))
ACCOUNT = TableSpec("account", "telemetry/account.parquet",
                    "The measured process's own account: one row per reading that it made between two inferences.", {
    "process": (INT, "index of the fresh process"),
    "t_ns": (INT, "time of the reading"),
    "dur_ns": (INT, "since the reading before, which the amounts are of"),
    "threads": (INT, "threads that were watched"),
    "run_queue_wait_ns": (INT, "time its threads waited for a CPU; null where they were not the same as before"),
    "switches_involuntary": (INT, "preemptions"),
    "switches_voluntary": (INT, "context switches by its own will"),
    "faults_minor": (INT, "page faults without I/O"),
    "faults_major": (INT, "page faults with I/O"),
    "core_canary_ns": (INT, "time of known work for the processor: the fastest of three; null where it was not done"),
    "memory_canary_ns": (INT, "time of known work for the memory; null where it was not done"),
}, never_null=("process", "t_ns"))
_IN_ALL = "ns inside the iteration, summed over the threads: "
ITERATION_OVERLAP = TableSpec("iteration_overlap", "telemetry/iteration_overlap.parquet",
                              "One row per inference: single operating-system events inside it, exact. Null where the "
                              "tier records no such thing, or did not watch the whole of the iteration.", {
    "process": (INT, "index of the fresh process"),
    "phase": (NAME, "warmup or measurement"),
    "iteration": (INT, "0-based within process and phase"),
    "t_start_ns": (INT, "start"), "t_end_ns": (INT, "end"),
    "tier": (NAME, "tier that recorded the events: T3 or T2"),
    "run_queue_wait_ns": (INT, _IN_ALL + "runnable, without a CPU"),
    "preempted_ns": (INT, _IN_ALL + "off the CPU because another task took it"),
    "blocked_ns": (INT, _IN_ALL + "off the CPU by their own will"),
    "irq_ns": (INT, _IN_ALL + "interrupts"),
    "softirq_ns": (INT, _IN_ALL + "softirqs"),
    "timer_ns": (INT, _IN_ALL + "timer interrupts"),
    "futex_wait_ns": (INT, _IN_ALL + "blocked in a futex"),
    "block_io_ns": (INT, _IN_ALL + "blocked on block I/O"),
    "fault_ns": (INT, _IN_ALL + "in page faults; null where their latency is not traced"),
    "switches_voluntary": (INT, "switches by their own will that begin in it"),
    "switches_involuntary": (INT, "preemptions that begin in it"),
    "migrations": (INT, "moves to another CPU"),
    "faults_minor": (INT, "page faults without I/O"),
    "faults_major": (INT, "page faults with I/O"),
    "interrupts": (INT, "interrupts, softirqs and timers that begin in it"),
    "lost": (INT, "events known to be lost in it"),
}, never_null=("process", "phase", "iteration", "t_start_ns", "t_end_ns", "tier"))
