-- The own time of each device of a session, and the device that the others wait for. Of a session without them one row
-- says why.
WITH counted AS (
    SELECT *, coalesce(len(device_times), 0) AS devices
    FROM session_facts
)
SELECT session_id, model, device, backend, fingerprint, several_devices, node, straggler, straggler_pct,
       why_no_straggler, unnest(range(devices)) AS place, unnest(device_times) AS device_time, NULL AS why_absent
FROM counted
WHERE devices > 0
UNION ALL BY NAME
SELECT session_id, model, device, backend, fingerprint, several_devices, node,
       coalesce(why_no_device_times, getvariable('before')) AS why_absent
FROM counted
WHERE devices = 0
