-- The own time of each device of a session, and the device that the others wait for. Of a session without them one row
-- says why.
SELECT session_id, model, device, backend, fingerprint, nullif(devices_used, 1) AS several_devices, node, straggler,
       straggler_pct, why_no_straggler, unnest(range(len(device_times))) AS place,
       unnest(device_times) AS device_time, NULL AS why_absent
FROM facts
WHERE len(device_times) > 0
UNION ALL BY NAME
SELECT session_id, model, device, backend, fingerprint, nullif(devices_used, 1) AS several_devices, node,
       coalesce(why_no_device_times, getvariable('before')) AS why_absent
FROM facts
WHERE coalesce(len(device_times), 0) = 0
