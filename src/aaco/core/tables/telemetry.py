"""What was sampled or noted over time, and what a capture says of its devices."""

from aaco.core.tables.spec import CAPTURE, FLAG, INT, NAME, REAL, TEXT, TEXTS, TableSpec

SAMPLES = TableSpec("samples", "telemetry/samples.parquet",
                    "Values sampled over time that belong to no single kernel.", {
    "t_ns": (INT, "time"),
    "name": (NAME, "what was sampled"),
    "value": (REAL, "value"),
    "unit": (NAME, "unit, where the capture says it"),
    "device_id": (INT, "device; null for the host"),
    "process_id": (INT, "operating-system process"),
    **CAPTURE,
})
GPU_EVENTS = TableSpec("gpu_events", "telemetry/gpu_events.parquet", "One row per telemetry sample of a device.", {
    "t_ns": (INT, "time; null where the source has no clock"),
    "device_id": (INT, "device"),
    "gpu_util_pct": (REAL, "share of the time in which anything ran: busy time, not how well it was used"),
    "mem_util_pct": (REAL, "share of the time in which memory was accessed"),
    "temp_c": (REAL, "edge temperature"),
    "hotspot_c": (REAL, "junction temperature"),
    "power_w": (REAL, "power of the package"),
    "power_cap_w": (REAL, "power limit in force"),
    "energy_j": (REAL, "energy counter"),
    "sclk_mhz": (REAL, "core clock"),
    "sclk_max_mhz": (REAL, "highest core clock of the device"),
    "mclk_mhz": (REAL, "memory clock"),
    "vram_used_bytes": (INT, "memory in use"),
    "vram_total_bytes": (INT, "memory"),
    "pcie_rx_bytes": (INT, "received over PCIe"),
    "pcie_tx_bytes": (INT, "sent over PCIe"),
    "throttle_reasons": (TEXTS, "why the clock is held down, as the driver names it"),
    "processes": (INT, "processes that hold the device, of all its users; null where that is not reported"),
    "source": (NAME, "tool it was read from"),
    **CAPTURE,
})
DEVICE_FACTS = TableSpec("device_facts", "telemetry/device_facts.parquet",
                         "What a capture says of a device: one row per fact, as a number or as a text.", {
    "device_id": (INT, "device, as the capture numbers it"),
    "name": (NAME, "fact: simd_per_cu, lds_bytes, l2_bytes, max_clock_mhz, wave_size, isa, hbm_bandwidth_gb_s, ..."),
    "value": (REAL, "the number; null for a text"),
    "text": (TEXT, "the text; null for a number"),
    **CAPTURE,
})
DEVICE_LINKS = TableSpec("device_links", "telemetry/device_links.parquet",
                         "One row per link from a device to another, or to a processor, as the capture lists them.", {
    "src_device": (INT, "from, as the capture numbers its nodes"),
    "dst_device": (INT, "to"),
    "kind": (NAME, "xgmi, pcie, hypertransport, qpi, ..."),
    "direct": (FLAG, "whether it is a wire of its own, rather than a way through other devices"),
    "weight": (INT, "relative cost of the way, as the driver gives it"),
    "hops": (INT, "devices passed on the way"),
    "min_bandwidth_mb_s": (INT, "lowest bandwidth, megabytes a second; null where the driver gives 0"),
    "max_bandwidth_mb_s": (INT, "highest bandwidth, megabytes a second; null where the driver gives 0"),
    **CAPTURE,
})
SYSTEM_EVENTS = TableSpec("system_events", "telemetry/system_events.parquet",
                          "Operating-system events and samples around the measured process.", {
    "t_ns": (INT, "start of the event (T2, T3, markers), or end of the sampled interval (T1)"),
    "dur_ns": (INT, "duration of the event, or time accumulated in the sampled interval; of a switch, the time off the "
               "CPU"),
    "kind": (NAME, "run_queue_wait, switch_voluntary, switch_involuntary, migration, fault_minor, fault_major, irq, "
             "softirq, timer, futex_wait, block_io; watched (the tier looked on); lost; marker; samples of the host"),
    "process_id": (INT, "operating-system process"),
    "thread_id": (INT, "operating-system thread; null when summed over the process"),
    "cpu": (INT, "logical CPU"),
    "other_process": (INT, "who preempted"),
    "value": (REAL, "measured value, in `unit`"),
    "unit": (NAME, "unit of value"),
    "tier": (NAME, "T1 procfs, T2 perf events, T3 BPF, kmod the kernel module"),
    "lost_before": (INT, "events known to be lost just before this one"),
    "clock": (NAME, "clock of t_ns: monotonic"),
    "detail": (NAME, "who preempted, by name; the interrupt's name; why the thread left the CPU; a marker's text"),
}, never_null=("t_ns", "kind"))
