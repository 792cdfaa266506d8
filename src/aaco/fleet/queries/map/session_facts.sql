-- What most maps need of each session, for several of them read once: to open many files takes longer than to read a
-- few columns. Of the samples only those of the metric that is asked for, and of throughput.
SELECT session_id, time_ns, model, device, backend, fingerprint, devices_used,
       nullif(devices_used, 1) AS several_devices, node, git_commit, why_no_samples, why_no_devices_used, fp32_flops,
       dram_bytes_per_s, device_times, why_no_device_times, straggler, straggler_pct, why_no_straggler,
       labels, why_no_labels, health, why_no_health,
       [sample FOR sample IN samples IF sample.metric = getvariable('metric') AND sample.value > 0] AS asked,
       [sample FOR sample IN samples IF sample.metric = 'throughput_per_s' AND sample.value > 0] AS throughputs
FROM facts
