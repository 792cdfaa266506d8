-- Map: the level of each session in each metric, the median of its processes.
WITH measured AS (
    SELECT session_id, time_ns, model, device, backend, fingerprint, node, unnest(samples) AS sample
    FROM facts
)
SELECT session_id, time_ns, model, device, backend, fingerprint, node,
       sample.metric AS metric, sample.unit AS unit, sample.direction AS direction,
       count(*) AS processes, median(sample.value) AS level
FROM measured
WHERE sample.value > 0
GROUP BY ALL
