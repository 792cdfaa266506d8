-- The level of each session in each of its metrics, the median of its processes. Of a session without any: why.
WITH recorded AS (
    SELECT session_id, time_ns, model, device, backend, fingerprint, nullif(devices_used, 1) AS several_devices,
           [sample FOR sample IN samples IF sample.value > 0] AS measured, why_no_samples
    FROM facts
), taken AS (
    SELECT * EXCLUDE (measured, why_no_samples), unnest(measured) AS sample
    FROM recorded
)
SELECT * EXCLUDE (sample), sample.metric AS metric, median(sample.value) AS level, NULL AS why_absent
FROM taken
GROUP BY ALL
UNION ALL BY NAME
SELECT * EXCLUDE (measured, why_no_samples), coalesce(why_no_samples, 'no positive value') AS why_absent
FROM recorded
WHERE coalesce(len(measured), 0) = 0
