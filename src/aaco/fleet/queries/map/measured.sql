-- The value of each process of each session in the metric that is asked for.
WITH taken AS (
    SELECT session_id, time_ns, model, device, backend, fingerprint, nullif(devices_used, 1) AS several_devices, node,
           unnest(samples) AS sample
    FROM facts
)
SELECT * EXCLUDE (sample), sample.metric AS metric, sample.unit AS unit, sample.direction AS direction,
       sample.process AS process, sample.value AS value
FROM taken
WHERE sample.metric = getvariable('metric') AND sample.value > 0
