-- The state of each device that telemetry watched in a session. Of a session without it one row says why.
WITH counted AS (
    SELECT session_id, time_ns, node, device, health, why_no_health, coalesce(len(health), 0) AS devices
    FROM session_facts
)
SELECT session_id, time_ns, node, device, unnest(health, recursive := true), NULL AS why_absent
FROM counted
WHERE devices > 0
UNION ALL BY NAME
SELECT session_id, time_ns, node, device, coalesce(why_no_health, getvariable('before')) AS why_absent
FROM counted
WHERE devices = 0
