-- The sessions without a value of the metric that is asked for, each with the reason.
SELECT session_id, time_ns, model, device, backend, fingerprint, nullif(devices_used, 1) AS several_devices, node,
       coalesce(why_no_samples, 'no positive value of ' || getvariable('metric')) AS why_absent
FROM facts
WHERE session_id NOT IN (SELECT session_id FROM measured)
