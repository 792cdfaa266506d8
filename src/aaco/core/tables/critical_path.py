"""What bounded the wall time of a trace: the path, kernels' shares of it, slack."""

from aaco.core.tables.spec import INT, NAME, REAL, WHEN, TableSpec

CRITICAL_PATH = TableSpec("critical_path", "attribution/critical_path.parquet",
                          "What bounded the wall time: segments that fill a path's window, in order, each ns once.", {
    "path": (INT, "which path: captures that share a clock and are connected have one"),
    "segment": (INT, "position on its path"),
    "kind": (NAME, "compute, communication, copy, launch, host, sync, kernel_wait, unknown"),
    "edge": (NAME, "why what came next had to wait, of a delay: peer, sync, event, stream, launch, host; else null"),
    "basis": (NAME, "of a delay: observed or inferred"),
    **WHEN,
    "kernel_id": (INT, "kernel that ran; of a delay the one that waited"),
    "copy_id": (INT, "copy, likewise"),
    "call_id": (INT, "call, likewise"),
}, never_null=("path", "segment", "kind", "t_start_ns", "t_end_ns", "dur_ns"))
KERNEL_SLACK = TableSpec("kernel_slack", "attribution/kernel_slack.parquet",
                         "Slack: how much later each dispatch could start without delaying the end.", {
    "kernel_id": (INT, "kernel"),
    "path": (INT, "path that its captures belong to"),
    "slack_ns": (INT, "latest start - earliest start"),
    "path_ns": (INT, "how much of it is on the critical path"),
}, never_null=("kernel_id", "slack_ns", "path_ns"))
CRITICAL_KERNELS = TableSpec("critical_kernels", "attribution/critical_kernels.parquet",
                             "What each kernel adds to the critical path, by name.", {
    "path": (INT, "path"),
    "kernel_name": (NAME, "kernel"),
    "calls": (INT, "executions"),
    "total_ns": (INT, "sum of durations"),
    "path_calls": (INT, "executions on the path"),
    "path_ns": (INT, "their time on the path"),
    "fraction": (REAL, "path_ns of the window"),
    "ceiling": (REAL, "how many times faster the window would at most be without them; null where it is all of it"),
    "slack_min_ns": (INT, "least slack of an execution"),
    "slack_p50_ns": (INT, "median slack"),
    "headroom": (REAL, "share of its time that its roofline says could be gained; null without counters"),
    "priority": (REAL, "headroom x fraction"),
}, never_null=("path", "calls", "path_ns"))
