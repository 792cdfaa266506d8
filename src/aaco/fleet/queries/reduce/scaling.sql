-- The throughput of comparable sessions by the number of devices. Scaling efficiency: throughput per device over that
-- on the smallest number of devices that the same group recorded; null where that is this one.
WITH counted AS (
    SELECT model, device, backend, fingerprint, devices_used, why_absent, unit, count(*) AS sessions,
           median(throughput) AS throughput
    FROM throughputs
    GROUP BY ALL
), based AS (
    SELECT *, min(devices_used) OVER peers AS base_devices, arg_min(throughput, devices_used) OVER peers AS base,
           arg_min(sessions, devices_used) OVER peers AS base_sessions, count(devices_used) OVER peers AS numbers
    FROM counted
    WINDOW peers AS (PARTITION BY model, device, backend, fingerprint)
)
SELECT *, CASE WHEN devices_used > base_devices THEN (throughput / devices_used) / (base / base_devices) END AS efficiency
FROM based
ORDER BY model, device, backend, fingerprint, devices_used, why_absent
