-- The value of each process of each session in the metric that is asked for.
WITH taken AS (
    SELECT session_id, time_ns, model, device, backend, fingerprint, several_devices, node, git_commit,
           unnest(asked) AS sample
    FROM session_facts
)
SELECT * EXCLUDE (sample), sample.metric AS metric, sample.unit AS unit, sample.direction AS direction,
       sample.process AS process, sample.value AS value
FROM taken
