-- The worst state of each device of each node, of the latest session in which it had that, and in how many sessions it
-- was not healthy. Of sessions without telemetry: why.
WITH ranked AS (
    SELECT *, CASE state WHEN 'critical' THEN 2 WHEN 'degraded' THEN 1 WHEN 'healthy' THEN 0 END AS severity
    FROM device_health
)
SELECT node, device, device_id, why_absent, count(*) AS sessions, count(*) FILTER (severity > 0) AS unhealthy,
       max(severity) AS severity,
       arg_max({'session_id': session_id, 'time_ns': time_ns, 'state': state, 'evidence': evidence},
               (severity, time_ns, session_id)) AS worst
FROM ranked
GROUP BY node, device, device_id, why_absent
ORDER BY severity DESC NULLS LAST, unhealthy DESC, node, device, device_id, why_absent
