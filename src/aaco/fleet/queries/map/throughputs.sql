-- The throughput of each session, the median of its processes; on how many devices it ran, and their measured ceilings.
SELECT session_id, model, device, backend, fingerprint, devices_used, fp32_flops, dram_bytes_per_s,
       CASE WHEN devices_used IS NULL THEN coalesce(why_no_devices_used, getvariable('before')) END AS why_absent,
       throughputs[1].unit AS unit, list_median([sample.value FOR sample IN throughputs]) AS throughput
FROM session_facts
WHERE len(throughputs) > 0
