-- The throughput of each session, the median of its processes; on how many devices it ran, and their measured ceilings.
WITH taken AS (
    SELECT session_id, model, device, backend, fingerprint, devices_used, fp32_flops, dram_bytes_per_s,
           CASE WHEN devices_used IS NULL THEN coalesce(why_no_devices_used, getvariable('before')) END AS why_absent,
           [sample FOR sample IN samples IF sample.metric = 'throughput_per_s' AND sample.value > 0] AS measured
    FROM facts
)
SELECT * EXCLUDE (measured), measured[1].unit AS unit, list_median([sample.value FOR sample IN measured]) AS throughput
FROM taken
WHERE len(measured) > 0
