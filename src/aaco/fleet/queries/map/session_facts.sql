-- What several maps need of each session, read once: to open many files takes longer than to read a few columns.
SELECT session_id, time_ns, model, device, backend, fingerprint, nullif(devices_used, 1) AS several_devices, node,
       why_no_samples, device_times, why_no_device_times, straggler, straggler_pct, why_no_straggler
FROM facts
