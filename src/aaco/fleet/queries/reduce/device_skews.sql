-- The slowest device of each session against the median of its devices, by their own time in a step, and the device
-- that the others wait for. Of a session without such times: why.
WITH skews AS (
    SELECT session_id, model, device, backend, fingerprint, several_devices, node, straggler_pct, why_no_straggler,
           why_absent, count(place) AS devices, arg_max(device_time, (device_time.own_ns, -place)) AS slowest,
           max(device_time.own_ns) / median(device_time.own_ns) AS skew,
           any_value(device_time) FILTER (place = straggler) AS straggler
    FROM device_times
    GROUP BY ALL
)
SELECT *
FROM skews
ORDER BY skew DESC NULLS LAST, session_id
