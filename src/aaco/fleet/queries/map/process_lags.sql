-- How far each process is from the others of its session, in a time, on the log scale; positive is slower. Of two
-- processes nothing says which one is off.
WITH processes AS (
    SELECT *, unnest(asked) AS sample
    FROM session_facts
    WHERE len(asked) >= 3
)
SELECT session_id, model, device, backend, fingerprint, several_devices, node, sample.process AS process,
       len(asked) AS processes,
       ln(sample.value) - list_median([ln(other.value) FOR other IN asked IF other.process <> sample.process])
       AS residual
FROM processes
