-- The levels of each group of comparable sessions in each metric, the newest first. age: 1 is the newest session of the
-- group. Of sessions without any: why.
WITH aged AS (
    SELECT *, dense_rank() OVER (PARTITION BY model, device, backend, fingerprint, several_devices
                                 ORDER BY time_ns DESC, session_id DESC) AS age
    FROM metric_levels
)
SELECT model, device, backend, fingerprint, several_devices, metric, list(level ORDER BY age) AS levels,
       list(session_id ORDER BY age) AS sessions, list(age ORDER BY age) AS ages,
       list(why_absent ORDER BY age) AS reasons
FROM aged
GROUP BY model, device, backend, fingerprint, several_devices, metric
ORDER BY model, device, backend, fingerprint, several_devices, metric
