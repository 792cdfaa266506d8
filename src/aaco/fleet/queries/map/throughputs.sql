-- The throughput of each session, the median of its processes; on how many devices it ran, and their measured ceilings.
WITH taken AS (
    SELECT session_id, model, device, backend, fingerprint, devices_used, fp32_flops, dram_bytes_per_s,
           CASE WHEN devices_used IS NULL THEN coalesce(why_no_devices_used, getvariable('before')) END AS why_absent,
           unnest(samples) AS sample
    FROM facts
)
SELECT * EXCLUDE (sample), sample.unit AS unit, median(sample.value) AS throughput
FROM taken
WHERE sample.metric = 'throughput_per_s' AND sample.value > 0
GROUP BY ALL
