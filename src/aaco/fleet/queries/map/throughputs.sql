-- The throughput of each session, the median of its processes, and on how many devices it ran.
WITH taken AS (
    SELECT session_id, model, device, backend, fingerprint, devices_used, unnest(samples) AS sample,
           CASE WHEN devices_used IS NULL THEN coalesce(why_no_devices_used, getvariable('before')) END AS why_absent
    FROM facts
)
SELECT session_id, model, device, backend, fingerprint, devices_used, why_absent, sample.unit AS unit,
       median(sample.value) AS throughput
FROM taken
WHERE sample.metric = 'throughput_per_s' AND sample.value > 0
GROUP BY ALL
